# SPDX-License-Identifier: Apache-2.0
"""Which pCPU each vCPU, I/O thread and emulator thread of an instance with dedicated CPUs runs on. Pure.

CPUs are drawn in the order of the host's topology: whole cores first, then what is left of cores inside one
NUMA cell, then, unless the guest mirrors the host's cells, what is left anywhere. All or nothing: an instance
that cannot be pinned as asked is refused, never pinned in part.
"""

from __future__ import annotations

from launcher.errors import Exhausted, HostUnsupported
from launcher.plan.context import PlanContext, vcpu_topology
from launcher.plan.facts import HostCPU, NumaCell
from launcher.plan.iothreads import supplemental_threads
from launcher.plan.model import CPUTune, IOThreadPin, VCPUPin
from launcher.plan.realtime import realtime_vcpus
from launcher.spec.model import VirtualMachineInstance

# Present: the emulator gets a second CPU when that makes the total even (whole cores on SMT hosts).
EVEN_PARITY = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"


class CorePool:
    """The free CPUs of a cpuset, by cell and core. ``threads`` are taken from a core at a time.

    Mutable on purpose, and alive only while one plan is made.
    """

    def __init__(self, cells: tuple[NumaCell, ...], cpuset: tuple[int, ...], threads: int) -> None:
        self._threads = threads
        self._cores: list[list[list[int]]] = []
        self._fragments: list[list[int]] = []
        for cores in _usable_cores(cells, frozenset(cpuset)):
            self._cores.append([core for core in cores if len(core) >= threads])
            self._fragments.append([cpu for core in cores if len(core) < threads for cpu in core])

    @property
    def free(self) -> int:
        """CPUs that are left."""
        whole = sum(len(core) for cell in self._cores for core in cell)
        return whole + sum(len(fragments) for fragments in self._fragments)

    def take_cores(self, count: int, *, strict: bool) -> tuple[int, ...]:
        """Take ``count`` guest cores; with ``strict`` none of them spans two cells.

        Raises:
            Exhausted: there are not enough CPUs, or none that respect the cells.
        """
        wanted = count * self._threads
        if self.free < wanted:
            raise Exhausted(
                "dedicated CPUs",
                f"{wanted} dedicated CPUs are asked for, {self.free} are free",
                hint="give the node more CPUs to dedicate, or ask for fewer vCPUs",
            )
        taken: list[int] = []
        self._take_whole(wanted, taken)
        self._take_within_cells(wanted, taken)
        if strict and len(taken) < wanted:
            missing = (wanted - len(taken)) // self._threads
            raise Exhausted(
                "dedicated CPUs",
                f"{missing} of {count} cores fit only across NUMA cells (guestMappingPassthrough forbids it)",
                hint="free CPUs of one cell, or ask for fewer vCPUs or threads",
            )
        for fragments in self._fragments:
            while fragments and len(taken) < wanted:
                taken.append(fragments.pop(0))
        return tuple(taken)

    def take_one(self, purpose: str) -> int:
        """Take a single CPU, a fragment of the first cell that has anything if possible.

        Raises:
            Exhausted: none is left.
        """
        for cores, fragments in zip(self._cores, self._fragments, strict=True):
            if fragments:
                return fragments.pop(0)
            if cores:
                core = cores[0]
                cpu = core.pop(0)
                self._settle(cores, fragments)
                return cpu
        raise Exhausted(
            "dedicated CPUs",
            f"no dedicated CPU is left for {purpose}",
            hint="the cpuset must hold one more CPU",
        )

    def _take_whole(self, wanted: int, taken: list[int]) -> None:
        for cores, fragments in zip(self._cores, self._fragments, strict=True):
            while cores and len(taken) < wanted:
                taken.extend(cores[0][: self._threads])
                del cores[0][: self._threads]
                self._settle(cores, fragments)

    def _take_within_cells(self, wanted: int, taken: list[int]) -> None:
        for fragments in self._fragments:
            while len(fragments) >= self._threads and len(taken) < wanted:
                taken.extend(fragments[: self._threads])
                del fragments[: self._threads]

    def _settle(self, cores: list[list[int]], fragments: list[int]) -> None:
        """A core that is not whole any more becomes fragments."""
        if len(cores[0]) < self._threads:
            fragments.extend(cores.pop(0))


