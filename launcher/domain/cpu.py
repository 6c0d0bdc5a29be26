# SPDX-License-Identifier: Apache-2.0
"""``<cpu>``: model, topology, flags and NUMA cells of the guest. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element, cpu_list
from launcher.plan.model import CPUPlan, GuestCell, VMPlan


def cpu(plan: VMPlan) -> Iterator[Element]:
    """The guest's CPU."""
    yield _cpu(plan.cpu)


# The same few in all domains.
@lru_cache(maxsize=256)
def _cpu(asked: CPUPlan) -> Element:
    return E(
        "cpu",
        E("model", asked.model) if asked.model is not None else None,
        E("topology", sockets=asked.sockets, cores=asked.cores, threads=asked.threads),
        *(E("feature", name=feature.name, policy=feature.policy) for feature in asked.features),
        E("numa", *map(_cell, asked.cells)) if asked.cells else None,
        mode=asked.mode,
    )


def _cell(cell: GuestCell) -> Element:
    distances = (E("sibling", id=distance.cell, value=distance.value) for distance in cell.distances)
    return E(
        "cell",
        E("distances", *distances) if cell.distances else None,
        id=cell.id,
        cpus=cpu_list(cell.vcpus),
        memory=cell.memory,
        unit="b",
    )
