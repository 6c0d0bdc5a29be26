# SPDX-License-Identifier: Apache-2.0
"""Who has what of the node: pCPUs, huge pages, memory, addresses. Pure; nothing is kept here.

A ledger is drawn up from the records of the node's instances, each time that somebody asks: what a record's
plan says is taken, and free again when the record is gone. So it is right after a restart, counts guests that
are on their way here, and cannot leak. Two requests cannot get the same: the agent accepts one at a time.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from launcher.agent.host_devices import choose_devices, held_devices
from launcher.agent.records import InstanceRecord
from launcher.errors import Conflict, Exhausted
from launcher.plan.allocations import Allocations, DevicePool
from launcher.plan.context import guest_memory
from launcher.plan.facts import NodeFacts, NumaCell, PagePool
from launcher.plan.model import VMPlan
from launcher.plan.overhead import added_overhead, memory_overhead
from launcher.spec.model import Quantity, VirtualMachineInstance
from launcher.spec.node_ports import WantedPort
from launcher.units import MIB, ceil_div, human_bytes

FIRST_CID = 3
LAST_CID = 2**32 - 2
"""vsock addresses of guests: 0 to 2 are the hypervisor, the loopback and the host, 2**32 - 1 is anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the operator leaves to instances: pCPUs that may be dedicated (None: all that are not reserved),
    bytes that are the host's, how much of the rest may be promised, and ``devices`` by resource."""

    reserved_cpus: frozenset[int] = frozenset()
    dedicated_cpus: tuple[int, ...] | None = None
    reserved_memory: int = 256 * MIB
    overcommit_percent: int = 100
    devices: Mapping[str, DevicePool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """``count`` huge pages of ``size`` bytes, from the NUMA cell ``cell`` or (None) from any."""

    size: int
    count: int
    cell: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one instance has, or will take; ``settled``: it has taken what it needs. ``memory`` in bytes,
    ``cid`` is its vsock address, ``outer`` are its addresses on this node, ``node_ports`` are ports of it by
    protocol and number, ``macs`` its addresses on networks that others may be on, by interface."""

    key: str
    cpus: frozenset[int] = frozenset()
    cid: int = 0
    outer: tuple[str, ...] = ()
    node_ports: frozenset[tuple[str, int]] = frozenset()
    macs: tuple[tuple[str, str], ...] = ()
    pages: tuple[Pages, ...] = ()
    memory: int = 0
    devices: frozenset[str] = frozenset()
    settled: bool = False


def holding(record: InstanceRecord) -> Holding:
    """What the instance of ``record`` has."""
    return Holding(
        key=record.key,
        cpus=_pinned(record.plan),
        cid=record.allocations.vsock_cid,
        outer=record.allocations.outer,
        node_ports=frozenset((port.protocol, port.node) for port in record.allocations.node_ports),
        macs=shared_macs(record.defaulted, record.allocations),
        pages=pages(record.plan, record.defaulted),
        memory=reserved_memory(record.plan, record.defaulted),
        devices=held_devices(record.allocations),
        settled=record.phase not in ("Pending", "Scheduling"),
    )


def shared_macs(vmi: VirtualMachineInstance, allocations: Allocations) -> tuple[tuple[str, str], ...]:
    """Interfaces with their MAC addresses, but for those whose network is theirs alone: behind masquerade and
    passt everybody may have the same."""
    return tuple(
        (nic.name, (nic.mac_address or allocations.macs.get(nic.name, "")).lower().replace("-", ":"))
        for nic in vmi.spec.domain.devices.interfaces
        if nic.masquerade is None and nic.passt_binding is None
    )


def pages(plan: VMPlan, vmi: VirtualMachineInstance) -> tuple[Pages, ...]:
    """Huge pages of a planned and defaulted ``vmi``: cell by cell where its memory is bound to cells."""
    size = page_size(vmi)
    if size is None:
        return ()
    nodes = {memnode.cell: memnode.node for memnode in plan.numatune.memnodes} if plan.numatune else {}
    if not nodes:
        return (Pages(size=size, count=ceil_div(guest_memory(vmi), size)),)
    return tuple(
        Pages(size=size, count=ceil_div(cell.memory, size), cell=nodes[cell.id])
        for cell in plan.cpu.cells
        if cell.id in nodes
    )


def page_size(vmi: VirtualMachineInstance) -> int | None:
    """Size of the guest's huge pages in bytes; None: it has ordinary ones."""
    memory = vmi.spec.domain.memory
    if memory is None or memory.hugepages is None or not memory.hugepages.page_size:
        return None
    return Quantity(memory.hugepages.page_size).bytes_floor()


def reserved_memory(plan: VMPlan, vmi: VirtualMachineInstance) -> int:
    """Ordinary memory in bytes: what is requested (else the limit, else the guest's), and what the guest
    costs beside, unless ``overcommitGuestOverhead``; huge pages are not a part of it."""
    resources, guest = vmi.spec.domain.resources, guest_memory(vmi)
    asked = None
    if resources is not None:
        asked = resources.requests.get("memory") or resources.limits.get("memory")
    request = asked.bytes_floor() if asked is not None else guest
    if page_size(vmi) is not None:
        request = max(0, request - guest)
    if resources is not None and resources.overcommit_guest_overhead:
        return request
    return request + overhead(plan, vmi)


def overhead(plan: VMPlan, vmi: VirtualMachineInstance) -> int:
    """What the guest costs beside its memory, in bytes."""
    return memory_overhead(plan, guest=guest_memory(vmi), added=added_overhead(vmi)).total


class Ledger:
    """What is left of the node ``facts`` within ``limits`` when ``holdings`` have theirs."""

    def __init__(self, facts: NodeFacts, limits: Limits, holdings: Iterable[Holding] = ()) -> None:
        self._facts = facts
        self._limits = limits
        self._holdings = tuple(holdings)

    def free_cpus(self) -> tuple[int, ...]:
        """pCPUs that may be dedicated and are nobody's, ascending."""
        limits = self._limits
        known = {cpu.id for cell in self._facts.cells for cpu in cell.cpus}
        allowed = (
            known
            if limits.dedicated_cpus is None
            else set(limits.dedicated_cpus) & (known or set(limits.dedicated_cpus))
        )
        taken = {cpu for held in self._holdings for cpu in held.cpus}
        return tuple(sorted(allowed - limits.reserved_cpus - taken))

    def free_cid(self, uid: str, *, wanted: int = 0) -> int:
        """A vsock address that no instance of the node has: ``wanted`` if possible.

        Else it follows from the ``uid``, so that an instance has the same on every node, barring clashes.
        """
        taken = {held.cid for held in self._holdings}
        if FIRST_CID <= wanted <= LAST_CID and wanted not in taken:
            return wanted
        digest = hashlib.sha256(f"vsock/{uid}".encode()).digest()
        span = LAST_CID - FIRST_CID + 1
        start = int.from_bytes(digest[:8]) % span
        cids = (FIRST_CID + (start + step) % span for step in range(len(taken) + 1))
        return next(cid for cid in cids if cid not in taken)

    def free_address(self, uid: str, pool: str) -> str:
        """An address of ``pool`` (ADDRESS/PREFIX) that no instance of the node has, by preference the same
        each time; never the first host, which is the node's, nor the network's or the broadcast address.

        Raises:
            Exhausted: all are taken.
        """
        network = ipaddress.ip_network(pool)
        taken = {ipaddress.ip_address(address) for held in self._holdings for address in held.outer}
        count = min(network.num_addresses - 3, 2**62)
        start = int.from_bytes(hashlib.sha256(f"outer/{uid}".encode()).digest()[:8]) % count
        for step in range(min(len(taken) + 1, count)):
            address = network.network_address + 2 + (start + step) % count
            if address not in taken:
                return str(address)
        raise Exhausted(
            "addresses",
            f"all {count} addresses of {pool} are taken",
            hint="delete an instance, or give the node a larger network.pool",
        )

    def free_node_port(
        self, uid: str, port: WantedPort, span: tuple[int, int], beside: Collection[tuple[str, int]]
    ) -> int:
        """A port of the node, of ``span`` (first and last), that is nobody's and not in ``beside``: the one
        that ``port`` names, else by preference the same each time and on every node.

        Raises:
            Exhausted: it is another's or not of the span, or all are taken.
        """
        first, last = span
        taken = {one for held in self._holdings for one in held.node_ports} | set(beside)
        if port.node:
            if first <= port.node <= last and (port.protocol, port.node) not in taken:
                return port.node
            why = "is another instance's" if first <= port.node <= last else f"is not in {first}-{last}"
            raise Exhausted(
                "ports of the node",
                f"port {port.node}/{port.protocol} of the node {why}",
                hint="ask for another one, or for any: PORT without NODEPORT",
            )
        count = last - first + 1
        digest = hashlib.sha256(f"port/{uid}/{port.guest}/{port.protocol}".encode()).digest()
        start = int.from_bytes(digest[:8]) % count
        for step in range(count):
            node = first + (start + step) % count
            if (port.protocol, node) not in taken:
                return node
        raise Exhausted(
            "ports of the node",
            f"all {count} {port.protocol} ports of {first}-{last} are taken",
            hint="delete an instance, or widen network.node_ports of the node",
        )

    def free_devices(self, vmi: VirtualMachineInstance) -> dict[str, tuple[str, ...]]:
        """Devices of the host for what ``vmi`` asks for, by resource; fewer when no more are free."""
        taken = (address for held in self._holdings for address in held.devices)
        return choose_devices(vmi, self._limits.devices, taken)

    def migratable(self, resources: Iterable[str]) -> tuple[str, ...]:
        """Those of ``resources`` whose devices can move their state."""
        pools = self._limits.devices
        return tuple(name for name in resources if name in pools and pools[name].migratable)

    def require_own_macs(self, wanted: tuple[tuple[str, str], ...]) -> None:
        """Refuse a MAC address that another instance of the node has; raises Conflict."""
        taken = {mac: held.key for held in self._holdings for _, mac in held.macs if mac}
        for interface, mac in wanted:
            if mac in taken:
                raise Conflict(
                    f"interface {interface!r}: {taken[mac]} has the MAC address {mac} already",
                    hint="leave macAddress out to get one of its own, or delete the other instance",
                )

    def pages_left(self, size: int, cell: int | None, *, own: int = 0) -> int | None:
        """Huge pages of ``size`` that are left in the NUMA cell ``cell``, or (None) in all together.

        ``own`` is what the asker has of them already. None: the node's pools are not known.
        """
        pools = [pool for there in self._cells(cell) for pool in there.pools if pool.size == size]
        if not any(pool.free is not None for there in self._facts.cells for pool in there.pools):
            return None
        held = [(held, page) for held in self._holdings for page in held.pages if page.size == size]
        if cell is not None:
            held = [(holder, page) for holder, page in held if page.cell == cell]
        # Of all pages for ours; of the free ones, which others use too, for those that took none yet.
        in_all = sum(pool.count for pool in pools) - sum(page.count for _, page in held)
        waiting = sum(page.count for holder, page in held if not holder.settled)
        return max(0, min(in_all, sum(map(_free, pools)) + own - waiting))

    def memory_left(self) -> int | None:
        """Bytes of ordinary memory that may be reserved; None: it is not known how much there is."""
        if self._facts.memory is None:
            return None
        pooled = sum(
            pool.size * pool.count
            for cell in self._facts.cells
            for pool in cell.pools
            if pool.free is not None
        )
        there = max(0, self._facts.memory - pooled - self._limits.reserved_memory)
        return there * self._limits.overcommit_percent // 100 - sum(held.memory for held in self._holdings)

    def require(self, wanted: Holding, *, own: Holding | None = None) -> None:
        """Check that ``wanted`` fits beside the holdings; ``own`` is what the asker has already.

        Raises:
            Exhausted: it does not; the error says how much is wanted and how much is left.
        """
        for page in wanted.pages:
            had = sum(p.count for p in own.pages if (p.size, p.cell) == (page.size, page.cell)) if own else 0
            self._require_pages(page.size, page.count, page.cell, had)
        for size in {page.size for page in wanted.pages if page.cell is not None}:
            total = sum(page.count for page in wanted.pages if page.size == size)
            had = sum(page.count for page in own.pages if page.size == size) if own else 0
            self._require_pages(size, total, None, had)
        left = self.memory_left()
        if left is not None and wanted.memory > left:
            raise Exhausted(
                "memory",
                f"{human_bytes(wanted.memory)} of memory are asked for (overhead included), "
                f"{human_bytes(max(0, left))} are left to reserve",
                hint="delete an instance, request less, or raise memory.overcommit_percent of the node",
            )

    def _require_pages(self, size: int, count: int, cell: int | None, own: int) -> None:
        left = self.pages_left(size, cell, own=own)
        if left is not None and count > left:
            where = "" if cell is None else f" in NUMA cell {cell}"
            raise Exhausted(
                "huge pages",
                f"{count} huge pages of {human_bytes(size)}{where} are asked for, {left} are left",
                hint="give the pool more pages, or delete an instance that has some",
            )

    def _cells(self, cell: int | None) -> tuple[NumaCell, ...]:
        return tuple(there for there in self._facts.cells if cell is None or there.id == cell)


def _pinned(plan: VMPlan) -> frozenset[int]:
    tune = plan.cputune
    shared = (cpu for pin in tune.iothreads for cpu in pin.cpus)
    return frozenset((*(pin.cpu for pin in tune.vcpus), *tune.emulator, *shared))


def _free(pool: PagePool) -> int:
    return pool.count if pool.free is None else pool.free