def exclusive_cpus(
    vmi: VirtualMachineInstance, cells: tuple[NumaCell, ...], free: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """CPUs of ``free`` in ``cells`` to set apart for a defaulted ``vmi``: its vCPUs', and those of the rest.

    ``cputune`` finds places for all within exactly these CPUs, and spreads its vCPUs over the same cells.

    Raises:
        Exhausted: there are not enough CPUs, or none that respect the cells.
    """
    topology = vcpu_topology(vmi)
    pool = CorePool(cells, free, topology.threads)
    _require_free(vmi, pool)
    drawn = pool.take_cores(topology.sockets * topology.cores, strict=mirrors_cells(vmi))
    return drawn, tuple(pool.take_one("I/O and emulator threads") for _ in range(_single_cpus(vmi)))


def plugged_cpus(
    cells: tuple[NumaCell, ...], free: tuple[int, ...], threads: int, cores: int
) -> tuple[int, ...]:
    """CPUs of ``free`` in ``cells`` for ``cores`` more guest cores of ``threads`` vCPUs; raises Exhausted."""
    return CorePool(cells, free, threads).take_cores(cores, strict=False)


def mirrors_cells(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest's NUMA cells are to be the host's."""
    cpu = vmi.spec.domain.cpu
    return cpu is not None and cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None


def _require_free(vmi: VirtualMachineInstance, pool: CorePool) -> None:
    """Say at once how many CPUs are wanted in all."""
    wanted = vcpu_topology(vmi).current + _single_cpus(vmi)
    if pool.free < wanted:
        raise Exhausted(
            "dedicated CPUs",
            f"{wanted} dedicated CPUs are asked for, {pool.free} are free",
            hint="let the node dedicate more CPUs, or ask for fewer vCPUs",
        )


def _single_cpus(vmi: VirtualMachineInstance) -> int:
    """CPUs beside those of the vCPUs: for I/O threads of the supplemental pool and for the emulator."""
    cpu, pool = vmi.spec.domain.cpu, supplemental_threads(vmi)
    if cpu is None or not cpu.isolate_emulator_thread:
        return pool
    annotations = vmi.metadata.annotations if vmi.metadata else {}
    even = EVEN_PARITY in annotations and (vcpu_topology(vmi).current + pool) % 2 == 0
    return pool + (2 if even else 1)


def host_cells(context: PlanContext) -> tuple[NumaCell, ...]:
    """The host's cells; when nothing is known of them, one cell of single-thread cores."""
    if context.facts.cells:
        return context.facts.cells
    cpus = tuple(HostCPU(id=cpu, siblings=(cpu,)) for cpu in context.allocations.cpuset)
    return (NumaCell(id=0, cpus=cpus),)


def cputune(context: PlanContext) -> CPUTune:
    """Pin everything of an instance with dedicated CPUs; nothing of any other.

    Drawn in this order: vCPUs, supplemental I/O threads, emulator threads.

    Raises:
        Exhausted: the cpuset is too small or badly shaped.
    """
    cpu = context.domain.cpu
    if cpu is None or not context.dedicated:
        return CPUTune()
    if not context.allocations.cpuset and not context.facts.cells:
        raise HostUnsupported("dedicated CPUs", "no pCPUs may be dedicated here", hint="configure a cpuset")
    topology = context.topology
    pool = CorePool(host_cells(context), context.allocations.cpuset, topology.threads)
    _require_free(context.vmi, pool)
    drawn = pool.take_cores(topology.sockets * topology.cores, strict=mirrors_cells(context.vmi))
    extra = supplemental_threads(context.vmi)
    supplemental = tuple(
        IOThreadPin(iothread=i, cpus=(pool.take_one(f"I/O thread {i}"),)) for i in range(1, extra + 1)
    )
    emulator = _emulator(context, pool) if cpu.isolate_emulator_thread else ()
    return CPUTune(
        vcpus=tuple(VCPUPin(vcpu=i, cpu=cpu_id) for i, cpu_id in enumerate(drawn)),
        emulator=emulator,
        iothreads=supplemental or _shared_iothreads(context, emulator),
        realtime_vcpus=realtime_vcpus(cpu, topology.current),
    )


def _emulator(context: PlanContext, pool: CorePool) -> tuple[int, ...]:
    first = pool.take_one("the emulator thread")
    others = context.topology.current + supplemental_threads(context.vmi)
    if EVEN_PARITY in context.annotations and others % 2 == 0:
        return (first, pool.take_one("the second emulator CPU"))
    return (first,)


def _shared_iothreads(context: PlanContext, emulator: tuple[int, ...]) -> tuple[IOThreadPin, ...]:
    """I/O threads without CPUs of their own share the emulator's, else they are spread over the vCPUs'."""
    count, vcpus = context.iothreads.count, context.topology.current
    if emulator:
        return tuple(IOThreadPin(iothread=i, cpus=emulator) for i in range(1, count + 1))
    cpuset = context.allocations.cpuset
    if count >= vcpus:
        return tuple(IOThreadPin(iothread=i, cpus=(cpuset[i % vcpus],)) for i in range(1, count + 1))
    pins: list[IOThreadPin] = []
    start = 0
    for i in range(1, count + 1):
        size = vcpus // count + (1 if i <= vcpus % count else 0)
        pins.append(IOThreadPin(iothread=i, cpus=cpuset[start : start + size]))
        start += size
    return tuple(pins)


def _usable_cores(cells: tuple[NumaCell, ...], usable: frozenset[int]) -> list[list[list[int]]]:
    """By cell, in the host's order: each core's usable CPUs. A core counts where its first CPU stands."""
    seen: set[int] = set()
    by_cell: list[list[list[int]]] = []
    for cell in cells:
        cores: list[list[int]] = []
        for cpu in cell.cpus:
            if cpu.id in seen:
                continue
            siblings = cpu.siblings or (cpu.id,)
            seen.update(siblings)
            seen.add(cpu.id)
            core = [sibling for sibling in siblings if sibling in usable]
            if core:
                cores.append(core)
        by_cell.append(cores)
    return by_cell
