# SPDX-License-Identifier: Apache-2.0
"""Each node's agent answers, knows its peers, and can be stopped, killed and started."""

from __future__ import annotations

import signal

import pytest

from launcher.cli.client import Client
from launcher.errors import Unavailable
from launcher.lab import health
from launcher.lab.lab import Lab

pytestmark = pytest.mark.node


def test_agents_answer_and_know_their_peers(lab_with_agents: Lab) -> None:
    for name, peer in (("a", "b"), ("b", "a")):
        with Client(lab_with_agents.node(name).agent_target) as client:
            found = client.node()
        assert (found.name, list(found.peers), found.libvirt_connected) == (name, [peer], True)


def test_an_agent_is_stopped_killed_and_started(lab_with_agents: Lab) -> None:
    node = lab_with_agents.node("a")
    first = node.agent_pid
    node.stop_agent()
    assert node.agent_pid is None
    assert health.check(node.agent_target) == ""
    with Client(node.agent_target, timeout_s=1.0) as client, pytest.raises(Unavailable):
        client.node()
    node.start_agent()
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    assert node.agent_pid not in (None, first)
    assert node.agent_log().count("message=ready") == 3


def test_an_agent_that_answers_has_libvirt(lab_with_agents: Lab) -> None:
    """Whoever asks in the first moment is served: the socket is there only after the link to libvirtd."""
    node = lab_with_agents.node("b")
    for _ in range(3):
        node.stop_agent(signal.SIGKILL)
        node.start_agent()
        assert health.check(node.agent_target) == "SERVING"
        with Client(node.agent_target) as client:
            assert client.node().libvirt_connected
