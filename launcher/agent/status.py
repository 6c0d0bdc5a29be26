# SPDX-License-Identifier: Apache-2.0
"""The instance as the API shows it: the manifest with its defaults, and a status of what is known. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.agent.conditions import conditions, since
from launcher.agent.hotplug import Hardware, current_memory, requested_memory
from launcher.agent.ledger import overhead
from launcher.agent.migratability import disks_to_copy, migration_findings
from launcher.agent.records import InstanceRecord
from launcher.domain.read import DomainView, InterfaceView
from launcher.hypervisor.port import DomainRecord
from launcher.plan.context import vcpu_topology
from launcher.plan.devices.model import DiskPlan, InterfacePlan
from launcher.spec.model import (
    CPUTopology,
    Machine,
    MemoryStatus,
    VirtualMachineInstance,
    VirtualMachineInstanceNetworkInterface,
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
) -> VirtualMachineInstance:
    """Build the object; ``before`` is what was shown last and lends its transition times.

    ``known`` False: libvirt was not asked yet, so ``observed`` says nothing.
    """
    old = before.status.conditions if before is not None and before.status is not None else ()
    status = VirtualMachineInstanceStatus(
        phase=record.phase,
        reason=record.reason or None,
        node_name=record.moved_to or node,
        conditions=since(
            conditions(
                record, observed, migration_findings(record), known=known, hardware=hardware, faults=faults
            ),
            old,
            now=now,
        ),
        phase_transition_timestamps=tuple(
            VirtualMachineInstancePhaseTransitionTimestamp(phase=t.phase, phase_transition_timestamp=t.at)
            for t in record.transitions
        ),
        interfaces=_interfaces(record, hardware.live),
        volume_status=tuple(_volume(disk) for disk in record.plan.devices.disks if disk.source is not None),
        migration_state=record.migration_state,
        migration_method="BlockMigration" if disks_to_copy(record) else "LiveMigration",
        machine=Machine(type=record.plan.boot.machine),
        current_cpu_topology=_topology(record, hardware.live),
        memory=_memory(record, hardware.live),
        vsock_cid=record.allocations.vsock_cid or None,
        qos_class=qos_class(record.manifest),
        fs_freeze_status="frozen" if record.frozen is not None else None,
    )
    return msgspec.structs.replace(record.defaulted, metadata=record.manifest.metadata, status=status)


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


def _interfaces(
    record: InstanceRecord, live: DomainView | None
) -> tuple[VirtualMachineInstanceNetworkInterface, ...]:
    """A masqueraded interface shows the addresses at which the node reaches it, not those of its inside.

    Links are as the domain has them. An interface that is still to be plugged has no source.
    """
    there = {nic.alias: nic for nic in live.interfaces} if live is not None else {}
    translated = {
        nic.name for nic in record.defaulted.spec.domain.devices.interfaces if nic.masquerade is not None
    }
    outer = dict.fromkeys(translated, record.allocations.outer)
    return tuple(
        VirtualMachineInstanceNetworkInterface(
            name=interface.name,
            mac=interface.mac,
            ip_address=next(iter(outer.get(interface.name, ())), None),
            ip_addresses=outer.get(interface.name, ()),
            info_source="domain" if live is None or interface.name in there else None,
            queue_count=interface.queues or 1,
            link_state=_link(interface, there.get(interface.name)),
            pod_interface_name=interface.tap,
        )
        for interface in record.plan.devices.interfaces
    )


def _link(planned: InterfacePlan, seen: InterfaceView | None) -> str:
    return seen.link if seen is not None else "down" if planned.link_down else "up"


def _volume(disk: DiskPlan) -> VolumeStatus:
    return VolumeStatus(name=disk.name, target=disk.target)


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
