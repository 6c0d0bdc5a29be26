# SPDX-License-Identifier: Apache-2.0
"""Lanes: bounded sets of threads for blocking calls, with deadlines and a cap for each domain. No libvirt.

A call that passes its deadline cannot be interrupted: its caller gets TimedOut, its thread stays with it
until the call returns. So that one hung domain cannot eat a lane, a domain holds at most ``per_domain``
threads of it; further calls wait, and are refused at once when all of these threads are overdue. A
lane with 8 threads and 2 for each domain thus serves the others with up to 3 domains hung.

Threads are daemons on purpose (concurrent.futures joins its own at exit): a hung call must not keep the
process from ending. All bookkeeping happens on the event loop, so it needs no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from launcher.errors import Conflict, TimedOut

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class _Job(Generic[T]):
    """One call on its way through a lane."""

    work: Callable[[], T]
    domain: str
    future: asyncio.Future[T]
    started: bool = False
    overdue: bool = False
    finished: bool = False


@dataclass(slots=True, kw_only=True)
class Lane:
    """``threads`` threads for one sort of call; ``per_domain`` of them at most for one domain.

    ``waits=False`` makes a lane in which nobody queues: a call that cannot start at once is refused.
    Use a lane from one event loop only.
    """

    name: str
    threads: int
    per_domain: int
    waits: bool = True
    _waiting: deque[_Job[Any]] = field(default_factory=deque, init=False)
    _running: Counter[str] = field(default_factory=Counter, init=False)
    _overdue: Counter[str] = field(default_factory=Counter, init=False)
    _work: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue, init=False)
    _spawned: int = field(default=0, init=False)

    async def run(self, work: Callable[[], T], *, what: str, domain: str = "", timeout_s: float | None) -> T:
        """Run ``work`` in a thread of this lane and return what it returns.

        ``timeout_s`` counts from now, waiting for a thread included; None: no deadline. ``domain`` is
        whom the call may hang with, empty for calls that hang with nobody in particular.

        Raises:
            TimedOut: the deadline passed; the call may still take effect later.
            Conflict: the domain has as many overdue calls as it may have threads, or this lane does not
                queue and is full.
        """
        if domain and self._overdue[domain] >= self.per_domain:
            raise Conflict(
                f"{what}: {self._overdue[domain]} earlier call(s) on domain {domain} have not returned",
                hint="its QEMU process does not answer; deleting the instance with force ends it",
            )
        job: _Job[T] = _Job(work=work, domain=domain, future=asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._dispatch()
        if not (job.started or self.waits):
            self._waiting.remove(job)
            raise Conflict(f"{what}: {self._why_full(domain)}")
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                return await job.future
        except TimeoutError as error:
            if job.finished or not deadline.expired():  # it ended in the same instant, or raised this itself
                return job.future.result()
            raise self._timed_out(job, what, timeout_s or 0) from error
        finally:
            if not job.started:
                self._waiting.remove(job)

    def close(self) -> None:
        """Let idle threads end; those inside a call end after it."""
        for _ in range(self._spawned):
            self._work.put(None)

    def _why_full(self, domain: str) -> str:
        if domain and self._running[domain] >= self.per_domain:
            return f"{self._running[domain]} {self.name} call(s) of domain {domain} are in progress"
        return f"all {self.threads} threads for {self.name} calls are in use"

    def _timed_out(self, job: _Job[Any], what: str, timeout_s: float) -> TimedOut:
        if not job.started:
            return TimedOut(f"{what}: not begun within {timeout_s:g} s; {self._why_full(job.domain)}")
        job.overdue = True
        self._overdue[job.domain] += 1
        return TimedOut(f"{what}: no answer within {timeout_s:g} s", hint="it may still take effect later")

    def _dispatch(self) -> None:
        """Start every waiting call, oldest first, that has a thread and does not pass its domain's cap."""
        for job in list(self._waiting):
            if self._running.total() >= self.threads:
                return
            if job.domain and self._running[job.domain] >= self.per_domain:
                continue
            self._waiting.remove(job)
            self._start(job)

    def _start(self, job: _Job[Any]) -> None:
        job.started = True
        if self._running.total() >= self._spawned:
            self._spawned += 1
            name = f"{self.name}-{self._spawned}"
            threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True).start()
        self._running[job.domain] += 1
        self._work.put(_carry(job, asyncio.get_running_loop(), self._finished))

    def _finished(self, job: _Job[Any], result: Any, error: BaseException | None) -> None:
        job.finished = True
        _decrement(self._running, job.domain)
        if job.overdue:
            _decrement(self._overdue, job.domain)
        if not job.future.done():  # else the caller gave up
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        self._dispatch()


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _serve(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (step := work.get()) is not None:
        step()
        del step  # an idle thread must not keep the last call's objects alive


def _carry(
    job: _Job[T],
    loop: asyncio.AbstractEventLoop,
    finished: Callable[[_Job[T], T | None, BaseException | None], None],
) -> Callable[[], None]:
    """What a thread does: the call, and its outcome, whatever it is, carried to the loop."""

    def step() -> None:
        result, failure = None, None
        try:
            result = job.work()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller, none is lost
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finished, job, result, failure)

    return step
