# SPDX-License-Identifier: Apache-2.0
"""Families of guests and links for the simulator, and how a policy fares with them.

A family draws its parameters from ranges that real guests show: idle ones, databases, memory hogs, bursts,
checkpoints, growing load, links that slow down or die, huge and tiny guests, disks, devices with hidden
state, capped migrations, lost events. The same seed gives the same scenario.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.policy import PauseGuest, SetMaxDowntime, StartPostCopy
from launcher.migration.simulator import Pages, Scenario, Simulated, Span, simulate

MB = 10**6
GB = 10**9
GIB = 1 << 30
SLOW, FAST = 117 * MB, 1100 * MB
SHOWN_S = 3600.0
FOR_EVER = 1e9


def _memory(ram: float, *hot: tuple[float, float]) -> tuple[Pages, ...]:
    """Cold memory takes what the hot sets leave of ``ram``."""
    cold = max(ram - sum(size for size, _ in hot), 10 * MB)
    return (Pages(size=int(cold)), *(Pages(size=int(size), write_bps=rate) for size, rate in hot))


def idle(r: random.Random) -> Scenario:
    hot = r.uniform(20, 200) * MB, r.uniform(0.5, 10) * MB
    return Scenario(pages=_memory(r.uniform(2, 16) * GIB, hot), link_bps=r.choice((SLOW, FAST)))


def database(r: random.Random) -> Scenario:
    big = r.uniform(1, 8) * GB, r.uniform(0.3, 1.1) * FAST
    small = r.uniform(0.1, 0.5) * GB, r.uniform(0.2, 0.8) * FAST
    return Scenario(pages=_memory(r.uniform(16, 64) * GIB, big, small), link_bps=FAST)


def hog(r: random.Random) -> Scenario:
    ram, link = r.uniform(1, 16) * GIB, r.choice((SLOW, FAST))
    return Scenario(pages=_memory(ram, (r.uniform(0.1, 0.9) * ram, r.uniform(1.5, 10) * link)), link_bps=link)


def affordable(r: random.Random) -> Scenario:
    link = r.choice((SLOW, FAST))
    need_s, load = r.uniform(0.35, 0.8), r.uniform(2, 4)
    return Scenario(
        pages=_memory(r.uniform(2, 16) * GIB, (need_s * link, load * link / need_s)), link_bps=link
    )


def bursts(r: random.Random) -> Scenario:
    on, off, t = r.uniform(5, 90), r.uniform(10, 180), r.uniform(-90, 60)
    quiet = []
    while t < SHOWN_S:
        quiet.append(Span(start=t, end=t + off, factor=0.02))
        t += on + off
    ram, link = r.uniform(2, 8) * GIB, r.choice((SLOW, FAST))
    hot = r.uniform(0.1, 0.5) * ram, r.uniform(1.2, 4) * link
    return Scenario(pages=_memory(ram, hot), link_bps=link, work_spans=tuple(quiet))


def dips(r: random.Random) -> Scenario:
    every, length, t = r.uniform(20, 120), r.uniform(2, 10), r.uniform(0, 60)
    spans = []
    while t < SHOWN_S:
        spans.append(Span(start=t, end=t + length, factor=0.02))
        t += every
    ram, link = r.uniform(2, 8) * GIB, r.choice((SLOW, FAST))
    hot = r.uniform(0.05, 0.3) * ram, r.uniform(1.5, 3) * link
    return Scenario(pages=_memory(ram, hot), link_bps=link, work_spans=tuple(spans))


def changing(r: random.Random) -> Scenario:
    grows = r.random() < 0.5
    spans = tuple(
        Span(start=t, end=t + 10, factor=0.3 + t / 60 if grows else 2.718 ** (-t / 120))
        for t in range(0, int(SHOWN_S), 10)
    )
    link = r.choice((SLOW, FAST))
    hot = r.uniform(0.2, 2) * link, r.uniform(0.5, 2) * link
    return Scenario(pages=_memory(r.uniform(2, 8) * GIB, hot), link_bps=link, work_spans=spans)


def slower(r: random.Random) -> Scenario:
    start = r.uniform(2, 60)
    span = Span(start=start, end=start + r.uniform(20, 300), factor=r.uniform(0.1, 0.5))
    hot = r.uniform(0.2, 2) * SLOW, r.uniform(0.3, 0.8) * SLOW
    return Scenario(pages=_memory(r.uniform(2, 8) * GIB, hot), link_bps=SLOW, link_spans=(span,))


def dead(r: random.Random) -> Scenario:
    start = r.uniform(5, 90)
    end = FOR_EVER if r.random() < 0.3 else start + r.uniform(2, 120)
    hot = r.uniform(1, 8) * SLOW, r.uniform(0.5, 3) * SLOW
    span = Span(start=start, end=end, factor=0)
    return Scenario(pages=_memory(r.uniform(2, 8) * GIB, hot), link_bps=SLOW, link_spans=(span,))


def huge(r: random.Random) -> Scenario:
    ram, link = r.uniform(256, 2048) * GIB, r.uniform(4, 12) * GB
    hot = r.uniform(0.01, 0.1) * ram, r.uniform(0.3, 2) * link
    return Scenario(
        pages=_memory(ram, hot), link_bps=link, count_s=r.uniform(0.5, 3), step_s=0.2, limit_s=14400
    )


def tiny(r: random.Random) -> Scenario:
    ram = r.uniform(64, 512) * MB
    return Scenario(pages=_memory(ram, (ram / 4, r.uniform(0, 0.5) * FAST)), link_bps=FAST)


def storage(r: random.Random) -> Scenario:
    hot = r.uniform(0.05, 0.3) * GB, r.uniform(0, 0.5) * SLOW
    return Scenario(
        pages=_memory(2 * GIB, hot), link_bps=SLOW, disk_bytes=int(r.uniform(10, 60) * GB), step_s=0.1
    )


def device(r: random.Random) -> Scenario:
    hot = r.uniform(0.1, 1) * GB, r.uniform(0.3, 2) * FAST
    hidden = int(r.uniform(0.1, 1) * GB)
    return Scenario(pages=_memory(r.uniform(8, 32) * GIB, hot), link_bps=FAST, hidden_bytes=hidden)


def capped(r: random.Random) -> Scenario:
    cap = r.uniform(0.02, 0.5) * FAST
    hot = r.uniform(0.2, 2) * cap, r.uniform(0.5, 3) * cap
    return Scenario(pages=_memory(r.uniform(2, 8) * GIB, hot), link_bps=FAST, cap_bps=cap)


def hostile(r: random.Random) -> Scenario:
    start = r.uniform(5, 60)
    blind = Span(start=start, end=start + r.uniform(1, 30))
    deaf = Span(start=start + 20, end=start + 20 + r.uniform(1, 60))
    hot = r.uniform(0.2, 2) * SLOW, r.uniform(0.5, 2) * SLOW
    return Scenario(
        pages=_memory(r.uniform(2, 8) * GIB, hot), link_bps=SLOW, blind_spans=(blind,), deaf_spans=(deaf,)
    )


FAMILIES: dict[str, Callable[[random.Random], Scenario]] = {
    f.__name__: f
    for f in (
        idle,
        database,
        hog,
        affordable,
        bursts,
        dips,
        changing,
        slower,
        dead,
        huge,
        tiny,
        storage,
        device,
        capped,
        hostile,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated migration and what it would have been without deadlines."""

    family: str
    scenario: Scenario
    options: Options
    result: Simulated
    converges_s: float | None

    @property
    def aborted(self) -> bool:
        return self.result.outcome == "aborted"

    @property
    def wrong(self) -> bool:
        """Given up, although it would have ended by itself within the completion timeout."""
        gib = max(-(-self.scenario.size // GIB), 1)
        limit_s = gib * self.options.completion_timeout_per_gib_s
        return self.aborted and self.converges_s is not None and self.converges_s <= limit_s

    @property
    def lost(self) -> bool:
        """In two halves for longer than a guest's kernel bears."""
        return self.result.broken_s > 10

    @property
    def blind(self) -> int:
        """Steps that cannot be taken back, on a link that was dead then."""
        return sum(
            1
            for outcome in self.result.outcomes
            if outcome.ok
            and (
                isinstance(outcome.action, StartPostCopy | PauseGuest)
                or (isinstance(outcome.action, SetMaxDowntime) and outcome.action.ms > 100_000)
            )
            and self.scenario.link(outcome.t) == 0
        )


CONSENTS = {
    "nothing": Options(),
    "disruption": Options(allow_workload_disruption=True),
    "post-copy": Options(allow_workload_disruption=True, allow_post_copy=True),
}


def scenarios(seeds: int, families: Sequence[str] = tuple(FAMILIES)) -> list[tuple[str, Scenario]]:
    """``seeds`` scenarios of each family."""
    return [
        (name, FAMILIES[name](random.Random(f"{name}/{seed}"))) for name in families for seed in range(seeds)
    ]


def converges(scenario: Scenario) -> float | None:
    """When it would end by itself within the default downtime; None: it does not within an hour."""
    never = Options(completion_timeout_per_gib_s=0, progress_timeout_s=0)
    result = _simulated(scenario, "fixed", never)
    return result.t if result.outcome == "completed" else None


def play(
    policy: str, consent: str, drawn: Sequence[tuple[str, Scenario]], ends: Sequence[float | None]
) -> list[Run]:
    """Each scenario under one policy; ``ends`` is ``converges`` of each."""
    options = CONSENTS[consent]
    return [
        Run(
            family=family,
            scenario=scenario,
            options=_options(scenario, options),
            result=_simulated(scenario, policy, options),
            converges_s=end,
        )
        for (family, scenario), end in zip(drawn, ends, strict=True)
    ]


def _options(scenario: Scenario, options: Options) -> Options:
    return Options(
        allow_post_copy=options.allow_post_copy,
        allow_workload_disruption=options.allow_workload_disruption,
        completion_timeout_per_gib_s=options.completion_timeout_per_gib_s,
        progress_timeout_s=options.progress_timeout_s,
        bandwidth_bps=int(scenario.cap_bps),
        ramp_asked=True,
    )


def _simulated(scenario: Scenario, policy: str, options: Options) -> Simulated:
    workload = Workload(
        memory_bytes=sum(p.size for p in scenario.pages),
        disk_bytes=scenario.disk_bytes,
        vfio=bool(scenario.hidden_bytes),
    )
    return simulate(scenario, make_policy(policy, _options(scenario, options), workload))


def summary(runs: Sequence[Run]) -> dict[str, str]:
    """One row of the table."""
    done = [r for r in runs if r.result.outcome == "completed"]
    downtimes = sorted((r.result.downtime_ms or 0) / 1000 for r in done)
    times = [r.result.t * r.scenario.link_bps / r.scenario.size for r in done]
    return {
        "done": str(len(done)),
        "aborted": str(sum(r.aborted for r in runs)),
        "wrongly": str(sum(r.wrong for r in runs)),
        "never": str(sum(r.result.outcome == "running" for r in runs)),
        "post-copy": str(sum(r.result.post_copy for r in runs)),
        "broken": str(sum(r.lost for r in runs)),
        "blind": str(sum(r.blind for r in runs)),
        "time": f"{statistics.mean(times):.2f}" if times else "-",
        "down p50": f"{statistics.median(downtimes):.2f}" if downtimes else "-",
        "p90": f"{downtimes[int(len(downtimes) * 0.9)]:.2f}" if downtimes else "-",
        "max": f"{downtimes[-1]:.2f}" if downtimes else "-",
        "bytes": f"{statistics.mean(r.result.sent / r.scenario.size for r in runs):.2f}",
    }
