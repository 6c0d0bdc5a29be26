# SPDX-License-Identifier: Apache-2.0
"""A guest that mirrors the NUMA cells of its host goes only where it gets the same ones."""

from __future__ import annotations

from agent_nodes import accepted, live, manifest, node, site

from launcher.agent.cells import cell_findings
from launcher.agent.ledger import Holding

HUGE = '{guest: 64Mi, hugepages: {pageSize: "2Mi"}}'
MIRROR = "{sockets: 1, cores: 4, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}"


def test_cells_are_the_same_or_the_guest_stays() -> None:
    facts = node(pages=(64, 64))
    one_cell = accepted(manifest(cpu=MIRROR, memory=HUGE), site(facts))
    crowded = Holding(key="x", cpus=frozenset(range(16)) - {0, 8, 4, 12})
    two_cells = accepted(manifest(cpu=MIRROR, memory=HUGE), site(facts, [crowded]))
    assert cell_findings(one_cell, live(one_cell)) == ()
    assert cell_findings(two_cells, live(two_cells)) == ()
    (found,) = cell_findings(two_cells, live(one_cell))
    assert "sees 1 NUMA cells of its host, and this node would give it 2" in found
    assert cell_findings(one_cell, live(two_cells)) != ()


def test_a_guest_that_mirrors_none_goes_anywhere() -> None:
    plain = accepted(manifest(), site(node()))
    mirrored = accepted(manifest(cpu=MIRROR, memory=HUGE), site(node(pages=(64, 64))))
    assert cell_findings(plain, live(mirrored)) == ()
