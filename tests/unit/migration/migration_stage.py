# SPDX-License-Identifier: Apache-2.0
"""Both agents on the two hosts of ``migration_world``: ports, journals and the real source and target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from migration_world import MB, UUID, LoopClock, World, run

from launcher.errors import (
    HypervisorUnavailable,
    LauncherError,
    NotFound,
    Unavailable,
)
from launcher.hypervisor.port import (
    DomainRecord,
    DomainState,
    Event,
    JobStats,
    MigrateParams,
)
from launcher.migration.attempt import AttemptRecord, Material, Outgoing, begin, decode, encode
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.migration.policy import Policy
from launcher.migration.ports import PortPool
from launcher.migration.progress import MigrationProgress
from launcher.migration.recording import VERSION, Entry, Header
from launcher.migration.recording import encode as encode_line
from launcher.migration.reservation import Check, IncomingRecord, Reservation, tcp_endpoints
from launcher.migration.source import SourceMigration
from launcher.migration.target import TargetSide


class Host:
    """The hypervisor port of one side of the world."""

    def __init__(self, world: World, side: str) -> None:
        self._world = world
        self._side = side
        self.connected = True

    async def _call(self, name: str) -> None:
        label = f"{self._side}.{name}"
        self._world.calls.append(label)
        if self._world.hook is not None:
            await self._world.hook(label)
        await asyncio.sleep(0.002)
        if self._world.errors[label]:
            raise self._world.errors[label].pop(0)

    def _domain(self) -> DomainRecord:
        record: DomainRecord | None = getattr(self._world, self._side)
        if record is None:
            raise NotFound("domain", UUID)
        return record

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        if self._side != "source":
            return lambda: None
        self._world.listeners.append(listener)
        return lambda: self._world.listeners.remove(listener)

    async def domain_capabilities(self, arch: str, machine: str) -> tuple[str, ...]:
        return ()

    async def domain(self, uuid: str) -> DomainRecord:
        await self._call("domain")
        return self._domain()

    async def domain_xml(self, uuid: str, *, inactive: bool = False, migratable: bool = False) -> str:
        await self._call("domain_xml")
        self._domain()
        return f"<domain><uuid>{uuid}</uuid></domain>"

    async def plugged(self, uuid: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
        await self._call("plugged")
        self._domain()
        return tuple(alias for alias in aliases if alias in self._world.devices)

    async def ask_back(self, uuid: str, alias: str) -> None:
        await self._call("ask_back")
        self._domain()
        self._world.asked(alias)

    async def suspend(self, uuid: str) -> None:
        await self._call("suspend")
        self._world.put(self._side, replace(self._domain(), state=DomainState.PAUSED, reason="user"))
        self._world.guest_stopped()

    async def resume(self, uuid: str) -> None:
        await self._call("resume")
        self._world.put(self._side, replace(self._domain(), state=DomainState.RUNNING, reason="unpaused"))

    async def destroy(self, uuid: str, *, graceful: bool = True) -> None:
        await self._call("destroy")
        record: DomainRecord | None = getattr(self._world, self._side)
        half = record is not None and record.reason.startswith("post-copy")
        ends = half or self._side in self._world.expendable
        assert ends or record is None or record.state is not DomainState.RUNNING, (
            "a running guest is destroyed"
        )
        if record is not None:
            self._world.put(self._side, replace(record, state=DomainState.SHUTOFF, reason="destroyed"))

    async def undefine(self, uuid: str, *, keep_nvram: bool = False) -> None:
        await self._call("undefine")
        record: DomainRecord | None = getattr(self._world, self._side)
        assert record is None or record.state is DomainState.SHUTOFF, "a live domain is undefined"
        self._world.put(self._side, None)

    async def job_stats(self, uuid: str) -> JobStats:
        await self._call("job_stats")
        self._domain()
        return self._world.stats()

    async def completed_job_stats(self, uuid: str) -> JobStats:
        await self._call("completed_job_stats")
        self._domain()
        return self._world.completed or JobStats(kind="none")

    async def migrate(self, uuid: str, params: MigrateParams) -> None:
        await self._call("migrate")
        world = self._world
        world.params = params
        world.limits.append(("at migrate", world.limit_ms))
        world.job_task = asyncio.create_task(world.job())
        world.job_task.add_done_callback(lambda t: t.cancelled() or t.exception())
        try:
            await asyncio.shield(world.job_task)
        except asyncio.CancelledError:
            if world.job_task.cancelled():
                raise HypervisorUnavailable("the connection to libvirt is gone") from None
            raise

    async def set_max_downtime(self, uuid: str, milliseconds: int) -> None:
        await self._call("set_max_downtime")
        self._world.limit_ms = milliseconds
        self._world.limits.append(("set", milliseconds))

    async def start_postcopy(self, uuid: str) -> None:
        await self._call("start_postcopy")
        self._world.start_post_copy()

    async def abort_job(self, uuid: str) -> None:
        await self._call("abort_job")
        self._world.abort()

    async def pause_post_copy(self, uuid: str) -> None:
        await self._call("pause_post_copy")
        self._world.break_post_copy()

    async def stream_status(self, uuid: str) -> str:
        await self._call("stream_status")
        return self._world.stream_status()

    async def end_cancelled(self, uuid: str) -> None:
        await self._call("end_cancelled")
        self._world.end_cancelled()

    async def resume_stream(self, uuid: str, migrate_uri: str) -> None:
        await self._call("resume_stream")
        self._world.resume_stream(migrate_uri)


class Hooks:
    """The target agent's share, counted."""

    def __init__(self) -> None:
        self.reserved = 0
        self.released = 0
        self.cuts = 0
        self.fenced = 0
        self.reopened: list[str] = []
        self.reopen_error: LauncherError | None = None
        self.adopted = 0
        self.fail: LauncherError | None = None
        self.slow_s = 0.0
        self.uuids: dict[str, str] = {}

    async def identify(self, request: PrepareRequest) -> str:
        return self.uuids.get(request.attempt, UUID)

    async def reserve(self, request: PrepareRequest) -> Reservation:
        await asyncio.sleep(self.slow_s)
        if self.fail is not None:
            raise self.fail
        self.reserved += 1
        return Reservation(uuid=self.uuids.get(request.attempt, UUID), destination_xml="<domain/>")

    async def release(self, record: IncomingRecord) -> None:
        self.released += 1

    async def cut(self, record: IncomingRecord) -> None:
        self.cuts += 1

    async def fence(self, record: IncomingRecord) -> None:
        self.fenced += 1

    async def reopen(self, record: IncomingRecord, migrate_uri: str) -> None:
        if self.reopen_error is not None:
            raise self.reopen_error
        self.reopened.append(migrate_uri)

    async def adopt(self, record: IncomingRecord, domain: DomainRecord) -> None:
        self.adopted += 1


