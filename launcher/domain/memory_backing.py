# SPDX-License-Identifier: Apache-2.0
"""``<memoryBacking>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import MemoryBacking, VMPlan


def memory_backing(plan: VMPlan) -> Iterator[Element]:
    """Hugepages, memfd and sharing."""
    backing = plan.backing
    if backing is None:
        return
    yield E(
        "memoryBacking",
        _hugepages(backing),
        E("nosharepages") if backing.nosharepages else None,
        E("locked") if backing.locked else None,
        E("source", type="memfd") if backing.memfd else None,
        E("access", mode="shared") if backing.shared else None,
        E("allocation", mode="immediate") if backing.immediate else None,
    )


def _hugepages(backing: MemoryBacking) -> Element | None:
    if not backing.hugepages:
        return None
    pages = (E("page", size=page.size, unit="b", nodeset=page.cell) for page in backing.pages)
    return E("hugepages", *pages)
