# SPDX-License-Identifier: Apache-2.0
"""A changed manifest for an instance that runs: what may change, and the record after it. Pure.

The number of sockets and the guest's memory may, within the room the domain was started with; its interfaces,
see ``update_interfaces``, and its volumes, see ``update_volumes`` and ``utility_volumes``. What is asked for
goes into the record; ``hotplug``, ``nics`` and ``disks`` say how the domain gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from launcher.agent import update_volumes, utility_volumes, volume_moves
from launcher.agent.allocate import cells_of
from launcher.agent.changes import differences, meet
from launcher.agent.draft import Site
from launcher.agent.ledger import Ledger, holding
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.agent.update_interfaces import (
    interface_violations,
    judged,
    with_interfaces,
    with_planned_interfaces,
)
from launcher.errors import Conflict, Exhausted, InvalidRequest, InvalidSpec, Violation, WrongPhase
from launcher.plan.context import Topology, guest_memory, vcpu_topology
from launcher.plan.facts import NumaCell
from launcher.plan.model import VCPUPin, VMPlan
from launcher.plan.pinning import mirrors_cells, plugged_cpus
from launcher.spec.defaults import apply_defaults
from launcher.spec.defaults.hotplug import alignment
from launcher.spec.model import (
    CPU,
    Memory,
    ObjectMeta,
    Quantity,
    ResourceRequirements,
    VirtualMachineInstance,
)
from launcher.spec.path import ROOT
from launcher.spec.rules import check
from launcher.units import MIB

SOCKETS = "spec.domain.cpu.sockets"
GUEST = "spec.domain.memory.guest"
_RESOURCES = "spec.domain.resources"
_RESTART = "the instance must be deleted and created anew for that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the guest shall have: sockets, and memory in bytes (as it was written, too)."""

    sockets: int
    memory: int
    written: Quantity


def updated(
    record: InstanceRecord,
    asked: VirtualMachineInstance,
    *,
    site: Site,
    lowest_sockets: int | None = None,
    beside: Companions = Companions(),  # noqa: B008 - frozen
    strategy: str = "",
) -> InstanceRecord:
    """The record that follows from the manifest ``asked``; the same one when that changes nothing.

    ``site`` is the node without what the instance has itself. ``lowest_sockets`` may be fewer than are asked
    for now, when the guest does not get those: None, not so. ``beside`` came along with the manifest. With
    the ``strategy`` Migration volumes may have other claims; one that has its own again is not to move.

    Raises:
        InvalidSpec: with every path that cannot be changed, or not to that.
        Conflict: ``asked`` is another instance of that name, or volumes are to move while one is copied.
        WrongPhase: the guest does not run, goes away, or migrates.
        Exhausted: the node has no CPUs or no memory left for it.
        HostUnsupported: a claim, or the bridge of a network, has no place on this node.
        InvalidRequest: a claim is said to be elsewhere than it is, or a Secret did not come along.
    """
    _require_same(record, asked)
    moves = volume_moves.asked_moves(record, asked) if strategy == volume_moves.MIGRATION else record.moving
    named = asked
    if strategy == volume_moves.MIGRATION:
        asked = volume_moves.without_moves(record, asked, moves)
    asked = update_volumes.pluggable(record, asked)
    full = _completed(record, asked, site)
    old, wanted = record.defaulted, _wanted(full)
    interfaces, networks = full.spec.domain.devices.interfaces, full.spec.networks
    disks, volumes = full.spec.domain.devices.disks, full.spec.volumes
    after = with_interfaces(_changed(record, old, wanted), interfaces, networks)
    after = update_volumes.with_disks(after, disks, volumes)
    after = utility_volumes.with_utilities(after, full.spec.utility_volumes)
    found = [*_forbidden(record, asked, full, after), *_sockets(record, wanted, lowest_sockets)]
    found += _memory(record, wanted)
    found += interface_violations(old, full)
    found += update_volumes.volume_violations(record, full)
    found += utility_volumes.utility_violations(record, full)
    found += volume_moves.strategy_violations(strategy)
    told = update_volumes.with_companions(record, beside)
    if moves != record.moving:
        found += volume_moves.move_violations(told, named, moves)
    if found:
        raise InvalidSpec(found)
    misplaced = list(update_volumes.claim_violations(record, beside))
    if misplaced:
        raise InvalidRequest(misplaced)
    if moves != record.moving:
        volume_moves.require_idle(record)
        told = replace(told, moving=moves)
    if strategy == volume_moves.MIGRATION:
        told = replace(told, staying=())
    if after == old and told == record:
        return record
    utility_volumes.require_unused(record, after)
    _require_settled(record, migrating=told == record and utility_volumes.only_leave(old, after))
    manifest = _changed(record, record.manifest, wanted)
    if interfaces != old.spec.domain.devices.interfaces or networks != old.spec.networks:
        manifest = with_interfaces(manifest, asked.spec.domain.devices.interfaces, asked.spec.networks)
    if disks != old.spec.domain.devices.disks or volumes != old.spec.volumes:
        manifest = update_volumes.with_disks(manifest, asked.spec.domain.devices.disks, asked.spec.volumes)
    if full.spec.utility_volumes != old.spec.utility_volumes:
        manifest = utility_volumes.with_utilities(manifest, asked.spec.utility_volumes)
    violations = check(manifest, settings=site.defaults, creating=False)
    if violations:
        raise InvalidSpec(violations)
    utility_volumes.require_directories(replace(told, defaulted=after))
    planned = _planned(replace(told, manifest=manifest, defaulted=after), record, site)
    planned = with_planned_interfaces(planned, record, site)
    return update_volumes.with_planned_volumes(planned, record, site)


