# SPDX-License-Identifier: Apache-2.0
"""A hundred migrations of one guest, to and fro, while agents are restarted at random: nothing leaks.

``LAUNCHER_MIGRATIONS`` is another number of them. Run with ``-s`` it prints a line for each.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_world import eventually, qemu_pid, restarting
from migration_matrix import NAME, WIRE_MBIT, Subject, frozen, matrix, mode, phase

from launcher.agent.outgoing_ends import KEPT
from launcher.lab.node import Node
from launcher.v1.migrations_pb2 import Migration

pytestmark = [pytest.mark.node, pytest.mark.slow]

COUNT = int(os.environ.get("LAUNCHER_MIGRATIONS", "100")) // 2 * 2
PHASES = ("Pending", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed")
QUIET = COUNT * 3 // 10
"""The last ones run without restarts: what an agent loses shows only while it lives."""
WARM = QUIET // 4
"""After so many of them its caches are filled."""
POST_COPY_EACH = 10
SEED = 20260
MIB = 1 << 20
GROWTH_MIB = 12
"""Python's and gRPC's arenas settle within this; a record that is kept of each migration is a few KiB."""
NICS = "interfaces: [{name: pod, masquerade: {}}, {name: lab, bridge: {}}]"
NETWORKS = "[{name: pod, pod: {}}, {name: lab, multus: {networkName: lab}}]"
MOMENTS = {
    "ask": ("at once", "when it is known"),
    "prepare": ("PreparingTarget", "TargetReady", "Running"),
    "pre-copy": (),
    "hand-over": ("when the guest is stopped",),
    "post-copy": (),
    "settle": ("when it runs there", "when it is not here any more", "when its end is told"),
}
"""What is waited for, one of them; for none of them until a share of what remains is copied, at most MOST."""
MOST = 0.3
VICTIMS = ("source", "target", "both")
FOLDERS = ("/var/lib/launcher", "/run/launcher", "/var/lib/libvirt", "/run/libvirt")
ENDED = {"outgoing": 6000, "incoming": 500}
"""Bytes of what is kept of a migration that ended well."""
KEPT_ON_PURPOSE = re.compile(r"/recordings/|/launcher\.db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """One migration, and which agents are restarted when (no moment: none)."""

    number: int
    moment: str
    chance: float
    victims: str
    signal: int
    post_copy: bool

    @property
    def step(self) -> str:
        """Which of the things that are waited for."""
        steps = MOMENTS[self.moment]
        return steps[int(self.chance * len(steps))] if steps else f"{self.share:.0%}"

    @property
    def share(self) -> float:
        """How much of what remained is copied first."""
        return self.chance * MOST

    def __str__(self) -> str:
        how = "post-copy" if self.post_copy else "pre-copy"
        name = signal.Signals(self.signal).name
        restart = f", {name} to {self.victims} at {self.moment}, {self.step}" if self.moment else ""
        return f"{self.number}: {how}{restart}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What an agent's process has."""

    resident: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.resident / MIB:.1f} MiB {self.descriptors} fds {self.threads} threads"


def trips() -> Iterator[Trip]:
    """The same ones at each run."""
    dice = random.Random(SEED)
    for number in range(COUNT):
        post_copy = number % POST_COPY_EACH == POST_COPY_EACH - 1
        possible = [moment for moment in MOMENTS if moment != ("hand-over" if post_copy else "post-copy")]
        moment = dice.choice(possible) if dice.random() < 0.7 else ""
        yield Trip(
            number=number,
            moment=moment if number < COUNT - QUIET else "",
            chance=dice.random(),
            victims=dice.choice(VICTIMS),
            signal=dice.choice((signal.SIGKILL, signal.SIGTERM)),
            post_copy=post_copy,
        )


@pytest.fixture(scope="module")
def subject(needs_nodes: None) -> Iterator[Subject]:
    with matrix() as made:
        made.ready(nics=NICS, networks=NETWORKS)
        yield made


def restart(subject: Subject, trip: Trip) -> None:
    sides = {"source": [subject.source], "target": [subject.target]}
    victims = sides.get(trip.victims, [subject.source, subject.target])
    for node in victims:
        node.stop_agent(trip.signal)
    for node in victims:
        node.start_agent(wait=False)
    for node in victims:
        node.wait_agent()


def travel(subject: Subject, trip: Trip) -> str:
    """Ask for the migration, and do to it what is planned; its name."""
    slow = trip.post_copy or trip.moment in {"pre-copy", "hand-over"}
    subject.policy(post_copy=trip.post_copy)
    subject.target.rate(WIRE_MBIT if slow else None)
    if trip.moment == "ask":
        name, known = f"{NAME}-{subject.number + 1}", trip.step == "when it is known"

        def restart_meanwhile() -> None:
            if known:
                subject.until(name, lambda m: True)
            restart(subject, trip)

        thread = threading.Thread(target=restart_meanwhile)
        thread.start()
        assert subject.ask() == name
        thread.join(120)
        assert not thread.is_alive()
    else:
        name = subject.ask()
    match trip.moment:
        case "prepare":
            later = PHASES[PHASES.index(trip.step) :]
            subject.until(name, lambda m: phase(m) in later)
        case "pre-copy":
            copied(subject, name, lambda m: m.progress.iteration >= 1, trip.share)
        case "hand-over":
            subject.until_data(name)
            with frozen(subject.target.libvirtd_pid):
                subject.target.rate(None)
                eventually("the switch", lambda: domain_state(subject.source) == "paused (migrating)")
                restart(subject, trip)
            return name
        case "post-copy":
            copied(subject, name, lambda m: mode(m) == "PostCopy", trip.share)
        case "settle":
            eventually("it runs there", lambda: domain_state(subject.target).startswith("running"))
            if trip.step == "when it is not here any more":
                gone = ("shut off", "error")
                eventually("it is not here", lambda: domain_state(subject.source).startswith(gone))
            elif trip.step == "when its end is told":
                subject.ended(name)
    if trip.moment not in {"", "ask"}:
        restart(subject, trip)
    if trip.post_copy:
        subject.until(name, lambda m: mode(m) == "PostCopy")
    subject.target.rate(None)
    return name


