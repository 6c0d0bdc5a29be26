# SPDX-License-Identifier: Apache-2.0
"""Attestation of a SEV guest from creation to secret, on a host that answers as libvirt does with SEV.

No machine at hand has SEV, so libvirt's answers are made up here; all else is the agent's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from launcher.agent import reconcile as do
from launcher.agent.attestation import Attestation, with_session
from launcher.agent.conditions import conditions
from launcher.agent.hostfacts import HostFacts
from launcher.agent.instances import Instances
from launcher.agent.machine import Services
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.resources import Resources
from launcher.agent.store import Store
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import HostUnsupported, InvalidRequest, NotFound, WrongPhase
from launcher.host.clock import SystemClock
from launcher.host.config import Config
from launcher.hypervisor.port import DomainRecord, DomainState, Hypervisor, SevMeasurement, SevPlatform
from launcher.network.executor import NetworkExecutor
from launcher.spec.model import VirtualMachineInstance
from launcher.storage.executor import StorageExecutor
from launcher.storage.limits import StorageSettings

MakeRecord = Callable[..., InstanceRecord]
SEV_GUEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  startStrategy: Paused
  domain:
    memory: {guest: 128Mi}
    firmware: {bootloader: {efi: {secureBoot: false}}}
    launchSecurity: {sev: {attestation: {}}}
    devices: {autoattachPodInterface: false}
"""
SESSION, CERTIFICATE = "c2Vzc2lvbg==", "Y2VydA=="


class SevHost:
    """A libvirtd on a host with SEV: it knows one domain, and what was asked of it."""

    def __init__(self) -> None:
        self.connected = True
        self.state: DomainState | None = None
        self.xml = ""
        self.secrets: list[tuple[str, str]] = []
        self.without_sev = False

    async def domain(self, uuid: str) -> DomainRecord:
        if self.state is None:
            raise NotFound("domain", uuid)
        return DomainRecord(uuid=uuid, name="lab_web", state=self.state, reason="user", persistent=True)

    async def domain_xml(self, uuid: str) -> str:
        return self.xml

    async def define(self, xml: str) -> str:
        self.xml, self.state = xml, DomainState.SHUTOFF
        return "uuid"

    async def create(self, uuid: str, *, paused: bool) -> None:
        self.state = DomainState.PAUSED if paused else DomainState.RUNNING

    async def sev_platform(self) -> SevPlatform:
        if self.without_sev:
            raise HostUnsupported("a libvirt or QEMU feature", "QEMU does not support SEV guest")
        return SevPlatform(pdh="cGRo", cert_chain="Y2hhaW4=", cbitpos=51, max_guests=509)

    async def sev_measurement(self, uuid: str) -> SevMeasurement:
        return SevMeasurement(measurement="bWVhc3VyZWQ=", api_major=1, build_id=7, policy=1)

    async def inject_sev_secret(self, uuid: str, *, header: str, secret: str) -> None:
        self.secrets.append((header, secret))


