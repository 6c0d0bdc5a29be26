# SPDX-License-Identifier: Apache-2.0
"""Two hosts in memory, for faults that real ones do not show on demand. Time is virtual: nothing sleeps.

``World`` holds the guest on both sides and the job as libvirtd would run it, independent of any agent.
It asserts at every change that the guest never runs twice.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from launcher.errors import (
    HypervisorError,
    LauncherError,
    MigrationAborted,
    MigrationFailed,
    WrongPhase,
)
from launcher.hypervisor.port import (
    ConnectionEvent,
    DeviceKeptEvent,
    DeviceRemovedEvent,
    DomainRecord,
    DomainState,
    Event,
    JobCompletedEvent,
    JobStats,
    LifecycleEvent,
    MigrateFlag,
    MigrateParams,
    MigrationIterationEvent,
)

T = TypeVar("T")
UUID = "6f0f1c8e-0000-4000-8000-000000000001"
MB = 10**6


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer instead of passing."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self._virtual = 1000.0
        real = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout is None:
                raise RuntimeError("deadlock: nothing is ready and no timer is set")
            self._virtual += max(timeout, 0.0)
            return real(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._virtual


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class LoopClock:
    """The loop's time; the time of day counts along."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> str:
        return f"2026-01-01T00:00:00Z+{self.monotonic():.1f}"