def copied(subject: Subject, name: str, begun: Callable[[Migration], bool], share: float) -> None:
    """Wait until it has begun, and then until so much of what remained is copied, or the next pass begins."""
    first = subject.until(name, lambda m: begun(m) and m.progress.remaining_bytes).progress
    left = first.remaining_bytes * (1 - share)
    subject.until(
        name, lambda m: m.progress.iteration > first.iteration or m.progress.remaining_bytes <= left
    )


def domain_state(node: Node) -> str:
    return node.run("sh", "-c", f"virsh -q domstate default_{NAME} --reason 2>&1 || true").strip()


def has(node: Node) -> Counter[str]:
    """All that a migration could leave on a node, by name."""
    return Counter(
        [
            *(f"link {line.split('@')[0].split()[0]}" for line in lines(node, "ip", "-br", "link")),
            *(f"mount {line}" for line in lines(node, "findmnt", "-rno", "TARGET,FSTYPE")),
            *(f"rule {line}" for line in lines(node, "nft", "list", "ruleset")),
            *(f"domain {line}" for line in lines(node, "virsh", "-q", "list", "--all", "--name")),
            *(f"port {line.split()[3]}" for line in lines(node, "ss", "-Hltn")),
            *(f"process {line}" for line in lines(node, "ps", "-e", "-o", "comm=")),
            *(f"file {name}" for name in files(node)),
            *(f"row {name}" for name in rows(node)),
        ]
    )


def changes(node: Node, before: Counter[str]) -> list[str]:
    """What is there and was not before, and the other way round."""
    now = has(node)
    added, lost = (now - before).elements(), (before - now).elements()
    return [*(f"+ {name}" for name in added), *(f"- {name}" for name in lost)]


def lines(node: Node, *argv: str) -> list[str]:
    return [line for line in node.run(*argv).splitlines() if line.strip()]


def files(node: Node) -> Iterator[str]:
    for folder in FOLDERS:
        root = node.layout.outside(folder)
        for path in root.rglob("*"):
            name = f"{folder}/{path.relative_to(root)}"
            if not KEPT_ON_PURPOSE.search(name):
                yield re.sub(r"domain-\d+-", "domain-N-", name)


def rows(node: Node) -> Sequence[str]:
    """What the agent remembers, but for ended migrations: those that left are bounded in number, those that
    came are forgotten after an hour."""
    database = node.layout.outside("/var/lib/launcher/launcher.db")
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as open_one:
        documents = open_one.execute("SELECT kind, length(record) FROM documents").fetchall()
        steps = open_one.execute("SELECT step FROM journal").fetchall()
        instances = open_one.execute("SELECT uid FROM instances").fetchall()
    kinds = Counter(str(kind) for kind, _ in documents)
    assert kinds["outgoing"] <= KEPT
    over = [kind for kind, size in documents if size > ENDED.get(kind, 0)]
    return [
        *(f"document {kind}" for kind in over),
        *(f"journal {row[0]}" for row in steps),
        *(f"instance {row[0]}" for row in instances),
    ]


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


def test_a_hundred_migrations_leave_nothing_behind(subject: Subject) -> None:
    nodes = list(subject.nodes.values())
    assert subject.move().report.succeeded
    assert subject.move().report.succeeded
    assert subject.home == "a"
    before = [has(node) for node in nodes]
    first: list[Agent] = []
    restarted: Counter[str] = Counter()
    # libvirtd 9.0 was seen to crash at the hand-over; a node has systemd, which starts it again.
    with ExitStack() as daemons:
        crashes = [daemons.enter_context(restarting(node)) for node in nodes]
        for trip in trips():
            began = time.monotonic()
            end = subject.settled(travel(subject, trip))
            have = [agent(node) for node in nodes]
            took = f"{time.monotonic() - began:.1f} s, downtime {end.report.downtime_ms} ms"
            print(f"{trip}; {took}; {', '.join(map(str, have))}", flush=True)
            assert end.report.succeeded, f"migration {trip}: {end.report.reason}"
            assert end.report.post_copy == trip.post_copy, trip
            restarted[trip.moment] += 1
            if trip.number == COUNT - QUIET + WARM:
                first = have
    print(f"libvirtd crashed {len(crashes[0])} and {len(crashes[1])} times", flush=True)
    last = [agent(node) for node in nodes]
    assert COUNT < 50 or not set(MOMENTS) - set(restarted), restarted
    assert subject.home == "a"
    assert qemu_pid(subject.source, NAME)
    with suppress(AssertionError):  # What is there too much, or not any more, tells more than a deadline.
        eventually("as at the beginning", lambda: not any(map(changes, nodes, before)), timeout_s=90)
    assert [changes(node, had) for node, had in zip(nodes, before, strict=True)] == [[], []]
    for early, late in zip(first, last, strict=True):
        assert late.resident - early.resident < GROWTH_MIB * MIB, (first, last)
        assert late.descriptors - early.descriptors <= 4, (first, last)
        assert late.threads - early.threads <= 4, (first, last)
