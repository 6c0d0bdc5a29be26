# SPDX-License-Identifier: Apache-2.0
"""Empties the node: moves its instances to others, as many at a time as may, and says what stays and why.

Every move is an ordinary migration: it goes on when who asked for the drain has left, or the agent restarts;
only what has not begun then does not begin.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import msgspec

from launcher.agent.destinations import destination
from launcher.agent.drain_plan import (
    Candidate,
    Leaving,
    choose,
    in_order,
    is_there,
    predicted_s,
    refusals,
    stays,
)
from launcher.agent.instances import Instances
from launcher.agent.ledger import reserved_memory
from launcher.agent.machine import Machine
from launcher.agent.migration_options import link_bps, outbound_limit
from launcher.agent.migrations import KIND, Migrations
from launcher.agent.peers import peer_of
from launcher.agent.port import Capacity, DrainRequest, DrainStep, MigrationView
from launcher.errors import LauncherError, NotFound
from launcher.host.config import Config
from launcher.migration.cause import Cause
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)

PRIORITY = "system-critical"
"""Of the migrations of a drain: whoever waits for an empty node waits for all of them."""
TRY_ANOTHER = frozenset({Cause.REFUSED.value, Cause.TARGET_UNREACHABLE.value})
ASK_TIMEOUT_S = 5.0
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Drains:
    """Implements ``DrainPort``."""

    def __init__(self, config: Config, instances: Instances, migrations: Migrations) -> None:
        self._config = config
        self._instances = instances
        self._migrations = migrations

    async def capacity(self) -> Capacity:
        """See ``DrainPort``."""
        records = self._migrations.incoming.records
        arriving = sum(1 for record in records if not record.adopted and not record.released)
        why = ""
        if not self._config.migration.address:
            why = "it takes no migrations: migration.address is not configured"
        elif self._instances.draining:
            why = "it is being drained itself"
        return Capacity(
            memory_left=(await self._instances.site(None, "")).ledger.memory_left(),
            inbound_left=max(0, self._config.migration.inbound - arriving),
            why=why,
        )

    async def drain(self, request: DrainRequest) -> AsyncIterator[DrainStep]:
        """See ``DrainPort``."""
        machines = self._chosen(request)
        if request.undo:
            for machine in machines:
                await _mark(machine, marked=False)
            return
        targets = self._targets(request)
        self._instances.draining += 0 if request.dry_run or request.instances else 1
        try:
            async for step in self._all(machines, targets, request):
                yield step
        finally:
            self._instances.draining -= 0 if request.dry_run or request.instances else 1

    async def _all(
        self, machines: tuple[Machine, ...], targets: tuple[str, ...], request: DrainRequest
    ) -> AsyncIterator[DrainStep]:
        leaving: dict[str, tuple[Leaving, Machine]] = {}
        for machine in machines:
            why = stays(machine.record, unset=self._config.eviction_strategy)
            if not request.dry_run and (not why or "External" in why):
                await _mark(machine, marked=True)
            try:
                if not why:
                    leaving[machine.record.key] = (await self._predicted(machine), machine)
            except LauncherError as error:
                await _mark(machine, marked=False)
                why = str(error)
            if why:
                yield _step(machine, "stays", reason=why)
        order = [leaving[one.key] for one in in_order(one for one, _ in leaving.values())]
        steps: asyncio.Queue[DrainStep | None] = asyncio.Queue()
        work = asyncio.create_task(self._move_all(order, targets, steps, dry_run=request.dry_run))
        work.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step
            await work  # a bug in it is told like any other
        finally:
            work.cancel()

    async def _move_all(
        self,
        order: list[tuple[Leaving, Machine]],
        targets: tuple[str, ...],
        steps: asyncio.Queue[DrainStep | None],
        *,
        dry_run: bool,
    ) -> None:
        places, given = asyncio.Semaphore(outbound_limit(self._config)), dict[str, int]()
        async with asyncio.TaskGroup() as group:
            for leaving, machine in order:
                await places.acquire()

                async def move(leaving: Leaving = leaving, machine: Machine = machine) -> None:
                    try:
                        move = _Move(self._migrations, self._config, machine, leaving, targets, given, steps)
                        await (move.plan() if dry_run else move.run())
                    finally:
                        places.release()

                group.create_task(move())

    async def _predicted(self, machine: Machine) -> Leaving:
        record = machine.record
        outgoing = await self._migrations.preview(machine)
        size = outgoing.workload.memory_bytes + outgoing.workload.disk_bytes
        seconds = predicted_s(size, cap=outgoing.options.bandwidth_bps, link=link_bps(self._config))
        memory = reserved_memory(record.plan, record.defaulted)
        return Leaving(key=record.key, memory=memory, predicted_s=seconds)

    def _chosen(self, request: DrainRequest) -> tuple[Machine, ...]:
        found = {m.record.key: m for m in self._instances.machines() if is_there(m.record)}
        for key in request.instances:
            if key not in found:
                raise NotFound("VirtualMachineInstance", key)
        wanted = request.instances or tuple(found)
        return tuple(found[key] for key in dict.fromkeys(wanted))

    def _targets(self, request: DrainRequest) -> tuple[str, ...]:
        peers = self._config.peers
        for target in request.targets or peers:
            destination(self._config, target, field="targets")
        return tuple(dict.fromkeys(request.targets or sorted(peers)))


class _Move:
    """One instance on its way out."""

    def __init__(
        self,
        migrations: Migrations,
        config: Config,
        machine: Machine,
        leaving: Leaving,
        targets: tuple[str, ...],
        given: dict[str, int],
        steps: asyncio.Queue[DrainStep | None],
    ) -> None:
        self._migrations = migrations
        self._config = config
        self._machine = machine
        self._leaving = leaving
        self._targets = targets
        self._given = given
        self._steps = steps
        self._tried: dict[str, str] = {}

    async def plan(self) -> None:
        """Only say where it would go."""
        nodes = await self._look()
        target = self._pick(nodes)
        if target:
            self._tell("would move", target=target)
        else:
            self._tell("stays", reason=refusals(self._leaving.memory, nodes, self._tried))

    async def run(self) -> None:
        """Move it to the first node that takes it."""
        if self._machine.record.outgoing:
            await self._follow(self._machine.record.outgoing)
            return
        while True:
            nodes = await self._look()
            target = self._pick(nodes)
            if not target:
                await self._stays(refusals(self._leaving.memory, nodes, self._tried))
                return
            try:
                made = await self._migrations.create(self._manifest(), target=target)
            except LauncherError as error:
                await self._stays(str(error))
                return
            metadata = made.metadata or ObjectMeta()
            self._tell("moving", target=target, migration=metadata.name or "")
            last = await self._end(metadata)
            if await self._told(last, target, metadata.name or ""):
                return

    async def _follow(self, attempt: str) -> None:
        """It was on its way already."""
        for view in self._migrations.list(None):
            metadata = view.object.metadata or ObjectMeta()
            if metadata.uid == attempt:
                state = view.object.status.migration_state if view.object.status is not None else None
                target = (state.target_node if state is not None else "") or ""
                self._tell("moving", target=target, migration=metadata.name or "")
                if not await self._told(await self._end(metadata), target, metadata.name or ""):
                    await self._stays(f"{target}: {self._tried[target]}")
                return
        await self._stays("it is held by a migration that ended in doubt")

    async def _told(self, last: MigrationView | None, target: str, name: str) -> bool:
        """Say how a migration ended; False: another node may be tried."""
        report = last.report if last is not None else None
        if report is not None and report.succeeded:
            self._tell("moved", target=target, migration=name)
            return True
        reason = report.reason if report is not None else "its migration was deleted"
        if last is not None and _cause(last) in TRY_ANOTHER:
            self._tried[target] = reason
            return False
        await self._stays(reason, target=target, migration=name)
        return True

    async def _end(self, metadata: ObjectMeta) -> MigrationView | None:
        last = None
        async for view in self._migrations.watch_one(metadata.namespace or "", metadata.name or ""):
            last = view
        return last

    async def _look(self) -> tuple[Candidate, ...]:
        return tuple(await asyncio.gather(*(self._ask(target) for target in self._targets)))

    async def _ask(self, target: str) -> Candidate:
        peer = peer_of(self._config.peers.get(target, target), self._config.tls)
        try:
            found = await peer.capacity(timeout_s=ASK_TIMEOUT_S)
        except LauncherError as error:
            return Candidate(name=target, why=str(error))
        finally:
            await peer.close()
        return Candidate(
            name=target,
            memory_left=found.memory_left,
            inbound_left=found.inbound_left,
            why=found.why,
        )

    def _pick(self, nodes: tuple[Candidate, ...]) -> str:
        target = choose(self._leaving.memory, nodes, self._given, self._tried)
        if target:
            self._given[target] = self._given.get(target, 0) + 1
        return target

    async def _stays(self, reason: str, *, target: str = "", migration: str = "") -> None:
        await _mark(self._machine, marked=False)
        self._tell("stays", reason=reason, target=target, migration=migration)

    def _tell(self, state: str, *, reason: str = "", target: str = "", migration: str = "") -> None:
        step = _step(self._machine, state, reason=reason, target=target, migration=migration)
        self._steps.put_nowait(msgspec.structs.replace(step, predicted_s=self._leaving.predicted_s))

    def _manifest(self) -> VirtualMachineInstanceMigration:
        record = self._machine.record
        suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
        return VirtualMachineInstanceMigration(
            api_version="kubevirt.io/v1",
            kind=KIND,
            metadata=ObjectMeta(name=f"drain-{record.name}-{suffix}", namespace=record.namespace),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name=record.name, priority=PRIORITY),
        )


async def _mark(machine: Machine, *, marked: bool) -> None:
    """``status.evacuationNodeName``: somebody wants it away from here."""
    if machine.record.evacuating != marked and not machine.gone:
        await machine.update(lambda record: msgspec.structs.replace(record, evacuating=marked))


def _cause(view: MigrationView) -> str:
    status = view.object.status
    return next((c.reason or "" for c in (status.conditions if status is not None else ())), "")


def _step(
    machine: Machine,
    state: str,
    *,
    reason: str = "",
    target: str = "",
    migration: str = "",
) -> DrainStep:
    return DrainStep(
        namespace=machine.record.namespace,
        name=machine.record.name,
        state=state,
        target=target,
        migration=migration,
        reason=reason,
    )