def _wanted(full: VirtualMachineInstance) -> Wanted:
    guest = full.spec.domain.memory.guest if full.spec.domain.memory is not None else None
    if guest is None:
        message = "needs an amount such as 1Gi"
        raise InvalidSpec([Violation(field=GUEST, type="FieldValueRequired", message=message)])
    return Wanted(sockets=vcpu_topology(full).sockets, memory=guest.bytes_floor(), written=guest)


def _require_same(record: InstanceRecord, asked: VirtualMachineInstance) -> None:
    uid = asked.metadata.uid if asked.metadata is not None else None
    if uid and uid != record.uid:
        raise Conflict(
            f"{record.key} is another instance by now: its uid is {record.uid}, not {uid}",
            hint="get it again, then change it",
        )


def _require_settled(record: InstanceRecord, *, migrating: bool) -> None:
    """Check that the guest runs here; ``migrating``: it may be on its way to leave."""
    if record.phase != "Running" or record.desired == "deleted":
        state = "being deleted" if record.desired == "deleted" else record.phase
        raise WrongPhase(f"{record.key} cannot be changed: it is {state}, it must be Running")
    if record.outgoing and not migrating:
        raise WrongPhase(
            f"{record.key} cannot be changed while it migrates", hint="wait for the migration, or cancel it"
        )


def _completed(record: InstanceRecord, asked: VirtualMachineInstance, site: Site) -> VirtualMachineInstance:
    """``asked`` with defaults; the room for hotplug is what the domain has, unless other is asked for."""
    full = apply_defaults(asked, site.defaults)
    was, cpu, memory = record.defaulted.spec.domain, full.spec.domain.cpu, full.spec.domain.memory
    raw_cpu, raw_memory = asked.spec.domain.cpu, asked.spec.domain.memory
    if cpu is not None and (raw_cpu is None or raw_cpu.max_sockets is None):
        cpu = replace(cpu, max_sockets=was.cpu.max_sockets if was.cpu is not None else None)
    if memory is not None and (raw_memory is None or raw_memory.max_guest is None):
        memory = replace(memory, max_guest=was.memory.max_guest if was.memory is not None else None)
    return _with_domain(full, cpu=cpu, memory=memory)


