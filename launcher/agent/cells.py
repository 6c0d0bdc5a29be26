# SPDX-License-Identifier: Apache-2.0
"""Whether a guest that moves would see other NUMA cells than it does. Pure."""

from __future__ import annotations

from launcher.agent.records import InstanceRecord
from launcher.domain.read import DomainView
from launcher.plan.pinning import mirrors_cells


def cell_findings(draft: InstanceRecord, view: DomainView) -> tuple[str, ...]:
    """A guest that mirrors the NUMA cells of its host cannot get others: it sees them."""
    if not mirrors_cells(draft.defaulted):
        return ()
    planned = [(frozenset(cell.vcpus), cell.memory) for cell in draft.plan.cpu.cells]
    same = len(planned) == len(view.cells) and all(
        vcpus <= seen.vcpus and memory == seen.memory
        for (vcpus, memory), seen in zip(planned, view.cells, strict=True)
    )
    if same:
        return ()
    return (
        f"the guest sees {len(view.cells)} NUMA cells of its host, and this node would give it "
        f"{len(planned)} with other vCPUs or other memory",
    )
