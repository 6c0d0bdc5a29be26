# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.cpu``: topology, model and features, dedicated placement, NUMA, realtime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import CPU
from launcher.spec.rules.checks import UINT32, in_range, one_of, unique
from launcher.spec.rules.compute import amount_path
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, required, unsupported

CPU_PATH: Final = f"{DOMAIN}.cpu"
FEATURE_POLICIES: Final = ("force", "require", "optional", "disable", "forbid")
LONGEST_MASK: Final = 1024

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_MASK_PART: Final = re.compile(r"(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?")


def topology(ctx: Context) -> Iterator[Violation]:
    """The members of the topology are counts, their product is what a machine can have."""
    sizes = {"cores": ctx.cpu.cores, "sockets": ctx.cpu.sockets, "threads": ctx.cpu.threads}
    for name, size in (*sizes.items(), ("maxSockets", ctx.cpu.max_sockets)):
        yield from in_range(f"{CPU_PATH}.{name}", size, 0, UINT32)
    sockets, maximum = ctx.cpu.sockets or 0, ctx.cpu.max_sockets or 0
    most = ctx.arch.max_vcpus
    if ctx.vcpus > most:
        yield _too_many(ctx, sizes)
    elif ctx.arch.cpu_hotplug and maximum * (ctx.cpu.cores or 1) * (ctx.cpu.threads or 1) > most:
        yield invalid(
            f"{CPU_PATH}.maxSockets",
            maximum,
            f"gives too many vCPUs; accepted are at most {most} vCPUs on {ctx.arch.name}",
        )
    if maximum > 0 and sockets > maximum:
        yield invalid(f"{CPU_PATH}.sockets", sockets, f"must not exceed maxSockets, {maximum}")


def _too_many(ctx: Context, sizes: dict[str, int | None]) -> Violation:
    most = f"at most {ctx.arch.max_vcpus} vCPUs on {ctx.arch.name}"
    message = f"gives {ctx.vcpus} vCPUs; accepted are {most}"
    if any(sizes.values()):
        name = max(sizes, key=lambda key: sizes[key] or 0)
        return invalid(f"{CPU_PATH}.{name}", sizes[name], message)
    group = "limits" if ctx.resources.limits.get("cpu") else "requests"
    return invalid(amount_path(group, "cpu"), getattr(ctx.resources, group).get("cpu"), message)


def model(ctx: Context) -> Iterator[Violation]:
    """The CPU model is a word, and on arm64 the only one there is."""
    name = ctx.cpu.model
    if not name:
        return
    if ctx.arch.cpu_model and name != ctx.arch.cpu_model:
        yield unsupported(f"{CPU_PATH}.model", name, (ctx.arch.cpu_model,), f" on {ctx.arch.name}")
    elif _WORD.fullmatch(name) is None:
        yield invalid(
            f"{CPU_PATH}.model", name, "not the name of a CPU model, such as host-model or Skylake-Server"
        )


def features(ctx: Context) -> Iterator[Violation]:
    """CPU features have names and known policies, and are named once."""
    for index, feature in enumerate(ctx.cpu.features):
        path = f"{CPU_PATH}.features[{index}]"
        if not feature.name:
            yield required(f"{path}.name", "needs the name of a CPU feature, such as vmx")
        elif _WORD.fullmatch(feature.name) is None:
            yield invalid(f"{path}.name", feature.name, "not the name of a CPU feature, such as vmx")
        yield from one_of(f"{path}.policy", feature.policy, FEATURE_POLICIES)
    yield from unique(
        (f"{CPU_PATH}.features[{i}].name", item.name) for i, item in enumerate(ctx.cpu.features)
    )


