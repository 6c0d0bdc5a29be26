# SPDX-License-Identifier: Apache-2.0
"""What a guest costs beside its memory."""

from __future__ import annotations

import pytest
from agent_nodes import accepted, manifest, node, site

from launcher.agent.ledger import overhead
from launcher.plan.overhead import memory_overhead
from launcher.units import GIB, MIB

# QEMU, one vCPU, the main loop, and page tables of 1 GiB.
SMALLEST = 50 * MIB + 8 * MIB + 8 * MIB + 2 * MIB


def total(text: str) -> int:
    record = accepted(text, site(node()))
    return memory_overhead(record.plan).total


def test_the_smallest_guest() -> None:
    assert total(manifest()) == SMALLEST


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"cpu": "{sockets: 2, cores: 2}"}, 3 * 8 * MIB),
        ({"memory": "{guest: 2Gi}"}, 2 * MIB),
        (
            {"more": "ioThreadsPolicy: supplementalPool\n    ioThreads: {supplementalPoolThreadCount: 3}"},
            24 * MIB,
        ),
    ],
)
def test_terms_add_up(changes: dict[str, str], more: int) -> None:
    assert total(manifest(**changes)) == SMALLEST + more


@pytest.mark.parametrize(
    ("device", "what", "size"),
    [
        ("autoattachGraphicsDevice: true", "display", 32 * MIB),
        ("autoattachGraphicsDevice: false, tpm: {}", "swtpm", 53 * MIB),
    ],
)
def test_devices_have_their_price(device: str, what: str, size: int) -> None:
    text = manifest().replace("autoattachGraphicsDevice: false", device)
    terms = {term.what: term.size for term in memory_overhead(accepted(text, site(node())).plan).terms}
    assert terms[what] == size
    assert sum(terms.values()) == SMALLEST + size


def test_what_was_plugged_and_what_is_reserved_counts() -> None:
    record = accepted(manifest(memory="{guest: 1Gi, reservedOverhead: {addedOverhead: 10Mi}}"), site(node()))
    assert overhead(record.plan, record.defaulted) == SMALLEST + 10 * MIB
    grown = memory_overhead(record.plan, guest=4 * GIB)
    assert grown.total == SMALLEST + 6 * MIB
