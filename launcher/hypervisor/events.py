# SPDX-License-Identifier: Apache-2.0
"""The event thread of libvirt, and libvirt's callbacks turned into port events. Callbacks do nothing else.

libvirt's own event loop runs in one daemon thread of the process. libvirt-python's asyncio integration
is not used: with blocking calls in threads, libvirt changes its handles and timers from those threads,
which asyncio forbids, and events get lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import libvirt

from launcher.hypervisor import stats, translate
from launcher.hypervisor.port import (
    AgentLifecycleEvent,
    DeviceKeptEvent,
    DeviceRemovedEvent,
    Event,
    IoErrorEvent,
    JobCompletedEvent,
    LifecycleEvent,
    MemoryDeviceEvent,
    MigrationIterationEvent,
    WatchdogEvent,
)

Emit = Callable[[Event], None]

HEARTBEAT_S: Final = 1.0
"""How often the event thread proves to be alive; without a timer it would also sleep for ever."""


class _EventThread:
    """libvirt's default event loop; libvirt has one for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._beat = 0.0

    def ensure(self) -> None:
        with self._lock:
            if self._started:
                return
            libvirt.registerErrorHandler(_ignore_error, None)
            libvirt.virEventRegisterDefaultImpl()
            self._tick(0, None)
            libvirt.virEventAddTimeout(int(HEARTBEAT_S * 1000), self._tick, None)
            threading.Thread(target=self._run, name="libvirt-events", daemon=True).start()
            self._started = True

    def silent_for_s(self) -> float:
        return time.monotonic() - self._beat if self._started else 0.0

    def _tick(self, _timer: int, _opaque: object) -> None:
        self._beat = time.monotonic()

    def _run(self) -> None:
        while True:
            libvirt.virEventRunDefaultImpl()


def _ignore_error(_context: object, _error: object) -> None:
    """Without a handler libvirt prints every error to stderr; all of them reach us as exceptions too."""


_thread: Final = _EventThread()


def ensure_event_thread() -> None:
    """Start the event thread unless it runs. Call it before the first libvirt connection of the process."""
    _thread.ensure()


def event_thread_silent_for_s() -> float:
    """Seconds since the event thread last turned (0 when it was never started); above 5 it is stuck."""
    return _thread.silent_for_s()


def _subscriptions(emit: Emit) -> tuple[tuple[int, Callable[..., None]], ...]:
    """The events we want, and a callback for each: it builds a port event and emits it.

    The domain that libvirt passes is only asked for what it holds locally, and never leaves the callback.
    """

    def lifecycle(_conn: Any, domain: Any, event: int, detail: int, _opaque: Any) -> None:
        emit(LifecycleEvent(domain.UUIDString(), domain.name(), *translate.event_and_detail(event, detail)))

    def iteration(_conn: Any, domain: Any, number: int, _opaque: Any) -> None:
        emit(MigrationIterationEvent(domain.UUIDString(), number))

    def job_completed(_conn: Any, domain: Any, params: dict[str, object], _opaque: Any) -> None:
        emit(JobCompletedEvent(domain.UUIDString(), stats.completed_job_stats(params)))

    def agent(_conn: Any, domain: Any, state: int, _reason: int, _opaque: Any) -> None:
        connected = state == libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
        emit(AgentLifecycleEvent(domain.UUIDString(), connected))

    def io_error(
        _conn: Any, domain: Any, _path: str, alias: str, action: int, reason: str | None, _opaque: Any
    ) -> None:
        verb = translate.named(translate.IO_ERROR_ACTIONS, action)
        emit(IoErrorEvent(domain.UUIDString(), alias, verb, reason or ""))

    def memory_device(_conn: Any, domain: Any, alias: str, size: int, _opaque: Any) -> None:
        emit(MemoryDeviceEvent(domain.UUIDString(), alias, size))

    def watchdog(_conn: Any, domain: Any, action: int, _opaque: Any) -> None:
        emit(WatchdogEvent(domain.UUIDString(), translate.named(translate.WATCHDOG_ACTIONS, action)))

    def device_removed(_conn: Any, domain: Any, alias: str, _opaque: Any) -> None:
        emit(DeviceRemovedEvent(domain.UUIDString(), alias))

    def device_kept(_conn: Any, domain: Any, alias: str, _opaque: Any) -> None:
        emit(DeviceKeptEvent(domain.UUIDString(), alias))

    return (
        (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle),
        (libvirt.VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION, iteration),
        (libvirt.VIR_DOMAIN_EVENT_ID_JOB_COMPLETED, job_completed),
        (libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, agent),
        (libvirt.VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON, io_error),
        (libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE, memory_device),
        (libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, watchdog),
        (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, device_removed),
        (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED, device_kept),
    )


def register(connection: libvirt.virConnect, emit: Emit) -> tuple[int, ...]:
    """Ask for all our events of all domains; ``emit`` is called in the event thread. Returns the ids.

    Raises:
        libvirtError: the connection is lost.
    """
    return tuple(
        connection.domainEventRegisterAny(None, number, callback, None)
        for number, callback in _subscriptions(emit)
    )