def _forbidden(
    record: InstanceRecord,
    asked: VirtualMachineInstance,
    full: VirtualMachineInstance,
    after: VirtualMachineInstance,
) -> Iterator[Violation]:
    """Everything else that is another than it was: where the manifests differ, and still do with defaults."""
    written = [str(path) for path, _ in differences(record.manifest.spec, asked.spec, ROOT / "spec")]
    follow = _resources_of(after)
    for place, value in differences(record.defaulted.spec, full.spec, ROOT / "spec"):
        path = str(place)
        if (
            path in (SOCKETS, GUEST)
            or judged(path)
            or update_volumes.judged(path)
            or utility_volumes.judged(path)
            or not any(meet(path, other) for other in written)
        ):
            continue
        if path.startswith(_RESOURCES) and value == follow.get(path):
            continue  # requests and limits that go along
        yield _violation(path, value, f"cannot be changed while the guest runs; {_RESTART}")
    was, now = record.manifest.metadata or ObjectMeta(), asked.metadata or ObjectMeta()
    for name in ("labels", "annotations"):
        place = ROOT / "metadata" / name
        for path_, value in differences(getattr(was, name), getattr(now, name), place):
            yield _violation(str(path_), value, f"cannot be changed while the guest runs; {_RESTART}")


def _sockets(record: InstanceRecord, wanted: Wanted, lowest: int | None) -> Iterator[Violation]:
    had = vcpu_topology(record.defaulted)
    if wanted.sockets == had.sockets:
        return
    plan, cpu = record.plan, record.defaulted.spec.domain.cpu or CPU()
    floor = had.sockets if lowest is None else min(lowest, had.sockets)
    if wanted.sockets < floor:
        message = f"must not be less than {floor}: vCPUs are not taken from a guest that runs; {_RESTART}"
        yield _violation(SOCKETS, wanted.sockets, message)
    elif not plan.vcpus.hotplug:
        yield _violation(
            SOCKETS,
            wanted.sockets,
            f"the guest was started without room for more sockets (cpu.maxSockets); {_RESTART}",
        )
    elif wanted.sockets * had.per_socket > plan.vcpus.maximum:
        most = plan.vcpus.maximum // had.per_socket
        yield _violation(
            SOCKETS, wanted.sockets, f"must not exceed the {most} that it was started with room for"
        )
    elif cpu.realtime is not None:
        yield _violation(SOCKETS, wanted.sockets, f"a realtime guest keeps the vCPUs it has; {_RESTART}")


def _memory(record: InstanceRecord, wanted: Wanted) -> Iterator[Violation]:
    if wanted.memory == guest_memory(record.defaulted):
        return
    plan, domain = record.plan.memory, record.defaulted.spec.domain
    step = alignment(domain.memory or Memory())
    booted = Quantity(plan.size)
    if plan.maximum is None:
        yield _violation(
            GUEST,
            wanted.written,
            f"the guest was started without room for more memory (memory.maxGuest); {_RESTART}",
        )
    elif wanted.memory < plan.size:
        message = f"must not be less than the {booted} bytes that it booted with; {_RESTART}"
        yield _violation(GUEST, wanted.written, message)
    elif wanted.memory > plan.maximum:
        yield _violation(
            GUEST, wanted.written, f"must not exceed maxGuest, {Quantity(plan.maximum)} bytes; {_RESTART}"
        )
    elif (wanted.memory - plan.size) % step:
        yield _violation(GUEST, wanted.written, f"memory is plugged in multiples of {step // MIB}Mi")
    elif domain.devices.disable_hotplug:
        yield _violation(GUEST, wanted.written, f"disableHotplug leaves no slot for a device; {_RESTART}")


def _changed(record: InstanceRecord, vmi: VirtualMachineInstance, wanted: Wanted) -> VirtualMachineInstance:
    """``vmi`` with what is wanted; requests and limits that size the guest go along with it."""
    had, domain = vcpu_topology(record.defaulted), vmi.spec.domain
    more_memory = wanted.memory - guest_memory(record.defaulted)
    more_vcpus = (wanted.sockets - had.sockets) * had.per_socket
    cpu, memory, resources = domain.cpu, domain.memory, domain.resources
    if more_vcpus:
        full = record.defaulted.spec.domain.cpu or CPU()
        cpu = replace(cpu or CPU(), sockets=wanted.sockets, cores=full.cores, threads=full.threads)
    if more_memory:
        memory = replace(memory or Memory(), guest=wanted.written)
    if resources is not None:
        more = {"cpu": more_vcpus, "memory": more_memory}
        resources = replace(
            resources, requests=_raised(resources.requests, more), limits=_raised(resources.limits, more)
        )
    return _with_domain(vmi, cpu=cpu, memory=memory, resources=resources)


