# SPDX-License-Identifier: Apache-2.0
"""The agent's share in migrations that come here: what is checked, reserved, adopted and let go."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import msgspec
import psutil

from launcher.agent.arrival import ArrivalChecks
from launcher.agent.cells import cell_findings
from launcher.agent.expected import Expected
from launcher.agent.instances import Instances
from launcher.agent.landing import Landings
from launcher.agent.machine import Machine, Services
from launcher.agent.moved_volumes import make_ready, objections
from launcher.agent.moving_devices import device_objections
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord, Notice, Transition
from launcher.agent.settings import plan_settings
from launcher.agent.settlement import arrived
from launcher.agent.update_volumes import arriving, plugged_before
from launcher.domain.read import DomainView, read_domain
from launcher.domain.retarget import Destination, retarget
from launcher.errors import Bug, HypervisorUnavailable, LauncherError, MigrationRefused
from launcher.host.config import Config
from launcher.host.logging import get
from launcher.host.qemu import end_qemu
from launcher.host.qmp import out_of_band
from launcher.host.run import run
from launcher.hypervisor.port import DomainRecord, qemu_uri
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool, disks_owner
from launcher.migration.reservation import Check, Endpoints, IncomingRecord, Landing, Reservation
from launcher.migration.target import TargetSide
from launcher.plan.paths import InstancePaths, instance_paths
from launcher.plan.settings import PlanSettings
from launcher.plan.steps import UseState
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance
from launcher.units import MIB, human_bytes

log = get(__name__)

KIND = "incoming"
QEMU_OVERHEAD_BYTES = 128 * MIB
"""What QEMU needs beside the guest's memory before the first page arrives; measured 40-60 MiB, rounded up."""

QMP_TIMEOUT_S = 5.0


class IncomingJournal:
    """Records of incoming attempts in the store."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def load(self) -> tuple[IncomingRecord, ...]:
        """All that are remembered."""
        documents = await self._store.documents(KIND)
        return tuple(msgspec.json.decode(text, type=IncomingRecord) for text in documents.values())

    async def save(self, record: IncomingRecord) -> None:
        """See ``TargetJournal``."""
        await self._store.put(KIND, record.attempt, msgspec.json.encode(record))

    async def forget(self, attempt: str) -> None:
        """See ``TargetJournal``."""
        await self._store.remove(KIND, attempt)


class IncomingHooks:
    """Implements ``TargetHooks`` on the node's instances."""

    def __init__(
        self,
        services: Services,
        instances: Instances,
        settings: PlanSettings,
        ports: PortPool,
        landings: Landings,
        expected: Expected,
    ) -> None:
        self._services = services
        self._instances = instances
        self._settings = settings
        self._ports = ports
        self._landings = landings
        self._expected = expected

    async def identify(self, request: PrepareRequest) -> str:
        """See ``TargetHooks``."""
        return read_domain(request.domain_xml).uuid

    async def reserve(self, request: PrepareRequest) -> Reservation:
        """See ``TargetHooks``."""
        landing = await asyncio.to_thread(self._landings.reserve, request)
        if landing.address:  # Remembered with the reservation: the next agent gives it to nobody else.
            port = self._ports.allocate(disks_owner(request.attempt))
            landing = msgspec.structs.replace(landing, disks_port=port)
        view = read_domain(request.domain_xml)
        present = self._instances.by_uuid(view.uuid)
        if present is not None:
            if present.record.incoming != request.attempt:
                raise MigrationRefused([f"{present.record.key} is on this node already"])
            await present.forget()
        async with self._instances.accepting:
            draft = await self._draft(request, view)
            await self._expected.comes(request, draft.key)
            machine = await self._instances.adopt(draft)
        try:
            plan, sources = await make_ready(draft, request.moved, self._services.resources)
        except (LauncherError, TimeoutError):
            await machine.forget()
            await self._expected.ended(request.attempt, arrived=False)
            raise
        await machine.update(lambda record: msgspec.structs.replace(record, plan=plan, prepared=True))
        where = _destination(request, draft, instance_paths(self._settings, draft.uid))
        destination = retarget(request.domain_xml, msgspec.structs.replace(where, sources=sources))
        return Reservation(
            uuid=view.uuid, landing=landing, destination_xml=destination, persistent_xml=destination
        )

    async def release(self, record: IncomingRecord) -> None:
        """See ``TargetHooks``."""
        await self._leave(record)
        machine = self._machine(record)
        if machine is not None and not machine.gone:
            # An adopted copy is none: the truth about it, and about what it kept, is on its source.
            await machine.update(lambda r: msgspec.structs.replace(r, incoming=record.attempt), wake=False)
            await machine.forget()
        await self._expected.ended(record.attempt, arrived=False)

    async def cut(self, record: IncomingRecord) -> None:
        """See ``TargetHooks``. A socket of this host does not die unnoticed."""
        if _landing(record).folder:
            return
        await run(
            ["ss", "--kill", "--tcp", "state", "connected", f"( sport = :{record.port} )"], timeout_s=10
        )

    async def fence(self, record: IncomingRecord) -> None:
        """See ``TargetHooks``."""
        ended = await asyncio.to_thread(end_qemu, record.uuid)
        if ended:
            log.warning("ended the incoming guest without libvirt", uuid=record.uuid, processes=ended)

    async def reopen(self, record: IncomingRecord, migrate_uri: str) -> None:
        """See ``TargetHooks``."""
        machine = self._machine(record)
        if machine is None:
            raise Bug(f"the guest of {record.attempt} is here and its record is gone")
        # The guest has what the node had on which it started, whatever this one gives to others.
        socket = instance_paths(self._settings, machine.record.uid).rescue_monitor
        await out_of_band(socket, "migrate-recover", timeout_s=QMP_TIMEOUT_S, uri=qemu_uri(migrate_uri))

    async def adopt(self, record: IncomingRecord, domain: DomainRecord) -> None:
        """See ``TargetHooks``."""
        await self._leave(record)
        machine = self._machine(record)
        if machine is None:
            raise Bug(f"the guest {domain.name} arrived and its record is gone")
        if machine.record.incoming:  # Else an agent died between this and writing the attempt down.
            at = self._services.clock.now()
            await machine.update(lambda r: arrived(r, at=at))
        await self._expected.ended(record.attempt, arrived=True)

    async def _leave(self, record: IncomingRecord) -> None:
        self._ports.release(disks_owner(record.attempt))
        await asyncio.to_thread(self._landings.clear, _landing(record), record.attempt)

    def _machine(self, record: IncomingRecord) -> Machine | None:
        machine = self._instances.by_uuid(record.uuid)
        # Without a reservation what is here is another's, for whose sake the attempt was refused.
        known = {record.attempt, ""} if record.adopted or record.reservation is not None else {record.attempt}
        return machine if machine is not None and machine.record.incoming in known else None

    async def _draft(self, request: PrepareRequest, view: DomainView) -> InstanceRecord:
        vmi = decode_vmi(request)
        came = plugged_before(vmi)
        draft = await self._instances.draft(arriving(vmi), companions_of(request), uid=uid_of(vmi), live=view)
        findings = cell_findings(draft, view)
        if findings:
            raise MigrationRefused(findings)
        status = vmi.status
        transitions = draft.transitions
        paused = False
        state = None
        if status is not None:
            transitions = tuple(
                Transition(phase=t.phase or "", at=t.phase_transition_timestamp or "")
                for t in status.phase_transition_timestamps
            )
            paused = any(c.type == "Paused" and c.reason == "PausedByUser" for c in status.conditions)
            state = status.migration_state
        if state is not None:
            # The source's has this when it begins, which is right after.
            state = msgspec.structs.replace(state, start_timestamp=self._services.clock.now())
        return msgspec.structs.replace(
            draft,
            manifest=msgspec.structs.replace(draft.manifest, status=None),
            incoming=request.attempt,
            notice=notice_of(request),
            plugged=came,
            user_paused=paused,
            transitions=transitions,
            migration_state=state,
        )