class World:
    """One instance on such a host."""

    def __init__(self, instances: Instances, attestation: Attestation, host: SevHost) -> None:
        self.instances, self.attestation, self.host = instances, attestation, host

    async def has(self, record: InstanceRecord) -> None:
        await self.instances.adopt(record)

    async def reaches(self, phase: str, state: DomainState) -> None:
        machine = self.instances.find("lab", "web")
        await machine.until(
            lambda m: m.record.phase == phase and m.observed is not None and m.observed.state is state,
            timeout_s=10,
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    host, store, supervisor = SevHost(), await Store.open(tmp_path / "db"), Supervisor()
    hypervisor = cast("Hypervisor", host)
    config = Config(node="here", state_dir=str(tmp_path), run_dir=str(tmp_path))
    storage = StorageExecutor(StorageSettings(state_dir=tmp_path, run_dir=tmp_path))
    services = Services(
        node="here",
        hypervisor=hypervisor,
        store=store,
        resources=Resources(store, storage=storage, network=NetworkExecutor()),
        hub=Hub[VirtualMachineInstance](),
        clock=SystemClock(),
    )
    instances = Instances(config, services, HostFacts(config, hypervisor), supervisor)
    yield World(instances, Attestation(services, instances), host)
    await supervisor.stop()
    await store.close()


@pytest.fixture
def guest(make_record: MakeRecord) -> InstanceRecord:
    return make_record(SEV_GUEST, prepared=True, phase="Scheduled", user_paused=True)


async def test_from_session_to_secret(world: World, guest: InstanceRecord, tmp_path: Path) -> None:
    firmware = tmp_path / "OVMF.fd"
    firmware.write_bytes(b"firmware")
    loader = guest.plan.boot.loader
    assert loader is not None
    boot = msgspec.structs.replace(
        guest.plan.boot, loader=msgspec.structs.replace(loader, path=str(firmware))
    )
    await world.has(msgspec.structs.replace(guest, plan=msgspec.structs.replace(guest.plan, boot=boot)))
    attestation = world.attestation

    assert (await attestation.platform()).max_guests == 509
    with pytest.raises(WrongPhase, match="has not been measured"):
        await attestation.measurement("lab", "web")
    with pytest.raises(WrongPhase, match="started and paused"):
        await attestation.inject("lab", "web", header="aGVhZGVy", secret="c2VjcmV0")
    assert world.host.state is None

    shown = await attestation.set_up("lab", "web", session=SESSION, dh_cert=CERTIFICATE)
    security = shown.spec.domain.launch_security
    assert security is not None
    assert security.sev is not None
    assert (security.sev.session, security.sev.dh_cert) == (SESSION, CERTIFICATE)
    await world.reaches("Running", DomainState.PAUSED)
    assert f"<session>{SESSION}</session>" in world.host.xml
    assert f"<dhCert>{CERTIFICATE}</dhCert>" in world.host.xml

    measured = await attestation.measurement("lab", "web")
    assert (measured.measurement, measured.build_id) == ("bWVhc3VyZWQ=", 7)
    assert measured.loader_sha256 == hashlib.sha256(b"firmware").hexdigest()
    await attestation.inject("lab", "web", header="aGVhZGVy", secret="c2VjcmV0")
    assert world.host.secrets == [("aGVhZGVy", "c2VjcmV0")]

    await attestation.set_up("lab", "web", session=SESSION, dh_cert=CERTIFICATE)
    with pytest.raises(WrongPhase, match="has a session already"):
        await attestation.set_up("lab", "web", session="b3RoZXI=", dh_cert=CERTIFICATE)


async def test_a_guest_that_runs_gets_no_secret(world: World, guest: InstanceRecord) -> None:
    await world.has(
        msgspec.structs.replace(with_session(guest, session=SESSION, dh_cert=CERTIFICATE), user_paused=False)
    )
    await world.reaches("Running", DomainState.RUNNING)
    with pytest.raises(WrongPhase, match="started and paused"):
        await world.attestation.inject("lab", "web", header="aGVhZGVy", secret="c2VjcmV0")
    assert world.host.secrets == []


async def test_only_guests_that_ask_for_it_are_attested(world: World, make_record: MakeRecord) -> None:
    world.host.state = DomainState.RUNNING
    await world.has(make_record(prepared=True, phase="Running"))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: world.attestation.set_up("lab", "web", session=SESSION, dh_cert=CERTIFICATE),
        lambda: world.attestation.measurement("lab", "web"),
        lambda: world.attestation.inject("lab", "web", header="aGVhZGVy", secret="c2VjcmV0"),
    )
    for call in calls:
        with pytest.raises(WrongPhase, match="no guest that is attested"):
            await call()
    with pytest.raises(NotFound):
        await world.attestation.measurement("lab", "nobody")


async def test_a_host_without_sev_names_what_it_lacks(world: World) -> None:
    world.host.without_sev = True
    with pytest.raises(HostUnsupported, match="AMD SEV") as caught:
        await world.attestation.platform()
    assert caught.value.capability == "AMD SEV"


@pytest.mark.parametrize(
    ("header", "secret"), [("", "c2VjcmV0"), ("aGVhZGVy", "not base64!"), ("A" * 20_000, "eA==")]
)
async def test_what_is_handed_over_is_base64_and_never_repeated(
    world: World, guest: InstanceRecord, header: str, secret: str
) -> None:
    await world.has(guest)
    with pytest.raises(InvalidRequest) as caught:
        await world.attestation.inject("lab", "web", header=header, secret=secret)
    (violation,) = caught.value.violations
    assert violation.field in {"header", "secret"}
    assert violation.value == ""
    assert "not base64!" not in str(caught.value)


def test_a_guest_waits_for_its_session_and_says_so(guest: InstanceRecord) -> None:
    now = Moment(boot_id="boot-1", seconds=1.0)
    assert do.reconcile(guest, None, now=now, efforts=do.Efforts()) == do.Decision()
    (ready,) = (c for c in conditions(guest, None, ()) if c.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "SEVSessionRequired")
    given = with_session(guest, session=SESSION, dh_cert=CERTIFICATE)
    assert do.reconcile(given, None, now=now, efforts=do.Efforts()).actions == (do.Define(),)


def test_a_session_in_the_manifest_needs_no_waiting(make_record: MakeRecord) -> None:
    text = SEV_GUEST.replace("{attestation: {}}", "{attestation: {}, session: c2Vz, dhCert: Y2Vy}")
    record = make_record(text, prepared=True, phase="Scheduled", user_paused=True)
    now = Moment(boot_id="boot-1", seconds=1.0)
    assert do.reconcile(record, None, now=now, efforts=do.Efforts()).actions == (do.Define(),)
