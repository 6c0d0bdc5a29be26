# SPDX-License-Identifier: Apache-2.0
"""Choose what planning must not invent: MACs, tap names, pCPUs, addresses, the places of claims. Pure.

MACs and tap names follow from the instance's uid and the interface's name: the same on every node the
instance ever lives on, with nothing to remember or hand over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from launcher.agent.ledger import Ledger, page_size
from launcher.agent.port import ClaimBinding, Companions
from launcher.errors import Exhausted, HostUnsupported
from launcher.plan.allocations import Allocations, ClaimPlace
from launcher.plan.attached import outer_addresses
from launcher.plan.context import guest_memory
from launcher.plan.facts import HostCPU, NodeFacts, NumaCell
from launcher.plan.masquerade import require_apart
from launcher.plan.numa import split_memory
from launcher.plan.pinning import exclusive_cpus, mirrors_cells
from launcher.plan.settings import NetworkSettings
from launcher.plan.steps import NodePort
from launcher.spec.model import Interface, VirtualMachineInstance
from launcher.spec.node_ports import NODE_PORTS, wanted_ports

TAP_PREFIX = "lt"
"""Interface names hold 15 characters: the prefix and 12 of the hash."""


def allocate(
    vmi: VirtualMachineInstance,
    companions: Companions,
    *,
    uid: str,
    facts: NodeFacts,
    ledger: Ledger,
    network: NetworkSettings = NetworkSettings(),  # noqa: B008 - frozen
    machine: str = "",
) -> Allocations:
    """Allocations for the defaulted ``vmi`` out of what ``ledger`` says is left.

    ``network`` says where outer addresses come from (those of a family that the node lacks are left alone),
    and ports of the node. ``machine`` is the board that the guest gets, or has.

    Raises:
        HostUnsupported: an interface masquerades, and there is no pool, or the guest's range overlaps it;
            or no ports of the node are given.
        Exhausted: a pool has no address left, or a port of the node is another's.
    """
    firmware = vmi.spec.domain.firmware
    uuid = (firmware.uuid if firmware is not None else None) or uid
    devices = vmi.spec.domain.devices
    chosen = ledger.free_devices(vmi)
    names = [interface.name for interface in devices.interfaces]
    had = vmi.status.vsock_cid if vmi.status is not None else None
    return Allocations(
        uid=uid,
        uuid=uuid,
        macs={interface.name: _mac(interface, companions, uid) for interface in devices.interfaces},
        taps={name: tap_name(uid, name) for name in names},
        cpuset=_cpuset(vmi, facts, ledger),
        claims={claim.claim: claim_place(claim) for claim in companions.claims},
        digests=companions.digests,
        node_ports=_node_ports(vmi, uid, ledger, network.node_ports),
        outer=_outer(vmi, companions, uid, facts, ledger, network.pools),
        devices=chosen,
        migratable=ledger.migratable(chosen),
        attachments=companions.attachments,
        virtual_functions={name: one.device for name, one in companions.attachments.items() if one.device},
        machine=machine,
        vsock_cid=ledger.free_cid(uid, wanted=had or 0) if devices.autoattach_vsock else 0,
    )


def claim_place(claim: ClaimBinding) -> ClaimPlace:
    """Where a claim lies, as planning wants it."""
    return ClaimPlace(
        path=claim.path,
        block=claim.block,
        capacity=claim.capacity,
        shared=claim.shared,
        preallocated=claim.preallocated,
    )


def mac_address(uid: str, interface: str) -> str:
    """A locally administered unicast MAC for an interface without one."""
    digest = hashlib.sha256(f"mac/{uid}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def tap_name(uid: str, interface: str) -> str:
    """A device name that no other interface of the node has."""
    return TAP_PREFIX + hashlib.sha256(f"tap/{uid}/{interface}".encode()).hexdigest()[:12]


def _mac(interface: Interface, companions: Companions, uid: str) -> str:
    """A guest that takes the place of a link has its address, which the link's network may insist on."""
    given = companions.attachments.get(interface.name)
    if given is not None and given.mac and interface.masquerade is None:
        return given.mac
    return mac_address(uid, interface.name)


