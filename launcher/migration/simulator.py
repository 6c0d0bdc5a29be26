# SPDX-License-Identifier: Apache-2.0
"""A small model of a pre-copy migration that drives a policy as the engine does. Pure and deterministic.

Memory is a few classes of pages, each with a size and a write rate. A pass sends what is known to be
dirty; meanwhile pages get dirty again, each at most once (that is why a guest that writes faster than
the link reaches a plateau and not infinity). When what is left fits into max_downtime at the measured
rate, dirty pages are counted again (a new pass), and if they still fit the guest is stopped and moves. A link
that is down leaves the reported rate at its last value, as QEMU does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from launcher.migration.options import QEMU_DEFAULT_DOWNTIME_MS
from launcher.migration.policy import (
    Abort,
    Action,
    Outcome,
    PauseGuest,
    Policy,
    SetMaxDowntime,
    StartPostCopy,
)
from launcher.migration.sample import Sample

STEP_S = 0.05
"""QEMU sends in batches of at most 50 ms."""
POLL_S = 0.4
OVERHEAD_S = 0.05
"""Device state and activation on the target; part of every downtime."""


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """A class of pages: bytes in all, and bytes touched per second while the guest works."""

    size: int
    write_bps: float = 0.0


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """From ``start`` to ``end`` (seconds of the job) something is scaled by ``factor``."""

    start: float
    end: float
    factor: float = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A guest and a link. ``link_bps`` is what the link can carry, ``cap_bps`` 0 or the migration's limit.

    ``link_spans`` scale the link (factor 0: it is dead), ``work_spans`` the guest's writing. Actions named in
    ``failing`` (class names) always fail. ``disk_bytes`` are copied before the memory. ``hidden_bytes`` are
    sent while the guest stands still and are in no statistics (the state of a VFIO device). Counting dirty
    pages takes ``count_s``, during which nothing is sent. In ``blind_spans`` there are no statistics, in
    ``deaf_spans`` no events of passes. ``step_s`` is the model's resolution.
    """

    pages: tuple[Pages, ...]
    link_bps: float
    cap_bps: float = 0.0
    link_spans: tuple[Span, ...] = ()
    work_spans: tuple[Span, ...] = ()
    failing: frozenset[str] = frozenset()
    disk_bytes: int = 0
    hidden_bytes: int = 0
    count_s: float = 0.0
    blind_spans: tuple[Span, ...] = ()
    deaf_spans: tuple[Span, ...] = ()
    step_s: float = STEP_S
    limit_s: float = 7200.0

    @property
    def size(self) -> int:
        """All bytes there are to move."""
        return sum(p.size for p in self.pages) + self.disk_bytes

    def link(self, t: float) -> float:
        """What the link carries at ``t``."""
        return self.link_bps * _factor(self.link_spans, t)


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: ``completed``, ``aborted`` or ``running`` (the scenario's limit came first).

    ``broken_s`` is the longest time that the link was dead in post-copy.
    """

    outcome: str
    t: float
    downtime_ms: int | None
    post_copy: bool
    broken_s: float
    samples: tuple[Sample, ...]
    outcomes: tuple[Outcome, ...]
    sent: int


def simulate(scenario: Scenario, policy: Policy[Any]) -> Simulated:
    """Run one migration under ``policy``."""
    world = _World(scenario)
    driver = _Driver(world, policy)
    driver.look(Sample(t=0.0, job="none"))
    next_poll = POLL_S
    while world.ended == "" and world.t < scenario.limit_s:
        passed = world.advance()
        if world.ended:
            break
        half = scenario.step_s / 2
        if (passed and not _within(scenario.deaf_spans, world.t)) or world.t >= next_poll - half:
            driver.look(world.sample(boundary=passed))
        while world.t >= next_poll - half:
            next_poll += POLL_S
    return Simulated(
        outcome=world.ended or "running",
        t=round(world.t, 3),
        downtime_ms=None if world.downtime_s is None else round(world.downtime_s * 1000),
        post_copy=world.post_copy,
        broken_s=round(world.broken_s, 1),
        samples=tuple(driver.samples),
        outcomes=tuple(driver.outcomes),
        sent=round(world.sent),
    )


class _Driver:
    """Plays the engine: samples in, actions out, results back."""

    def __init__(self, world: _World, policy: Policy[Any]) -> None:
        self._world = world
        self._policy = policy
        self._state: Any = policy.initial()
        self.samples: list[Sample] = []
        self.outcomes: list[Outcome] = []

    def look(self, sample: Sample) -> None:
        self.samples.append(sample)
        decision = self._policy.step(self._state, sample)
        self._state = decision.state
        for action in decision.actions:
            error = self._world.perform(action)
            outcome = Outcome(action=action, t=sample.t, error=error)
            self._state = self._policy.settle(self._state, outcome)
            self.outcomes.append(outcome)


class _World:
    """The guest, the link and QEMU's migration thread."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.known = [float(p.size) for p in scenario.pages]
        self.unknown = [0.0] * len(scenario.pages)
        self.total = scenario.size
        self.disk_left = float(scenario.disk_bytes)
        self.counting_until = 0.0
        self.dead_s = self.broken_s = 0.0
        self.t = 0.0
        self._ticks = 0
        self.passes = 1
        self.sent = 0.0
        self.rate = 0.0
        self.limit_ms = QEMU_DEFAULT_DOWNTIME_MS
        self.limit_set: int | None = None
        self.paused_at: float | None = None
        self.post_copy_asked = False
        self.post_copy = False
        self.ended = ""
        self.downtime_s: float | None = None

    def perform(self, action: Action) -> str:
        """Do it; the error, or nothing."""
        if type(action).__name__ in self._scenario.failing:
            return "refused by the scenario"
        match action:
            case SetMaxDowntime():
                self.limit_ms = self.limit_set = action.ms
            case StartPostCopy():
                self.post_copy_asked = True  # Honoured by the next batch that is sent.
            case PauseGuest():
                self.paused_at = self.t if self.paused_at is None else self.paused_at
            case Abort():
                self.ended = "aborted"
        return ""

    def advance(self) -> bool:
        """One step of time; True when a pass began."""
        self._ticks += 1
        self.t = self._ticks * self._scenario.step_s
        link = self._scenario.link(self.t)
        self._write()
        speed = min(link, self._scenario.cap_bps) if self._scenario.cap_bps else link
        if self.disk_left > 0:
            return self._send_disk(speed)
        if self.t < self.counting_until:
            return False
        self._send(speed)
        if self.post_copy:
            self.dead_s = 0.0 if speed > 0 else self.dead_s + self._scenario.step_s
            self.broken_s = max(self.broken_s, self.dead_s)
            self.ended = "completed" if sum(self.known) <= 0 else ""
            return False
        if speed <= 0:
            return False  # The migration thread is blocked in a write.
        self.rate = speed
        if self.post_copy_asked:
            self._start_post_copy()
            return False
        allowed = self.rate * self.limit_ms / 1000
        if sum(self.known) > allowed:
            return False
        self._count()
        self.passes += 1
        self.counting_until = self.t + self._scenario.count_s
        left = sum(self.known)
        if left <= allowed:
            self._stop((left + self._scenario.hidden_bytes) / link)
        return True

    def sample(self, *, boundary: bool) -> Sample:
        """What the engine would see now."""
        if _within(self._scenario.blind_spans, self.t):
            return Sample(t=round(self.t, 3), job="unbounded", max_downtime_ms=self.limit_set)
        copying = self.disk_left > 0
        paused = self.post_copy or self.paused_at is not None
        reason = "post-copy" if self.post_copy else "user" if paused else ""
        return Sample(
            t=round(self.t, 3),
            iteration=None if copying else self.passes,
            remaining=round(sum(self.known) + self.disk_left),
            processed=round(self.sent),
            total=self.total,
            bandwidth=None if copying else round(self.rate) or None,
            job_ms=round(self.t * 1000),
            max_downtime_ms=self.limit_set,
            domain="paused" if paused else "running",
            reason=reason,
            boundary=boundary,
        )

    def _write(self) -> None:
        if self.post_copy or self.paused_at is not None:
            return
        work = _factor(self._scenario.work_spans, self.t)
        for i, pages in enumerate(self._scenario.pages):
            share = pages.write_bps * work / pages.size
            self.unknown[i] += min(share * self._scenario.step_s, 1.0) * max(
                pages.size - self.unknown[i], 0.0
            )

    def _send_disk(self, speed: float) -> bool:
        amount = min(speed * self._scenario.step_s, self.disk_left)
        self.sent += amount
        self.disk_left -= amount
        return self.disk_left <= 0

    def _send(self, speed: float) -> None:
        left = sum(self.known)
        if left <= 0 or speed <= 0:
            return
        amount = min(speed * self._scenario.step_s, left)
        self.sent += amount
        self.known = [k - amount * k / left for k in self.known]
        if left - amount < 1:
            self.known = [0.0] * len(self.known)

    def _count(self) -> None:
        """Dirty pages become known: the union of what is still to send and what was written since."""
        for i, pages in enumerate(self._scenario.pages):
            clean = (1 - self.known[i] / pages.size) * (1 - self.unknown[i] / pages.size)
            self.known[i] = pages.size * (1 - clean)
            self.unknown[i] = 0.0

    def _start_post_copy(self) -> None:
        self._count()
        self.post_copy = True
        self.downtime_s = OVERHEAD_S

    def _stop(self, transfer_s: float) -> None:
        since = self.t if self.paused_at is None else self.paused_at
        self.downtime_s = self.t - since + transfer_s + OVERHEAD_S
        self.ended = "completed"


def _within(spans: tuple[Span, ...], t: float) -> bool:
    return any(span.start <= t < span.end for span in spans)


def _factor(spans: tuple[Span, ...], t: float) -> float:
    factor = 1.0
    for span in spans:
        if span.start <= t < span.end:
            factor *= span.factor
    return factor