class IncomingJournal:
    """What the target would find after a restart."""

    def __init__(self) -> None:
        self.kept: dict[str, IncomingRecord] = {}

    async def save(self, record: IncomingRecord) -> None:
        self.kept[record.attempt] = record

    async def forget(self, attempt: str) -> None:
        self.kept.pop(attempt, None)


class Wire:
    """The way to the target's agent: it can be down, and each call can be watched."""

    def __init__(self, world: World, side: TargetSide) -> None:
        self._world = world
        self._side = side
        self.down: set[str] = set()

    async def _call(self, name: str) -> None:
        self._world.calls.append(f"peer.{name}")
        if self._world.hook is not None:
            await self._world.hook(f"peer.{name}")
        await asyncio.sleep(0.002)
        if name in self.down:
            raise Unavailable("the target's agent does not answer")

    async def prepare(self, request: PrepareRequest) -> PrepareReply:
        await self._call("prepare")
        return await self._side.prepare(request)

    async def finish(
        self, attempt: str, *, succeeded: bool, reason: str = "", reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        await self._call("finish")
        return await self._side.finish(
            attempt, succeeded=succeeded, reason=reason, reclaim=reclaim, discard=discard
        )

    async def interrupt(self, attempt: str) -> TargetState:
        await self._call("interrupt")
        return await self._side.interrupt(attempt)

    async def reopen(self, attempt: str) -> TargetState:
        await self._call("reopen")
        return await self._side.reopen(attempt)

    async def state(self, attempt: str) -> TargetState:
        await self._call("state")
        return await self._side.state(attempt)


class Notebook:
    """The source's journal: text, as a process that restarts would read it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fail: LauncherError | None = None

    async def save(self, record: AttemptRecord) -> None:
        await asyncio.sleep(0.001)
        if self.fail is not None:
            raise self.fail
        self.texts.append(encode(record))

    @property
    def last(self) -> AttemptRecord:
        return decode(self.texts[-1])


class Tape:
    """A recorder in memory: lines as a file would hold them, and those that only a flush brings there."""

    def __init__(self, outgoing: Outgoing) -> None:
        header = Header(
            version=VERSION,
            migration="default/move",
            instance="default/vm",
            attempt=outgoing.attempt,
            source_node=outgoing.source_node,
            target_node=outgoing.target_node,
            rules=outgoing.policy,
            options=outgoing.options,
            workload=outgoing.workload,
            at="2026-01-01T00:00:00Z",
        )
        self.written = encode_line(header)
        self._noted: list[bytes] = []

    def note(self, entry: Entry) -> None:
        self._noted.append(encode_line(entry))

    async def flush(self) -> None:
        self.written += b"".join(self._noted)
        self._noted = []

    def killed(self) -> None:
        """The process died with what it had only noted."""
        self._noted = []


class Stage:
    """A world with both agents; ``agent`` makes the source's, again after it was killed."""

    def __init__(
        self,
        world: World,
        options: Options | None = None,
        *,
        vfio: bool = False,
        unplug: tuple[str, ...] = (),
        checks: tuple[Check, ...] = (),
    ) -> None:
        self.world = world
        self.clock = LoopClock()
        self.notebook = Notebook()
        self.hooks = Hooks()
        self.incoming = IncomingJournal()
        self.progress: list[MigrationProgress] = []
        self.source = Host(world, "source")
        self.target = self.make_target(checks)
        self.wire = Wire(world, self.target)
        self.outgoing = Outgoing(
            attempt="attempt-1",
            namespace="default",
            name="vm",
            uuid=UUID,
            source_node="a",
            target_node="b",
            options=options or Options(),
            workload=Workload(memory_bytes=512 * MB, vfio=vfio),
            unplug=unplug,
        )
        self.tape = Tape(self.outgoing)

    def make_target(self, checks: tuple[Check, ...] = ()) -> TargetSide:
        return TargetSide(
            node="b",
            hypervisor=Host(self.world, "target"),
            hooks=self.hooks,
            checks=checks,
            ports=PortPool(49152, 49153, lambda _port: True),
            endpoints=tcp_endpoints("qemu+tls://b/system", "10.0.0.2"),
            clock=self.clock,
            journal=self.incoming,
        )

    def agent(
        self, record: AttemptRecord | None = None, policy: Policy[Any] | None = None
    ) -> SourceMigration:
        record = record or begin(self.outgoing)
        return SourceMigration(
            record,
            material=Material(vmi="{}"),
            hypervisor=self.source,
            peer=self.wire,
            policy=policy
            or make_policy(record.outgoing.policy, record.outgoing.options, record.outgoing.workload),
            clock=self.clock,
            journal=self.notebook,
            publish=self.progress.append,
            recorder=self.tape,
        )


def migrate(stage: Stage) -> AttemptRecord:
    """One attempt from begin to end, in virtual time."""

    async def main() -> AttemptRecord:
        return await stage.agent().run()

    return run(main())