class IncomingChecks:
    """What could make a migration to this node fail. Each gives sentences; none changes anything."""

    def __init__(self, services: Services, instances: Instances, landings: Landings) -> None:
        self._services = services
        self._instances = instances
        self._landings = landings

    def all(self) -> tuple[Check, ...]:
        """The inventory."""
        return (
            Check(name="the address", run=self._address),
            Check(name="the name", run=self._name),
            Check(name="the specification", run=self._specification),
            Check(name="memory", run=self._memory),
            Check(name="the CPU", run=self._cpu),
            Check(name="disks", run=self._disks),
        )

    async def _address(self, request: PrepareRequest) -> tuple[str, ...]:
        if self._instances.draining:
            return ("this node is being drained",)
        return await asyncio.to_thread(self._landings.findings, request)

    async def _name(self, request: PrepareRequest) -> tuple[str, ...]:
        view = read_domain(request.domain_xml)
        findings = []
        for domain in await self._services.hypervisor.list_domains():
            if domain.uuid == view.uuid or domain.name == view.name:
                same = "UUID" if domain.uuid == view.uuid else "name"
                findings.append(f"libvirt here has the domain {domain.name!r} with the same {same}")
        vmi = decode_vmi(request)
        metadata = vmi.metadata
        for record in self._instances.records():
            same_name = metadata is not None and record.key == f"{metadata.namespace}/{metadata.name}"
            gives_way = record.awaits != "" and record.awaits == request.migration_id
            if same_name and record.incoming != request.attempt and not gives_way:
                findings.append(f"the instance {record.key} is on this node already")
        return tuple(findings)

    async def _specification(self, request: PrepareRequest) -> tuple[str, ...]:
        vmi = decode_vmi(request)
        view = read_domain(request.domain_xml)
        draft = await self._instances.draft(arriving(vmi), companions_of(request), uid=uid_of(vmi), live=view)
        kept = await asyncio.to_thread(_kept_findings, draft)
        facts = (await self._instances.site(vmi, draft.uid)).facts
        versions = (request.source_qemu_version, facts.qemu_version)
        devices = await device_objections(draft, request.devices, qemu_versions=versions)
        return (*cell_findings(draft, view), *kept, *await objections(draft, request.moved), *devices)

    async def _memory(self, request: PrepareRequest) -> tuple[str, ...]:
        wanted = read_domain(request.domain_xml).used_memory + QEMU_OVERHEAD_BYTES
        available = psutil.virtual_memory().available
        if wanted <= available:
            return ()
        return (f"the guest needs {human_bytes(wanted)}, this node has {human_bytes(available)} available",)

    async def _cpu(self, request: PrepareRequest) -> tuple[str, ...]:
        try:
            return await self._services.hypervisor.migration_compatible(request.domain_xml)
        except HypervisorUnavailable as error:
            return (str(error),)

    async def _disks(self, request: PrepareRequest) -> tuple[str, ...]:
        view = read_domain(request.domain_xml)
        moved = frozenset(disk.volume for disk in request.moved)
        return await asyncio.to_thread(_missing_disks, view, uid_of(decode_vmi(request)), moved)


