# SPDX-License-Identifier: Apache-2.0
"""A hundred migrations of one guest, to and fro, while agents are restarted at random: nothing leaks."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_world import eventually, qemu_pid
from migration_matrix import NAME, Subject, matrix

from launcher.lab.node import Node

pytestmark = [pytest.mark.node, pytest.mark.slow]

COUNT = 100
QUIET = 30
"""The last ones run without restarts: what an agent loses shows only while it lives."""
SEED = 20260
MIB = 1 << 20
GROWTH_MIB = 24
"""Python's and gRPC's arenas settle within this; a record that is kept of each migration is a few KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a node has."""

    links: int
    namespaces: int
    domains: int
    ports: int
    files: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What an agent's process has."""

    resident: int
    descriptors: int
    threads: int


@pytest.fixture(scope="module")
def subject(needs_nodes: None) -> Iterator[Subject]:
    with matrix() as made:
        made.ready()
        yield made


def count(node: Node) -> Count:
    state = node.layout.outside("/var/lib/launcher")
    run = node.layout.outside("/run/launcher")
    skipped = {"recordings"}  # A hundred are kept on purpose.
    files = [
        path
        for root in (state, run)
        for path in root.rglob("*")
        if not skipped & set(path.parts) and ".db" not in path.name
    ]
    return Count(
        links=len(node.run("ip", "-br", "link").splitlines()),
        namespaces=len(node.run("ip", "netns").splitlines()),
        domains=len(node.run("virsh", "list", "--all", "--name").split()),
        ports=len(node.run("ss", "-Hltn").splitlines()),
        files=len(files),
        processes=len(node.run("ps", "-e", "-o", "pid=").splitlines()),
    )


def agent(node: Node) -> Agent:
    process = Path("/proc") / str(node.agent_pid)
    status = process.joinpath("status").read_text()

    def number(name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
        assert found is not None
        return int(found[1])

    return Agent(
        resident=number("VmRSS") * 1024,
        descriptors=len(list(process.joinpath("fd").iterdir())),
        threads=number("Threads"),
    )


class Restarts:
    """Restarts one of the agents at a random moment of a migration, if at all."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._dice = random.Random(SEED)
        self.done = 0

    def begin(self) -> threading.Thread | None:
        if self._dice.random() < 0.5:
            return None
        node = self._dice.choice(self._nodes)
        number = self._dice.choice((signal.SIGKILL, signal.SIGTERM))
        thread = threading.Thread(target=self._restart, args=(node, number, self._dice.uniform(0, 6)))
        thread.start()
        return thread

    def _restart(self, node: Node, number: int, after_s: float) -> None:
        time.sleep(after_s)
        node.stop_agent(number)
        node.start_agent()
        node.wait_serving()
        self.done += 1


def test_a_hundred_migrations_leave_nothing_behind(subject: Subject) -> None:
    nodes = list(subject.nodes.values())
    restarts = Restarts(nodes)
    assert subject.move().report.succeeded
    assert subject.move().report.succeeded
    before = [count(node) for node in nodes]
    assert subject.home == "a"
    first: list[Agent] = []
    for number in range(COUNT):
        quiet = number >= COUNT - QUIET
        restart = None if quiet else restarts.begin()
        end = subject.move()
        if restart is not None:
            restart.join(120)
        assert end.report.succeeded, f"migration {number}: {end.report.reason}"
        if number == COUNT - QUIET + 4:
            first = [agent(node) for node in nodes]
    last = [agent(node) for node in nodes]
    assert restarts.done >= COUNT // 5
    assert subject.home == "a"
    assert qemu_pid(subject.source, NAME)
    eventually("as at the beginning", lambda: [count(node) for node in nodes] == before, timeout_s=90)
    for early, late in zip(first, last, strict=True):
        assert late.resident - early.resident < GROWTH_MIB * MIB, (first, last)
        assert late.descriptors - early.descriptors <= 4, (first, last)
        assert late.threads - early.threads <= 4, (first, last)
