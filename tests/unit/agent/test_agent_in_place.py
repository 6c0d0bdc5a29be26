# SPDX-License-Identifier: Apache-2.0
"""Volumes that are copied under a guest that stays: what libvirt is asked when its calls do not return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from launcher.agent import in_place_run
from launcher.agent.in_place_run import InPlaceEntry, InPlaceRun
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.records import InstanceRecord
from launcher.agent.store import Store
from launcher.agent.watch import Hub
from launcher.errors import Conflict, HostUnsupported, TimedOut, WrongPhase
from launcher.host.clock import SystemClock
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.attempt import AttemptRecord, Outgoing, Phase
from launcher.migration.disk_copy import DiskCopy
from launcher.migration.options import Options, Workload
from launcher.migration.progress import MigrationProgress
from launcher.spec.model import ObjectMeta, VirtualMachineInstanceMigration
from launcher.spec.model import VirtualMachineInstanceMigrationSpec as Spec

MIRROR = "<mirror type='file' job='copy'><source file='/new/disk.img'/></mirror>"
XML = """<domain type='qemu'><name>lab_web</name><uuid>{uuid}</uuid><memory>131072</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><devices><disk type='file' device='disk'>
<source file='/old/disk.img'/>{mirror}<target dev='vda' bus='virtio'/><alias name='ua-data'/></disk></devices>
</domain>"""


class Slow:
    """Begins a copy only after its call was given up: ``hangs`` looks later, or never."""

    connected = True

    def __init__(self, hangs: int, *, begins: bool) -> None:
        self.hangs = hangs
        self.begins = begins
        self.asked = 0
        self.copies = False

    async def domain(self, uuid: str) -> DomainRecord:
        return DomainRecord(
            uuid=uuid, name="lab_web", state=DomainState.RUNNING, reason="booted", persistent=True
        )

    async def domain_xml(self, uuid: str, *, inactive: bool = False) -> str:
        return XML.format(uuid=uuid, mirror=MIRROR if self.copies else "")

    async def copy_disk(self, uuid: str, target: str, xml: str, **_: object) -> None:
        self.asked += 1
        raise TimedOut("copy disk: no answer within 30 s")

    async def end_disk_copy(self, uuid: str, target: str, *, pivot: bool) -> None:
        assert not pivot
        if self.hangs:
            self.hangs -= 1
            self.copies = self.begins and not self.hangs
            raise Conflict("end disk copy: 1 earlier call(s) have not returned")
        if not self.copies:
            raise WrongPhase("there is no copy")
        self.copies = False


class Kept:
    """One entry."""

    def __init__(self, entry: InPlaceEntry) -> None:
        self.entry = entry

    def find(self, key: str) -> InPlaceEntry:
        return self.entry

    async def save(self, entry: InPlaceEntry, progress: MigrationProgress | None = None) -> None:
        self.entry = entry

    def tell(self, key: str, progress: MigrationProgress) -> None:
        return


async def nowhere(*_: object) -> None:
    raise HostUnsupported("claims", "none is here")


@pytest.mark.parametrize(("hangs", "begins"), [(0, False), (3, True), (3, False)])
async def test_a_copy_that_may_still_begin_is_ended_before_its_claim_is_given_back(
    make_record: Callable[..., InstanceRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hangs: int,
    begins: bool,
) -> None:
    monkeypatch.setattr(in_place_run, "AGAIN_S", 0.001)
    store = await Store.open(tmp_path / "launcher.db")
    hypervisor = Slow(hangs, begins=begins)
    services = Services(
        node="a",
        hypervisor=cast(Any, hypervisor),
        store=store,
        resources=cast(Any, None),
        hub=Hub(),
        clock=SystemClock(),
    )
    record = replace(make_record(), phase="Running", prepared=True, outgoing="uid-move")
    machine = Machine(services, record)
    outgoing = Outgoing(
        attempt="uid-move",
        namespace="lab",
        name="move",
        uuid=record.plan.identity.uuid,
        source_node="a",
        target_node="a",
        options=Options(),
        workload=Workload(memory_bytes=0),
    )
    kept = Kept(
        InPlaceEntry(
            manifest=VirtualMachineInstanceMigration(
                metadata=ObjectMeta(name="move", namespace="lab", uid="uid-move"), spec=Spec(vmi_name="web")
            ),
            uid=record.uid,
            attempt=AttemptRecord(outgoing=outgoing, phase=Phase.RUNNING),
            copies=(
                DiskCopy(volume="data", target="vda", source="/old/disk.img", destination="/new/disk.img"),
            ),
        )
    )
    site = cast(Instances, SimpleNamespace(site=nowhere))
    await InPlaceRun("lab/move", machine, services, site, kept).run()
    assert (hypervisor.asked, hypervisor.hangs, hypervisor.copies) == (1, 0, False)
    assert (kept.entry.attempt.phase, machine.record.outgoing) == (Phase.FAILED, "")
    assert "no answer within 30 s" in kept.entry.attempt.reason
    await store.close()
