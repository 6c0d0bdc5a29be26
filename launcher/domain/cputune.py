# SPDX-License-Identifier: Apache-2.0
"""``<cputune>``: pins and realtime scheduling. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element, cpu_list
from launcher.plan.model import CPUTune, VMPlan

# The lowest realtime priority: above everything that is not realtime, below the host's own watchdogs.
FIFO_PRIORITY = 1


def cputune(plan: VMPlan) -> Iterator[Element]:
    """vCPUs, emulator threads and I/O threads on their pCPUs; vCPUs under SCHED_FIFO."""
    found = cputune_element(plan.cputune)
    if found is not None:
        yield found


def cputune_element(tune: CPUTune) -> Element | None:
    """The element; None when nothing is pinned."""
    if not tune.vcpus:
        return None
    realtime = tune.realtime_vcpus
    return E(
        "cputune",
        *(E("vcpupin", vcpu=pin.vcpu, cpuset=pin.cpu) for pin in tune.vcpus),
        E("emulatorpin", cpuset=cpu_list(tune.emulator)) if tune.emulator else None,
        *(E("iothreadpin", iothread=pin.iothread, cpuset=cpu_list(pin.cpus)) for pin in tune.iothreads),
        E("vcpusched", vcpus=cpu_list(realtime), scheduler="fifo", priority=FIFO_PRIORITY)
        if realtime
        else None,
    )
