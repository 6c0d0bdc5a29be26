# SPDX-License-Identifier: Apache-2.0
"""Dumps the memory of guests into claims, and finds a dump again that outlived its agent.

The file has its name when it is whole; an earlier one goes after that, or before if there is no room for two.
libvirt cannot end such a dump: what passes its deadline is waited for, and the guest with it.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from launcher.agent import memory_dump_rules as rules
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.port import ClaimBinding
from launcher.agent.quiesce import require_running
from launcher.agent.records import MemoryDump
from launcher.agent.supervisor import Supervisor
from launcher.errors import (
    Conflict,
    Exhausted,
    HypervisorUnavailable,
    LauncherError,
    NotFound,
    WrongPhase,
)
from launcher.host.logging import get
from launcher.hypervisor.port import ConnectionEvent, Event
from launcher.storage import copies

log = get(__name__)

POLL_S: Final = 1.0
LOST: Final = "the connection to libvirt broke meanwhile"
_UNDER_WAY: Final = ("bounded", "unbounded")


class MemoryDumps:
    """The dumps of one node."""

    def __init__(self, services: Services, instances: Instances, supervisor: Supervisor) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._running: set[str] = set()

    def on_event(self, event: Event) -> None:
        """With libvirt back, see to dumps that nobody waits for."""
        if isinstance(event, ConnectionEvent) and event.up:
            for machine in self._instances.machines():
                dump = machine.record.memory_dump
                if dump is not None and dump.phase == rules.IN_PROGRESS:
                    self._spawn(machine, dump, begin=False)

    async def begin(
        self, namespace: str, name: str, claim: str, binding: ClaimBinding | None, *, volume: str = ""
    ) -> None:
        """Begin a dump; its end shows in the status.

        Raises:
            NotFound, WrongPhase, Conflict: no such instance, not running, busy.
            InvalidRequest: no claim, or one that is no directory. Exhausted: it is too small.
            StorageError: it is not there.
        """
        machine = self._instances.find(namespace, name)
        require_running(machine)
        record = machine.record
        dump = rules.new_dump(record, claim, binding, now=self._services.clock.now(), volume=volume)
        dump = replace(dump, token=secrets.token_hex(8))
        target = Path(dump.directory, dump.file)
        await asyncio.to_thread(copies.require_directory, target.parent, files=(target,))
        await asyncio.to_thread(_make_room, dump, record.name, rules.bytes_needed(record))
        await machine.update(lambda present: rules.dumping(present, dump), wake=False)
        self._spawn(machine, dump, begin=True)

    async def forget(self, namespace: str, name: str) -> None:
        """Show the last dump no more; its file stays.

        Raises:
            NotFound: there was none. Conflict: it is under way.
        """
        machine = self._instances.find(namespace, name)
        dump = machine.record.memory_dump
        if dump is None:
            raise NotFound("memory dump", machine.record.key)
        if dump.phase == rules.IN_PROGRESS:
            raise Conflict(f"{machine.record.key} is busy with its memory dump", hint="wait for it")
        await machine.update(lambda record: replace(record, memory_dump=None), wake=False)

    def _spawn(self, machine: Machine, dump: MemoryDump, *, begin: bool) -> None:
        uid = machine.record.uid
        if uid not in self._running:
            self._running.add(uid)
            work = self._run(machine, dump, begin=begin)
            self._supervisor.spawn(work, name=f"memory dump of {machine.record.key}")

    async def _run(self, machine: Machine, dump: MemoryDump, *, begin: bool) -> None:
        try:
            why = await self._dump(machine, dump) if begin else ""
            await self._until_idle(machine)
            await self._finish(machine, dump, why=why)
        except HypervisorUnavailable:
            return  # the connection's return starts this again
        except NotFound:
            await asyncio.to_thread(copies.remove_files, (_partial(dump),))  # the instance is gone
        finally:
            self._running.discard(machine.record.uid)

    async def _dump(self, machine: Machine, dump: MemoryDump) -> str:
        """Have it written; why it was not, else empty."""
        record = machine.record
        log.info("dumping memory", vmi=record.key, file=dump.file)
        try:
            await self._services.hypervisor.dump_memory(
                record.plan.identity.uuid, _partial(dump), timeout_s=rules.deadline_s(record)
            )
        except HypervisorUnavailable:
            # A guest whose libvirtd ended may have been let go on while it was written.
            await self._note(machine, replace(dump, message=LOST))
            raise
        except LauncherError as error:
            return error.message
        return ""

    async def _until_idle(self, machine: Machine) -> None:
        """Wait until libvirt dumps no more."""
        while True:
            try:
                stats = await self._services.hypervisor.job_stats(machine.record.plan.identity.uuid)
            except (WrongPhase, NotFound):
                return
            if stats.kind not in _UNDER_WAY or stats.operation != "dump":
                return
            await asyncio.sleep(POLL_S)

    async def _finish(self, machine: Machine, dump: MemoryDump, *, why: str) -> None:
        record = machine.record
        why = why or (record.memory_dump.message if record.memory_dump is not None else "")
        try:
            why = why or await asyncio.to_thread(_complete, dump, record.name)
            if why:
                await asyncio.to_thread(copies.remove_files, (_partial(dump),))
        except LauncherError as error:
            why = why or error.message
        if why:
            log.warning(f"memory was not dumped: {why}", vmi=record.key, file=dump.file)
        now = self._services.clock.now()
        await machine.update(lambda present: rules.ended(present, dump, why=why, now=now), wake=False)

    async def _note(self, machine: Machine, dump: MemoryDump) -> None:
        await machine.update(lambda record: replace(record, memory_dump=dump), wake=False)


def _partial(dump: MemoryDump) -> Path:
    token = f".{dump.token}" if dump.token else ""
    return Path(dump.directory, f".{dump.file}{token}.partial")


def _make_room(dump: MemoryDump, vmi: str, wanted: int) -> None:
    """See that there is room; an earlier dump gives way if there is not."""
    directory = Path(dump.directory)
    try:
        copies.require_bytes(directory, wanted)
    except Exhausted:
        older = rules.older_dumps(copies.names(directory), dump, vmi)
        copies.require_bytes(directory, wanted - copies.taken(directory / name for name in older))
        copies.remove_files(directory / name for name in older)


def _complete(dump: MemoryDump, vmi: str) -> str:
    """Give a whole dump its name and remove earlier ones; why it is not whole, else empty."""
    directory, partial = Path(dump.directory), _partial(dump)
    if not copies.is_whole_core(partial):
        return "the dump is not whole" if partial.exists() else "the agent was ended before it had begun"
    copies.sync_files((partial,))
    copies.rename(partial, directory / dump.file)
    older = rules.older_dumps(copies.names(directory), dump, vmi)
    copies.remove_files(directory / name for name in older)
    return ""
