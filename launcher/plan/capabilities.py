# SPDX-License-Identifier: Apache-2.0
"""Whether this host offers what a plan needs: machine, CPU, memory, encryption. Pure; devices have their own.

What is not known of the host is taken to be there; libvirt has the last word then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from launcher.plan.context import PlanContext, most_vcpus
from launcher.plan.devices.capabilities import device_findings
from launcher.plan.facts import DomainCaps, PagePool
from launcher.plan.iothreads import supplemental_threads
from launcher.plan.memory import page_size
from launcher.plan.model import VMPlan
from launcher.plan.refusals import Finding
from launcher.units import ceil_div, human_bytes

_MACHINE = "spec.domain.machine.type"
_CPU = "spec.domain.cpu"
_EFI = "spec.domain.firmware.bootloader.efi"
_HUGEPAGES = "spec.domain.memory.hugepages.pageSize"
_SECURITY = "spec.domain.launchSecurity"
# Machines are many: a message names this many.
_SHOWN = 6


def host_findings(context: PlanContext, plan: VMPlan) -> tuple[Finding, ...]:
    """Everything that ``plan`` needs and the host is known to lack."""
    caps = context.facts.caps(context.arch, context.virt, plan.boot.machine) or DomainCaps(arch="", virt="")
    return (
        *_vcpus(context),
        *_machine(context, plan),
        *_cpu_model(context, plan, caps),
        *_cpu_features(context, plan, caps),
        *_loader(plan, caps),
        *_hyperv(context, plan, caps),
        *_hugepages(context, plan),
        *_memory_source(plan, caps),
        *_secure_execution(context, caps),
        *device_findings(context.facts, caps, plan.devices),
    )


def dedicated_findings(context: PlanContext) -> Iterator[Finding]:
    """Whether the node has as many CPUs at all as are to be dedicated, whoever has them now."""
    cpu = context.domain.cpu
    there = sum(len(cell.cpus) for cell in context.facts.cells)
    if cpu is None or not context.dedicated or not there:
        return
    emulator = 1 if cpu.isolate_emulator_thread else 0
    wanted = context.topology.current + supplemental_threads(context.vmi) + emulator
    if wanted > there:
        yield Finding(
            capability=f"{wanted} CPUs to dedicate",
            field=f"{_CPU}.dedicatedCpuPlacement",
            why=f"the node has {there} CPUs",
            hint="ask for fewer vCPUs, or use a larger node",
        )


def _vcpus(context: PlanContext) -> Iterator[Finding]:
    wanted, most = context.topology.current, most_vcpus(context.arch, context.facts, context.virt)
    if most is not None and wanted > most:
        yield Finding(
            capability=f"{wanted} vCPUs",
            field=_CPU,
            why=f"libvirt and QEMU here allow {most}",
            hint="ask for fewer vCPUs",
        )


def _machine(context: PlanContext, plan: VMPlan) -> Iterator[Finding]:
    guest = context.facts.guest(context.arch)
    machine = plan.boot.machine
    if guest is None or not guest.machines or machine in guest.machines:
        return
    aliases = [alias.name for alias in guest.aliases]
    known = list(dict.fromkeys((*aliases, *sorted(guest.machines, reverse=True))))
    shown = ", ".join(known[:_SHOWN]) + (" …" if len(known) > _SHOWN else "")
    yield Finding(
        capability=f"machine type {machine}",
        field=_MACHINE,
        why=f"QEMU here has {shown}",
        hint="launcherctl node facts lists all machine types",
    )


def _cpu_model(context: PlanContext, plan: VMPlan, caps: DomainCaps) -> Iterator[Finding]:
    field, mode, model = f"{_CPU}.model", plan.cpu.mode, plan.cpu.model
    if caps.cpu_modes and mode not in caps.cpu_modes:
        yield Finding(capability=f"CPU mode {mode}", field=field, why="libvirt does not offer it here")
    known = {*caps.cpu_models, *caps.unusable_models}
    if mode != "custom" or model is None or not known:
        return
    if model not in known:
        yield Finding(
            capability=f"CPU model {model}",
            field=field,
            why="QEMU has no such model",
            hint="launcherctl node facts lists those that can be used",
        )
    elif model in caps.unusable_models and not context.emulated:
        # Without KVM it is started with what the emulator can do; libvirt checks nothing then.
        yield Finding(
            capability=f"CPU model {model}",
            field=field,
            why="the host's CPU lacks features of it",
            hint="launcherctl node facts lists those that can be used",
        )


def _cpu_features(context: PlanContext, plan: VMPlan, caps: DomainCaps) -> Iterator[Finding]:
    if context.emulated and plan.cpu.mode == "custom":
        return  # see _cpu_model
    for feature in plan.cpu.features:
        if feature.policy == "require" and feature.name in caps.missing_cpu_features:
            yield Finding(
                capability=f"CPU feature {feature.name}",
                field=f"{_CPU}.features",
                why="the host's CPU has it not",
                hint="policy optional takes it where it is",
            )


def _loader(plan: VMPlan, caps: DomainCaps) -> Iterator[Finding]:
    loader = plan.boot.loader
    if loader is None:
        return
    if caps.denies("loader.type", loader.type):
        yield Finding(
            capability=f"firmware as {loader.type}", field=_EFI, why="libvirt does not offer it here"
        )
    if loader.secure and caps.denies("loader.secure", "yes"):
        yield Finding(
            capability="Secure Boot", field=f"{_EFI}.secureBoot", why="libvirt does not offer it here"
        )


def _hyperv(context: PlanContext, plan: VMPlan, caps: DomainCaps) -> Iterator[Finding]:
    """Without KVM they are left out of the plan, for they would have no effect."""
    if context.emulated or not caps.hyperv:
        return
    for flag in plan.features.hyperv or ():
        if flag.enabled and flag.name not in caps.hyperv:
            yield Finding(
                capability=f"Hyper-V feature {flag.name}",
                field="spec.domain.features.hyperv",
                why="KVM or libvirt here does not have it",
            )


def _hugepages(context: PlanContext, plan: VMPlan) -> Iterator[Finding]:
    size = page_size(context)
    cells = context.facts.cells
    if size is None or not any(pool.free is not None for cell in cells for pool in cell.pools):
        return
    pools = {cell.id: pool for cell in cells for pool in cell.pools if pool.size == size}
    name = human_bytes(size)
    if not pools:
        sizes = {pool.size for cell in cells for pool in cell.pools if pool.free is not None}
        has = ", ".join(human_bytes(other) for other in sorted(sizes)) or "none"
        yield Finding(
            capability=f"huge pages of {name}", field=_HUGEPAGES, why=f"the kernel has pages of {has}"
        )
        return
    for demand in _demands(plan, size, pools):
        if demand.pages > demand.free:
            yield Finding(
                capability=f"{demand.pages} free huge pages of {name}{demand.where}",
                field=_HUGEPAGES,
                why=f"{demand.free} of {demand.count} are free",
                hint="give the pool more pages, see docs/host.md",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """Pages that are wanted ``where``, and what the pools there have."""

    where: str
    pages: int
    count: int
    free: int


def _demands(plan: VMPlan, size: int, pools: Mapping[int, PagePool]) -> Iterator[_Demand]:
    """A guest that mirrors the host's cells takes from each its part, any other from where there is some."""
    nodes = {memnode.cell: memnode.node for memnode in plan.numatune.memnodes} if plan.numatune else {}
    if not nodes:
        yield _demand("", plan.memory.size, size, tuple(pools.values()))
        return
    for cell in plan.cpu.cells:
        node = nodes.get(cell.id, -1)
        if node in pools:
            yield _demand(f" in NUMA cell {node}", cell.memory, size, (pools[node],))


def _demand(where: str, memory: int, size: int, pools: tuple[PagePool, ...]) -> _Demand:
    return _Demand(
        where=where,
        pages=ceil_div(memory, size),
        count=sum(pool.count for pool in pools),
        free=sum(pool.count if pool.free is None else pool.free for pool in pools),
    )


def _memory_source(plan: VMPlan, caps: DomainCaps) -> Iterator[Finding]:
    if plan.backing is not None and plan.backing.memfd and caps.denies("memoryBacking.sourceType", "memfd"):
        yield Finding(
            capability="memory from memfd", field="spec.domain.memory", why="libvirt does not offer it here"
        )


def _secure_execution(context: PlanContext, caps: DomainCaps) -> Iterator[Finding]:
    """The other kinds of encrypted guests are judged where they are planned."""
    if context.domain.launch_security is not None and "s390-pv" in caps.unsupported_features:
        yield Finding(
            capability="Secure Execution", field=_SECURITY, why="the host or its QEMU does not offer it"
        )