def incoming_side(
    config: Config,
    services: Services,
    instances: Instances,
    journal: IncomingJournal,
    expected: Expected,
) -> TargetSide:
    """The receiving side of this node."""
    landings = Landings(config)
    ports = PortPool(config.migration.port_min, config.migration.port_max, landings.is_free)

    def endpoints(attempt: str, port: int, landing: Landing) -> Endpoints:
        return landings.endpoints(ports, attempt, port, landing)

    return TargetSide(
        node=config.node_name,
        hypervisor=services.hypervisor,
        hooks=IncomingHooks(services, instances, plan_settings(config), ports, landings, expected),
        checks=(
            *IncomingChecks(services, instances, landings).all(),
            *ArrivalChecks(config, services.hypervisor, instances, landings, time.time).all(),
        ),
        ports=ports,
        endpoints=endpoints,
        clock=services.clock,
        journal=journal,
        inbound=config.migration.inbound,
    )


def decode_vmi(request: PrepareRequest) -> VirtualMachineInstance:
    """The instance that the source sent (it was validated there and is validated again by the draft)."""
    try:
        return msgspec.json.decode(request.vmi, type=VirtualMachineInstance, dec_hook=dec_hook)
    except msgspec.DecodeError as error:
        raise MigrationRefused([f"the source's manifest cannot be read here: {error}"]) from error


def companions_of(request: PrepareRequest) -> Companions:
    """What came beside the instance."""
    if not request.companions:
        return Companions()
    return msgspec.json.decode(request.companions, type=Companions)


def uid_of(vmi: VirtualMachineInstance) -> str:
    """The uid that the source gave the instance; raises MigrationRefused when there is none."""
    uid = vmi.metadata.uid if vmi.metadata is not None else None
    if not uid:
        raise MigrationRefused(["the source's manifest has no uid"])
    return uid


def notice_of(request: PrepareRequest) -> Notice:
    """What the source remembers of the guest; nothing, if that is more than is known here."""
    try:
        return msgspec.json.decode(request.notice, type=Notice) if request.notice else Notice()
    except msgspec.DecodeError:
        return Notice()


def _landing(record: IncomingRecord) -> Landing:
    return record.reservation.landing if record.reservation is not None else Landing()


def _missing_disks(view: DomainView, uid: str, moved: frozenset[str]) -> tuple[str, ...]:
    own = f"/instances/{uid}/"
    return tuple(
        f"the disk {disk.alias or disk.target} needs {disk.source}, which is not on this node"
        for disk in view.disks
        if disk.source
        and disk.alias not in moved
        and own not in disk.source
        and not Path(disk.source).exists()
    )


def _kept_findings(draft: InstanceRecord) -> tuple[str, ...]:
    """What an earlier guest of the name left here is not that of the guest that comes."""
    return tuple(
        f"this node keeps {step.kept} of an earlier {draft.key}; launcherctl delete vmi {draft.name} "
        f"--namespace {draft.namespace} --remove-persistent-state removes it"
        for step in draft.plan.steps
        if isinstance(step, UseState) and step.kept and Path(step.kept).exists()
    )


def _destination(request: PrepareRequest, draft: InstanceRecord, here: InstancePaths) -> Destination:
    # What the source keeps below its own roots lies below ours here; both end in the same uid.
    moves = []
    for path in (here.state, here.run):
        tail = "/".join(path.split("/")[-2:])
        found = re.search(rf"/[^\"'<>\s]*/{re.escape(tail)}(?=[/\"'<])", request.domain_xml)
        if found is not None:
            moves.append((found[0], path))
    return Destination(
        taps=draft.allocations.taps,
        paths=tuple(moves),
        cputune=draft.plan.cputune if draft.plan.cputune.vcpus else None,
        numatune=draft.plan.numatune,
        cpuset=draft.plan.vcpus.cpuset,
        vsock_cid=draft.allocations.vsock_cid or None,
        hostdevs=draft.plan.devices.hostdevs,
    )
