# SPDX-License-Identifier: Apache-2.0
"""The instance as the API shows it: the manifest with its defaults, and a status of what is known. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.agent.backup_rules import tracking_status
from launcher.agent.conditions import conditions, since
from launcher.agent.hotplug import Hardware, current_memory, requested_memory
from launcher.agent.ledger import overhead
from launcher.agent.memory_dump_rules import dump_statuses
from launcher.agent.migratability import disks_to_copy, migration_findings
from launcher.agent.records import InstanceRecord
from launcher.agent.sighting import NOTHING, Sighting, interfaces
from launcher.agent.utility_volumes import utility_statuses
from launcher.agent.volume_moves import migrated_volumes
from launcher.agent.volume_status import volume_status
from launcher.domain.read import DomainView
from launcher.hypervisor.port import DomainRecord
from launcher.plan.context import vcpu_topology
from launcher.spec.model import (
    CPUTopology,
    Machine,
    MemoryStatus,
    VirtualMachineInstance,
    VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)
from launcher.spec.quantity import Quantity


def show(
    record: InstanceRecord,
    observed: DomainRecord | None,
    *,
    node: str,
    now: str,
    before: VirtualMachineInstance | None,
    known: bool = True,
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
    faults: tuple[str, ...] = (),
    cut_off: tuple[str, ...] = (),
    seen: Sighting = NOTHING,
) -> VirtualMachineInstance:
    """Build the object; ``before`` is what was shown last and lends its transition times.

    ``known`` False: libvirt was not asked yet, so ``observed`` says nothing. ``seen`` is what was seen of
    its interfaces.
    """
    old = before.status.conditions if before is not None and before.status is not None else ()
    status = VirtualMachineInstanceStatus(
        phase=record.phase,
        reason=record.reason or None,
        node_name=record.moved_to or node,
        conditions=since(
            conditions(
                record,
                observed,
                migration_findings(record),
                known=known,
                hardware=hardware,
                faults=faults,
                cut_off=cut_off,
            ),
            old,
            now=now,
        ),
        phase_transition_timestamps=tuple(
            VirtualMachineInstancePhaseTransitionTimestamp(phase=t.phase, phase_transition_timestamp=t.at)
            for t in record.transitions
        ),
        interfaces=interfaces(record, hardware.live, seen),
        volume_status=_volumes(record, hardware),
        migration_state=record.migration_state,
        migrated_volumes=migrated_volumes(record),
        evacuation_node_name=node if record.evacuating and not record.moved_to else None,
        migration_method="BlockMigration" if disks_to_copy(record) else "LiveMigration",
        machine=Machine(type=record.plan.boot.machine),
        current_cpu_topology=_topology(record, hardware.live),
        memory=_memory(record, hardware.live),
        vsock_cid=record.allocations.vsock_cid or None,
        qos_class=qos_class(record.manifest),
        changed_block_tracking=tracking_status(record),
        fs_freeze_status="frozen" if record.frozen is not None else None,
    )
    return msgspec.structs.replace(record.defaulted, metadata=record.manifest.metadata, status=status)


def _volumes(record: InstanceRecord, hardware: Hardware) -> tuple[VolumeStatus, ...]:
    """Disks, dumps, and utility volumes that no dump is shown for."""
    dumps = dump_statuses(record)
    dumped = frozenset(status.name for status in dumps)
    return (
        *volume_status(record, hardware),
        *dumps,
        *utility_statuses(record, hardware.folders, but=dumped),
    )


def qos_class(vmi: VirtualMachineInstance) -> Literal["BestEffort", "Burstable", "Guaranteed"]:
    """The Kubernetes quality of service: Guaranteed, Burstable or BestEffort."""
    resources = vmi.spec.domain.resources
    requests = resources.requests if resources is not None else {}
    limits = resources.limits if resources is not None else {}
    if all(
        name in limits and (name not in requests or requests[name] == limits[name])
        for name in ("cpu", "memory")
    ):
        return "Guaranteed"
    return "Burstable" if requests or limits or vmi.spec.domain.memory is not None else "BestEffort"


def _topology(record: InstanceRecord, live: DomainView | None) -> CPUTopology:
    """As it is: sockets that were asked for count when they are plugged."""
    topology = vcpu_topology(record.defaulted)
    sockets = topology.sockets if live is None else live.vcpus // topology.per_socket
    return CPUTopology(sockets=sockets, cores=topology.cores, threads=topology.threads)


def _memory(record: InstanceRecord, live: DomainView | None) -> MemoryStatus:
    boot = record.plan.memory.size
    return MemoryStatus(
        guest_at_boot=Quantity(boot),
        guest_current=Quantity(boot if live is None else current_memory(live)),
        guest_requested=Quantity(boot if live is None else requested_memory(live)),
        memory_overhead=Quantity(overhead(record.plan, record.defaulted)),
    )