class World:
    """One guest, two libvirtds and the job between them.

    ``duration_s`` None: it does not converge by itself. ``fault`` happens at its end (or when
    ``fault_s`` passed): see ``_end``.
    """

    def __init__(self, *, duration_s: float | None = 6.0, pass_s: float = 1.0, fault: str = "") -> None:
        self.duration_s = duration_s
        self.pass_s = pass_s
        self.fault = fault
        self.moving = True
        self.source: DomainRecord | None = _domain(DomainState.RUNNING, "booted")
        self.target: DomainRecord | None = None
        self.calls: list[str] = []
        self.hook: Callable[[str], Awaitable[None]] | None = None
        self.errors: dict[str, list[LauncherError]] = defaultdict(list)
        self.params: MigrateParams | None = None
        self.limit_ms = 300
        self.limits: list[tuple[str, int]] = []
        self.events_lost = False
        self.listeners: list[Callable[[Event], None]] = []
        self.job_task: asyncio.Task[None] | None = None
        self.iteration = 0
        self.began: float | None = None
        self.sent = 0
        self.completed: JobStats | None = None
        self.post_copy_honoured = True
        self.post_copy_s = 2.0
        self.resume_errors: list[str] = []
        self.expendable: set[str] = set()
        """Sides whose running copy is one too many."""
        self.flows = False
        self.misses_abort = ""
        """The stream's state that an abort leaves behind, when it needs help to end the job."""
        self._aborted = False
        self._keeps = False
        self.devices: set[str] = set()
        """Aliases of what the guest has of its host; a job begins only without."""
        self.gives_back_s: float | None = 0.3
        """So long a guest takes to give a device back; None: it refuses."""
        self._abort = asyncio.Event()
        self._post_copy = asyncio.Event()
        self._paused_end = asyncio.Event()
        self._broken = asyncio.Event()

    # What the tests look at ------------------------------------------------------------------------------

    def put(self, side: str, record: DomainRecord | None) -> None:
        """Change a side and hold the invariant: never two running copies."""
        setattr(self, side, record)
        assert len(self.running) < 2 or self.expendable, "the guest runs twice"

    @property
    def running(self) -> list[str]:
        return [
            side
            for side, d in (("source", self.source), ("target", self.target))
            if d is not None and d.state is DomainState.RUNNING
        ]

    def emit(self, event: Event) -> None:
        if not self.events_lost:
            for listener in tuple(self.listeners):
                listener(event)

    def asked(self, alias: str) -> None:
        """The guest is asked for a device."""
        loop = asyncio.get_running_loop()
        if self.gives_back_s is None:
            loop.call_later(0.1, lambda: self.emit(DeviceKeptEvent(UUID, f"ua-{alias}")))
        elif alias in self.devices:
            loop.call_later(self.gives_back_s, lambda: self._given_back(alias))

    def _given_back(self, alias: str) -> None:
        self.devices.discard(alias)
        self.emit(DeviceRemovedEvent(UUID, f"ua-{alias}"))

    def disconnect(self) -> None:
        """The agent's connection to the source's libvirtd breaks; the job goes on."""
        self.emit(ConnectionEvent(up=False, why="test"))

    # The job, as libvirtd runs it ------------------------------------------------------------------------

    def stats(self) -> JobStats:
        if self.began is None:
            return JobStats(kind="none")
        elapsed = asyncio.get_running_loop().time() - self.began
        if self.moving:
            self.sent = round(elapsed * 40 * MB)
        return JobStats(
            kind="unbounded",
            operation="migration-out",
            time_elapsed_ms=round(elapsed * 1000),
            data_total=512 * MB,
            data_processed=self.sent,
            data_remaining=max(512 * MB - self.sent % (400 * MB), 0),
            memory_bps=40 * MB,
            memory_iteration=self.iteration or None,
            memory_dirty_rate_pages=1000,
            memory_page_size=4096,
        )

    async def job(self) -> None:
        """The migration until its end; raises what the migrate call would."""
        if self.params is not None and MigrateFlag.POSTCOPY_RESUME in self.params.flags:
            return await self._resumed()
        assert not self.devices, "a migration begins while the guest has devices of its host"
        self.put("target", _domain(DomainState.PAUSED, "migration"))
        await asyncio.sleep(0.3)
        self.began = began = asyncio.get_running_loop().time()
        self.iteration = 1
        while True:
            self.emit(MigrationIterationEvent(uuid=UUID, iteration=self.iteration))
            abort = asyncio.ensure_future(self._abort.wait())
            post_copy = asyncio.ensure_future(self._post_copy.wait())
            stopped = asyncio.ensure_future(self._paused_end.wait())
            await asyncio.wait(
                {abort, post_copy, stopped}, timeout=self.pass_s, return_when="FIRST_COMPLETED"
            )
            for waiting in (abort, post_copy, stopped):
                waiting.cancel()
            if self._abort.is_set():
                self._over("cancelled")
                self.put("target", None)
                raise MigrationAborted("job 'migration out' canceled by client")
            if self._post_copy.is_set():
                return await self._in_post_copy()
            elapsed = asyncio.get_running_loop().time() - began
            done = self.duration_s is not None and elapsed >= self.duration_s
            if done or self._paused_end.is_set():
                return await self._end()
            self.iteration += 1

    async def _in_post_copy(self) -> None:
        self.put("source", _domain(DomainState.PAUSED, "post-copy"))
        self.put("target", _domain(DomainState.RUNNING, "post-copy"))
        self.emit(LifecycleEvent(uuid=UUID, name="default_vm", event="suspended", detail="post-copy"))
        broken = asyncio.ensure_future(self._broken.wait())
        await asyncio.wait({broken}, timeout=self.post_copy_s)
        broken.cancel()
        if self.fault == "post-copy" or self._broken.is_set():
            self._broken.clear()
            self._over("failed")
            if self._keeps:
                raise HypervisorError("domain is not running")
            self.put("source", _domain(DomainState.PAUSED, "post-copy-failed"))
            self.put("target", _domain(DomainState.RUNNING, "post-copy-failed"))
            raise HypervisorError("job 'migration in' failed in post-copy phase")
        self._handed_over()

    async def _resumed(self) -> None:
        """Post-copy goes on over a new connection, unless ``resume_errors`` has something against it."""
        await asyncio.sleep(0.3)
        if self.resume_errors:
            raise HypervisorError(self.resume_errors.pop(0))
        self.fault = ""
        self.began = asyncio.get_running_loop().time()
        return await self._in_post_copy()

    async def _end(self) -> None:
        paused = self.params is not None and MigrateFlag.PAUSED in self.params.flags
        if self.fault == "stream":
            self._over("failed")
            self.put("target", None)
            raise HypervisorError("operation failed: stream closed")
        if self.fault == "guest-off":
            self._over("failed")
            self.put("source", _domain(DomainState.SHUTOFF, "shutdown"))
            self.put("target", None)
            raise HypervisorError("domain is not running")
        if not paused:
            self.put("source", _domain(DomainState.PAUSED, "migration"))
        await asyncio.sleep(0.05)
        if self.fault.startswith("switch-"):
            self._over("failed")
            self.put("target", _SWITCH_FAULTS[self.fault])
            raise HypervisorError("lost connection in the middle of the switchover")
        self._handed_over(paused=paused)

    def _handed_over(self, *, paused: bool = False) -> None:
        self.put("source", _domain(DomainState.SHUTOFF, "migrated"))
        state = DomainState.PAUSED if paused else DomainState.RUNNING
        self.put("target", _domain(state, "user" if paused else "migrated"))
        self._over("completed")

    def _over(self, kind: str) -> None:
        stats = replace(self.stats(), kind=kind, downtime_ms=123, memory_total=512 * MB, setup_time_ms=9)
        self.began = None
        self.completed = stats
        self.emit(JobCompletedEvent(uuid=UUID, stats=stats))

    def kill_libvirtd(self) -> None:
        """The source's libvirtd restarts in pre-copy: the job is cancelled, the guest goes on."""
        assert self.job_task is not None
        self.job_task.cancel()
        self.began = None
        self.put("target", None)

    def abort(self) -> None:
        if self.began is None:
            raise WrongPhase("no job is active on the domain")
        self._aborted = True
        if self.misses_abort == "cancelling":
            self.put("source", _domain(DomainState.PAUSED, "migration"))
        elif not self.misses_abort:
            self._abort.set()

    def end_cancelled(self) -> None:
        """QEMU is let go on."""
        if self.stream_status() != "cancelling":
            raise MigrationFailed("Migration not in expected state")
        self._abort.set()

    def break_post_copy(self) -> None:
        if self.source is None or self.source.reason != "post-copy":
            raise WrongPhase("the migration is not in post-copy")
        self._broken.set()

    def break_now(self, *, keep: bool = False) -> None:
        """The job ends here; with ``keep`` neither side says anything new of it."""
        self._keeps = keep
        self._broken.set()

    def stream_status(self) -> str:
        if self._aborted and self.misses_abort:
            return self.misses_abort
        interrupted = self.source is not None and self.source.reason == "post-copy-failed"
        return "postcopy-paused" if interrupted and not self.flows else "postcopy-active"

    def resume_stream(self, uri: str) -> None:
        """As libvirt sees it: nothing, until it completed."""
        if self.stream_status() != "postcopy-paused":
            raise MigrationFailed("Cannot resume if there is no paused migration")
        self.flows, self.fault = True, ""
        asyncio.get_running_loop().call_later(self.post_copy_s, self._handed_over)

    def start_post_copy(self) -> None:
        if self.post_copy_honoured:
            self._post_copy.set()

    def guest_stopped(self) -> None:
        if self._aborted and self.misses_abort == "cancelled":
            self._abort.set()
        else:
            self._paused_end.set()


_SWITCH_FAULTS: dict[str, DomainRecord | None] = {}


def _domain(state: DomainState, reason: str) -> DomainRecord:
    return DomainRecord(uuid=UUID, name="default_vm", state=state, reason=reason, persistent=True)


_SWITCH_FAULTS.update(
    {
        "switch-none": None,
        "switch-incoming": _domain(DomainState.PAUSED, "migration"),
        "switch-running": _domain(DomainState.RUNNING, "migrated"),
    }
)
