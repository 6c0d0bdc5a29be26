# SPDX-License-Identifier: Apache-2.0
"""Contexts and hosts for tests of planning, from a domain written as YAML."""

from __future__ import annotations

import msgspec

from launcher.plan.allocations import Allocations
from launcher.plan.context import PlanContext, plan_context
from launcher.plan.facts import Distance, HostCPU, NodeFacts, NumaCell
from launcher.plan.settings import PlanSettings
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
UID = "0c3f4d40-1c62-4d5c-9d3c-1f3f2f0c7a11"


def manifest(domain: str, **spec: object) -> VirtualMachineInstance:
    """An instance ``lab/guest`` with that ``spec.domain``; devices may be left out."""
    parts = {"devices": {}, **(msgspec.yaml.decode(domain) or {})}
    raw = {"metadata": {"name": "guest", "namespace": "lab"}, "spec": {"domain": parts, **spec}}
    return msgspec.convert(raw, VirtualMachineInstance, dec_hook=dec_hook)


def context(
    domain: str,
    *,
    facts: NodeFacts | None = None,
    cpuset: tuple[int, ...] = (),
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> PlanContext:
    """The context of planning such an instance."""
    vmi = manifest(domain, **spec)
    if annotations and vmi.metadata is not None:
        vmi = msgspec.structs.replace(
            vmi, metadata=msgspec.structs.replace(vmi.metadata, annotations=annotations)
        )
    return plan_context(
        vmi,
        facts or NodeFacts(),
        Allocations(uid=UID, uuid=UUID, cpuset=cpuset),
        PlanSettings(allow_emulation=True),
    )


def two_sockets() -> tuple[NumaCell, ...]:
    """Two cells of four cores of two threads: CPU n and n + 8 share a core."""
    return tuple(
        NumaCell(
            id=cell,
            cpus=tuple(
                HostCPU(id=cpu, siblings=(core, core + 8))
                for cpu in (*range(4 * cell, 4 * cell + 4), *range(4 * cell + 8, 4 * cell + 12))
                for core in (cpu % 8,)
            ),
            distances=(Distance(cell=0, value=10 + 11 * cell), Distance(cell=1, value=21 - 11 * cell)),
        )
        for cell in (0, 1)
    )
