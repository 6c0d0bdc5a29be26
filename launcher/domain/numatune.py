# SPDX-License-Identifier: Apache-2.0
"""``<numatune>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element, cpu_list
from launcher.plan.model import NumaTune, VMPlan


def numatune(plan: VMPlan) -> Iterator[Element]:
    """Host cells that memory must come from, all in all and for each guest cell."""
    if plan.numatune is not None:
        yield numatune_element(plan.numatune)


def numatune_element(tune: NumaTune) -> Element:
    """The element."""
    return E(
        "numatune",
        E("memory", mode="strict", nodeset=cpu_list(tune.nodes)),
        *(
            E("memnode", cellid=memnode.cell, mode="strict", nodeset=memnode.node)
            for memnode in tune.memnodes
        ),
    )