def _raised(amounts: dict[str, Quantity], more: dict[str, int]) -> dict[str, Quantity]:
    return {
        name: _sum(amount, more[name]) if more.get(name) and amount > 0 else amount
        for name, amount in amounts.items()
    }


def _sum(amount: Quantity, more: int) -> Quantity:
    """``amount`` and ``more``, to a thousandth."""
    total = Quantity(f"{amount.milli_ceil() + 1000 * more}m")
    return Quantity(total.bytes_floor()) if total.is_integer else total


def _resources_of(vmi: VirtualMachineInstance) -> dict[str, Quantity]:
    resources = vmi.spec.domain.resources or ResourceRequirements()
    groups = (("requests", resources.requests), ("limits", resources.limits))
    return {
        f"{_RESOURCES}.{group}.{name}": amount
        for group, amounts in groups
        for name, amount in amounts.items()
        if name in ("cpu", "memory")
    }


def _planned(after: InstanceRecord, before: InstanceRecord, site: Site) -> InstanceRecord:
    """The record with the plan that fits it. What the guest has stays as it is: pins, cells, boot memory."""
    topology, ledger = vcpu_topology(after.defaulted), site.ledger
    vcpus = replace(after.plan.vcpus, current=topology.current)
    tune, allocations = after.plan.cputune, after.allocations
    if tune.vcpus:
        kept = tuple(pin for pin in tune.vcpus if pin.vcpu < topology.current)
        drawn = _more_cpus(after, topology, topology.current - len(kept), site, ledger)
        new = tuple(VCPUPin(vcpu=len(kept) + i, cpu=cpu) for i, cpu in enumerate(drawn))
        tune = replace(tune, vcpus=(*kept, *new))
        gone = {pin.cpu for pin in after.plan.cputune.vcpus} - {pin.cpu for pin in kept}
        own = {*allocations.cpuset, *drawn} - gone
        allocations = replace(allocations, cpuset=tuple(sorted(own)))
    plan: VMPlan = replace(after.plan, vcpus=vcpus, cputune=tune)
    after = replace(after, plan=plan, allocations=allocations)
    ledger.require(holding(after), own=holding(before))
    return after


def _more_cpus(
    record: InstanceRecord, topology: Topology, count: int, site: Site, ledger: Ledger
) -> tuple[int, ...]:
    """pCPUs for ``count`` more vCPUs: in the cells that the guest is in, if they have enough.

    libvirt gives vCPUs that come later to the first cell of a guest that has cells: those must be of the
    host's cell that it mirrors.
    """
    if count <= 0:
        return ()
    own = holding(record).cpus
    free = tuple(cpu for cpu in ledger.free_cpus() if cpu not in own)
    cells = cells_of(site.facts, free)
    home = tuple(cell for cell in cells if _holds(cell, own))
    tune = record.plan.numatune
    if mirrors_cells(record.defaulted) and tune is not None and tune.memnodes:
        node = tune.memnodes[0].node
        return plugged_cpus(_only(cells, node), free, topology.threads, count // topology.threads)
    try:
        return plugged_cpus(home, free, topology.threads, count // topology.threads)
    except Exhausted:
        return plugged_cpus(cells, free, topology.threads, count // topology.threads)


def _holds(cell: NumaCell, cpus: frozenset[int]) -> bool:
    return any(cpu.id in cpus for cpu in cell.cpus)


def _only(cells: tuple[NumaCell, ...], node: int) -> tuple[NumaCell, ...]:
    return tuple(cell for cell in cells if cell.id == node)


def _with_domain(vmi: VirtualMachineInstance, **changes: Any) -> VirtualMachineInstance:
    return replace(vmi, spec=replace(vmi.spec, domain=replace(vmi.spec.domain, **changes)))


def _violation(path: str, value: object, message: str) -> Violation:
    shown = "" if value is None or isinstance(value, tuple | dict) else str(value)
    return Violation(field=path, type="Forbidden", value=shown[:80], message=message)