def _outer(
    vmi: VirtualMachineInstance,
    companions: Companions,
    uid: str,
    facts: NodeFacts,
    ledger: Ledger,
    pools: tuple[str, ...],
) -> tuple[str, ...]:
    nic = next((nic for nic in vmi.spec.domain.devices.interfaces if nic.masquerade is not None), None)
    if nic is None:
        return ()
    given = companions.attachments.get(nic.name)
    network = next((network for network in vmi.spec.networks if network.name == nic.name), None)
    if given is not None:
        outer = outer_addresses(given)
        require_apart(network, (one for one in given.addresses if one.partition("/")[0] in outer))
        return outer
    usable = [pool for pool in pools if facts.ipv6 or ":" not in pool]
    if not usable:
        raise HostUnsupported(
            "addresses for masquerade",
            "neither network.pool nor network.pool6 can be used",
            hint="set network.pool in the agent's configuration",
        )
    require_apart(network, usable)
    return tuple(ledger.free_address(uid, pool) for pool in usable)


def _node_ports(
    vmi: VirtualMachineInstance, uid: str, ledger: Ledger, span: tuple[int, int] | None
) -> tuple[NodePort, ...]:
    """Those that the manifest insists on first: the others take what is left."""
    wanted = wanted_ports(vmi)
    if not wanted:
        return ()
    if span is None:
        raise HostUnsupported(
            "ports of the node for guests",
            f"{NODE_PORTS} asks for some, and network.node_ports of the node names none",
            hint="set network.node_ports in the agent's configuration, or remove the annotation",
        )
    taken: set[tuple[str, int]] = set()
    found = {}
    for port in sorted(wanted, key=lambda port: port.node == 0):
        node = ledger.free_node_port(uid, port, span, taken)
        taken.add((port.protocol, node))
        found[port] = NodePort(protocol=port.protocol, node=node, guest=port.guest)
    return tuple(found[port] for port in wanted)


def cells_of(facts: NodeFacts, cpus: tuple[int, ...]) -> tuple[NumaCell, ...]:
    """The node's cells; when nothing is known of them, one cell of ``cpus``."""
    return facts.cells or (NumaCell(id=0, cpus=tuple(HostCPU(id=cpu, siblings=(cpu,)) for cpu in cpus)),)


def _cpuset(vmi: VirtualMachineInstance, facts: NodeFacts, ledger: Ledger) -> tuple[int, ...]:
    """The pCPUs of the instance's own: in one NUMA cell if there is one that has enough.

    Everything that is free when that does not suffice: planning then says what is missing.
    """
    cpu = vmi.spec.domain.cpu
    if cpu is None or not cpu.dedicated_cpu_placement:
        return ()
    free = ledger.free_cpus()
    for cells in _choices(cells_of(facts, free)):
        try:
            chosen = _chosen(vmi, cells, free, ledger)
        except Exhausted:
            continue
        if chosen:
            return chosen
    return free


def _choices(cells: tuple[NumaCell, ...]) -> Iterator[tuple[NumaCell, ...]]:
    yield from ((cell,) for cell in cells)
    if len(cells) > 1:
        yield cells


def _chosen(
    vmi: VirtualMachineInstance, cells: tuple[NumaCell, ...], free: tuple[int, ...], ledger: Ledger
) -> tuple[int, ...]:
    """CPUs of ``cells``; a guest that mirrors the cells gets none of a cell without the huge pages for it.

    Raises:
        Exhausted: the CPUs, or the cells that have pages, do not suffice.
    """
    while True:
        drawn, others = exclusive_cpus(vmi, cells, free)
        short = _short_of_pages(vmi, cells, drawn, ledger) if mirrors_cells(vmi) else frozenset()
        if not short:
            return tuple(sorted((*drawn, *others)))
        cells = tuple(cell for cell in cells if cell.id not in short)


def _short_of_pages(
    vmi: VirtualMachineInstance, cells: tuple[NumaCell, ...], drawn: tuple[int, ...], ledger: Ledger
) -> frozenset[int]:
    """Cells of the CPUs ``drawn`` that cannot hold their part of the guest's memory."""
    size = page_size(vmi)
    if size is None:
        return frozenset()
    involved = [cell.id for cell in cells if any(cpu.id in drawn for cpu in cell.cpus)]
    short = set()
    for cell, part in zip(involved, split_memory(guest_memory(vmi), size, len(involved)), strict=True):
        left = ledger.pages_left(size, cell)
        if left is not None and left < part // size:
            short.add(cell)
    return frozenset(short)