def dedicated(ctx: Context) -> Iterator[Violation]:
    """Dedicated CPUs are whole, and resources and topology agree on their number."""
    cpu = ctx.cpu
    if not cpu.dedicated_cpu_placement:
        return
    request, limit = ctx.resources.requests.get("cpu"), ctx.resources.limits.get("cpu")
    for group, amount in (("requests", request), ("limits", limit)):
        if amount is not None and not amount.is_integer:
            yield invalid(amount_path(group, "cpu"), amount, "dedicated CPUs come in whole numbers")
    if request and limit and request != limit:
        yield invalid(
            amount_path("requests", "cpu"), request, f"dedicated CPUs need a request of the limit, {limit}"
        )
    memory, most = ctx.resources.requests.get("memory"), ctx.resources.limits.get("memory")
    if memory and most and memory != most:
        yield invalid(
            amount_path("requests", "memory"),
            memory,
            f"dedicated CPUs need a memory request of the limit, {most}",
        )
    given = cpu.cores or cpu.sockets or cpu.threads
    if not given and not request and not limit:
        yield invalid(
            f"{CPU_PATH}.dedicatedCpuPlacement",
            True,
            "needs a number of CPUs: cores, sockets or resources' cpu",
        )
    if given and (request or limit) and ctx.vcpus not in (request, limit):
        group, amount = ("requests", request) if request else ("limits", limit)
        yield invalid(
            amount_path(group, "cpu"), amount, f"dedicated CPUs must be as many as the vCPUs, {ctx.vcpus}"
        )
    threads = ctx.arch.max_threads_dedicated
    if (cpu.threads or 0) > threads:
        yield invalid(
            f"{CPU_PATH}.threads",
            cpu.threads,
            f"with dedicated CPUs {ctx.arch.name} has at most {threads} a core",
        )


def placement(ctx: Context) -> Iterator[Violation]:
    """An isolated emulator, a NUMA mapping and realtime need dedicated CPUs, and some of them each other."""
    cpu = ctx.cpu
    if cpu.isolate_emulator_thread and not cpu.dedicated_cpu_placement:
        yield invalid(f"{CPU_PATH}.isolateEmulatorThread", True, "needs dedicatedCpuPlacement")
    numa = _maps_numa(cpu)
    path = f"{CPU_PATH}.numa.guestMappingPassthrough"
    if numa and not cpu.dedicated_cpu_placement:
        yield invalid(path, None, "needs dedicatedCpuPlacement")
    if numa and ctx.memory.hugepages is None:
        yield invalid(path, None, "needs memory.hugepages")
    if numa and not ctx.arch.numa_passthrough:
        yield invalid(path, None, f"not possible on {ctx.arch.name}")
    if cpu.realtime is not None and not cpu.dedicated_cpu_placement:
        yield required(f"{CPU_PATH}.dedicatedCpuPlacement", "cpu.realtime needs dedicatedCpuPlacement: true")
    if cpu.realtime is not None and not numa:
        yield required(path, "cpu.realtime needs numa.guestMappingPassthrough")


def realtime_mask(ctx: Context) -> Iterator[Violation]:
    """The mask lists vCPUs that exist, as in 0-3,^1, and leaves at least one."""
    realtime = ctx.cpu.realtime
    if realtime is None or not realtime.mask:
        return
    field = f"{CPU_PATH}.realtime.mask"
    if len(realtime.mask) > LONGEST_MASK:
        yield invalid(field, realtime.mask, f"too long; accepted are at most {LONGEST_MASK} characters")
        return
    last = ctx.vcpus - 1
    chosen: list[tuple[int, int]] = []
    excluded: set[int] = set()
    for part in realtime.mask.split(","):
        match = _MASK_PART.fullmatch(part.strip())
        if match is None or (match[1] and match[3]):
            yield invalid(field, realtime.mask, "accepted is a list of vCPUs such as 0-3,^1")
            return
        low, high = int(match[2]), int(match[3] or match[2])
        if low > high:
            yield invalid(field, realtime.mask, f"{low}-{high} is empty; the smaller number comes first")
            return
        if high > last:
            yield invalid(field, realtime.mask, f"there is no vCPU {high}; the last one is {last}")
            return
        if match[1]:
            excluded.add(low)
        else:
            chosen.append((low, high))
    if all(number in excluded for low, high in chosen for number in range(low, high + 1)):
        yield invalid(field, realtime.mask, "leaves no vCPU; an absent mask means all of them")


def _maps_numa(cpu: CPU) -> bool:
    return cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None


RULES: tuple[Rule, ...] = (topology, model, features, dedicated, placement, realtime_mask)
