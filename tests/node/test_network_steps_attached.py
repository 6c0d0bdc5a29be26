# SPDX-License-Identifier: Apache-2.0
"""Steps in a namespace of somebody else's, and of a macvtap: killed in each, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from network_driving import drive, killed
from network_guests import left_on
from network_plans import attached
from pod_namespace import CLEAR, MAKE, POD, pod_namespace, shown

from launcher.lab.node import Node
from launcher.plan.steps import MakeDirectory

pytestmark = [pytest.mark.node, pytest.mark.slow]

STEPS = attached(POD)
AFTER_S = 0.01


@pytest.fixture
def node(node_a: Node) -> Iterator[Node]:
    """A node with a pod's namespace that must be left as it was."""
    with pod_namespace(node_a):
        before = shown(node_a)
        yield node_a
        drive(node_a, "release", [step for step in STEPS if not isinstance(step, MakeDirectory)])
        node_a.run("rm", "-rf", "/run/launcher/n")
        assert shown(node_a) == before
    assert left_on(node_a) == []


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_killed_in_the_middle_of_a_step(node: Node, at: int) -> None:
    killed(node, "make", STEPS, at=at, after_s=AFTER_S)
    drive(node, "make", STEPS)
    made = shown(node)
    drive(node, "make", STEPS)
    assert shown(node) == made
    killed(node, "release", STEPS, at=at, after_s=AFTER_S)


def test_a_namespace_that_is_gone_is_no_hindrance(node: Node) -> None:
    drive(node, "make", STEPS)
    node.run("ip", "netns", "del", "pod")
    drive(node, "release", STEPS)
    assert left_on(node) == []
    node.run("sh", "-c", CLEAR)
    node.run("sh", "-c", MAKE)
