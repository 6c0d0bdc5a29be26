# SPDX-License-Identifier: Apache-2.0
"""The CPU that the guest sees, and how many of them. Pure."""

from __future__ import annotations

from launcher.errors import HostUnsupported
from launcher.plan.context import PlanContext
from launcher.plan.model import CPUFeature, CPUPlan, GuestCell, VCPUs

_HOST_MODES = ("host-model", "host-passthrough")


def vcpus(context: PlanContext) -> VCPUs:
    """vCPUs at boot and those that can be plugged later; the first socket always stays."""
    topology = context.topology
    return VCPUs(
        current=topology.current,
        maximum=topology.maximum,
        hotplug=topology.max_sockets > 0,
        fixed=topology.per_socket,
        cpuset=_cpuset(context),
    )


def _cpuset(context: PlanContext) -> tuple[int, ...]:
    """Where threads without a pin run: with dedicated CPUs on those, else off all those for such guests."""
    if context.dedicated:
        return context.allocations.cpuset if context.settings.confine else ()
    kept = frozenset(context.settings.dedicated_cpus)
    if not kept or not context.facts.cells:
        return ()
    shared = sorted(cpu.id for cell in context.facts.cells for cpu in cell.cpus if cpu.id not in kept)
    if not shared:
        raise HostUnsupported(
            "CPUs for guests without dedicated ones",
            "all of its CPUs are to be dedicated",
            hint="ask for dedicatedCpuPlacement, or leave some out of cpus.dedicated",
        )
    return tuple(shared)


def cpu(context: PlanContext, cells: tuple[GuestCell, ...]) -> CPUPlan:
    """Model, topology, features and NUMA cells."""
    mode, model = _model(context)
    topology = context.topology
    return CPUPlan(
        mode=mode,
        model=model,
        sockets=topology.max_sockets or topology.sockets,
        cores=topology.cores,
        threads=topology.threads,
        features=_features(context, mode),
        cells=cells,
    )


def _model(context: PlanContext) -> tuple[str, str | None]:
    asked = (context.domain.cpu.model if context.domain.cpu is not None else None) or "host-model"
    if not context.emulated:
        return (asked, None) if asked in _HOST_MODES else ("custom", asked)
    if asked not in _HOST_MODES:
        return "custom", asked
    # TCG has no host CPU to pass through, and libvirt refuses to; "maximum" is all that TCG can do.
    if asked == "host-passthrough" or context.arch.name != context.facts.arch:
        return "maximum", None
    caps = context.facts.caps(context.arch, "qemu")
    if caps is not None and caps.cpu_modes and "host-model" not in caps.cpu_modes:
        return "maximum", None
    return "host-model", None


def _features(context: PlanContext, mode: str) -> tuple[CPUFeature, ...]:
    """Flags in the user's order. Named x86 models lose mpx unless it is asked for: it is gone from CPUs and
    kernels, but still a part of the models."""
    if context.domain.cpu is None:
        return ()
    features = tuple(
        CPUFeature(name=feature.name, policy=feature.policy or "require")
        for feature in context.domain.cpu.features
    )
    if context.arch.disable_mpx and mode == "custom" and all(feature.name != "mpx" for feature in features):
        return (*features, CPUFeature(name="mpx", policy="disable"))
    return features
