# SPDX-License-Identifier: Apache-2.0
"""A node with two NUMA cells for the tests, manifests for it, and their records as the agent makes them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from launcher.agent.draft import Site, draft
from launcher.agent.ledger import Holding, Limits
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.domain.build import build
from launcher.domain.read import DomainView, read_domain
from launcher.plan.facts import HostCPU, NodeFacts, NumaCell, PagePool
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.load import load_vmi
from launcher.units import GIB, MIB

NOW = "2026-01-01T00:00:00Z"
PAGE = 2 * MIB


def cell(
    number: int, cores: tuple[tuple[int, ...], ...], *, pages: int = 0, free: int | None = None
) -> NumaCell:
    """A cell of ``cores`` with a pool of 2 MiB pages."""
    pools = (PagePool(size=PAGE, count=pages, free=pages if free is None else free),) if pages else ()
    cpus = tuple(HostCPU(id=cpu, siblings=core) for core in cores for cpu in core)
    return NumaCell(id=number, cpus=cpus, pools=pools, memory=16 * GIB)


def node(*, pages: tuple[int, int] = (0, 0), memory: int | None = 64 * GIB) -> NodeFacts:
    """Two cells of four cores with two threads each: cell 0 is (0,8) to (3,11), cell 1 (4,12) to (7,15)."""
    cells = tuple(
        cell(number, tuple((first + i, first + i + 8) for i in range(4)), pages=pages[number])
        for number, first in ((0, 0), (1, 4))
    )
    return NodeFacts(cells=cells, memory=memory)


def site(facts: NodeFacts, holdings: Iterable[Holding] = (), limits: Limits | None = None) -> Site:
    """The node with what others hold of it."""
    only_dedicated = (limits.dedicated_cpus if limits is not None else None) or ()
    return Site(
        facts=facts,
        plan=PlanSettings(confine=True, dedicated_cpus=only_dedicated),
        defaults=DefaultsSettings(),
        limits=limits or Limits(),
        holdings=tuple(holdings),
    )


def manifest(
    name: str = "web", *, cpu: str = "{sockets: 1}", memory: str = "{guest: 1Gi}", more: str = ""
) -> str:
    """A small instance."""
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: lab, uid: uid-{name}}}
spec:
  domain:
    cpu: {cpu}
    memory: {memory}
    devices: {{autoattachPodInterface: false, autoattachGraphicsDevice: false}}
    {more}
"""


def accepted(text: str, where: Site, *, running: bool = True) -> InstanceRecord:
    """The record of a manifest that ``where`` accepts."""
    vmi = load_vmi(text)
    assert vmi.metadata is not None
    record = draft(vmi, Companions(), uid=vmi.metadata.uid or "", site=where, now=NOW, boot_id="boot-1")
    return replace(record, phase="Running", prepared=True) if running else record


def live(record: InstanceRecord) -> DomainView:
    """The domain of ``record`` as it starts."""
    return read_domain(build(record.plan))
