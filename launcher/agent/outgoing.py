# SPDX-License-Identifier: Apache-2.0
"""Runs outgoing migrations: one task each, through restarts of agent and libvirtd, to a written end."""

from __future__ import annotations

import asyncio

import msgspec

from launcher.agent.departure import doubt, material
from launcher.agent.entries import keep
from launcher.agent.hostfacts import HostFacts
from launcher.agent.instances import Instances
from launcher.agent.landing import places
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_options import outbound_limit
from launcher.agent.migration_queue import Slots
from launcher.agent.migration_status import OutgoingEntry, migration_state, view
from launcher.agent.outgoing_ends import before_the_end, ended, failed, outdated, over, require_in_doubt
from launcher.agent.peers import GrpcPeer, peer_of
from launcher.agent.port import MigrationView
from launcher.agent.recordings import Recordings, header_of
from launcher.agent.release import released
from launcher.agent.reminder import remind
from launcher.agent.settlement import settled
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import HypervisorUnavailable, LauncherError, NotFound, WrongPhase
from launcher.host.config import Config
from launcher.host.logging import get
from launcher.migration.again import again
from launcher.migration.attempt import AttemptRecord, CancelAnswer, Cause, Phase, reopened
from launcher.migration.compose import make_policy
from launcher.migration.progress import MigrationProgress
from launcher.migration.source import SourceMigration
from launcher.spec.codec import dec_hook

log = get(__name__)

KIND = "outgoing"
LET_GO_S = 30.0
"""So long the end of a migration is held back until this node has let go of the guest that left."""
CONFIRM_AGAIN_S = 10.0
CONFIRM_TRIES = 360
"""A target that is away after the guest arrived there is asked for an hour."""


class OutgoingRuns:
    """The entries by ``namespace/name`` and the task of each that has not ended."""

    def __init__(
        self,
        config: Config,
        services: Services,
        instances: Instances,
        facts: HostFacts,
        supervisor: Supervisor,
        hub: Hub[MigrationView],
        recordings: Recordings,
    ) -> None:
        self._config = config
        self._services = services
        self._instances = instances
        self._facts = facts
        self._supervisor = supervisor
        self._hub = hub
        self._entries: dict[str, OutgoingEntry] = {}
        self._progress: dict[str, MigrationProgress] = {}
        self._engines: dict[str, SourceMigration] = {}
        self._peers: dict[str, GrpcPeer] = {}
        self._slots = Slots(outbound_limit(config))
        self._at_once: dict[str, asyncio.Event] = {}
        self._settling: set[str] = set()
        self._recordings = recordings
        self._connected = asyncio.Event()

    async def load(self) -> None:
        """Take up the entries of the store; those that have not ended, or not told their instance, go on."""
        held = {record.outgoing for record in self._instances.records()}
        for text in (await self._services.store.documents(KIND)).values():
            entry = msgspec.json.decode(text, type=OutgoingEntry, dec_hook=dec_hook)
            self._entries[entry.key] = entry
            if ended(entry.attempt) and entry.attempt.attempt in held:
                self._settling.add(entry.key)
            self._publish(entry)
            if not ended(entry.attempt) or entry.key in self._settling:
                self.run(entry)
            elif entry.attempt.untold:
                self._supervisor.spawn(self._remind(entry), name=f"reminder {entry.key}")

    def resume(self) -> None:
        """libvirt answers (again)."""
        self._connected.set()
        self._connected = asyncio.Event()

    def entries(self) -> tuple[OutgoingEntry, ...]:
        """All that are remembered."""
        return tuple(self._entries.values())

    def find(self, key: str) -> OutgoingEntry | None:
        """The entry of a migration."""
        return self._entries.get(key)

    async def save(self, entry: OutgoingEntry) -> None:
        """Remember an entry and show it."""
        document = (KIND, entry.attempt.attempt)
        await keep(self._entries, entry.key, entry, store=self._services.store, document=document)
        if entry.key in self._entries:
            self._publish(self._entries[entry.key])

    async def drop(self, entry: OutgoingEntry) -> None:
        """Forget an entry."""
        await self._services.store.remove(KIND, entry.attempt.attempt)
        self._entries.pop(entry.key, None)
        self._progress.pop(entry.key, None)
        self._hub.remove(entry.key)
        for token in entry.attempt.tokens:
            await self._recordings.drop(token)

    async def recording(self, key: str, *, attempt: int = 0) -> bytes:
        """What is recorded of a migration's attempt (0: the last), as JSON lines; raises NotFound."""
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", key)
        tokens = entry.attempt.tokens
        if not 0 <= attempt <= len(tokens):
            raise NotFound("attempt", str(attempt), hint=f"of {key} there are {len(tokens)}")
        return await self._recordings.read(tokens[attempt - 1])

    def check(self, target: str) -> None:
        """Raises InvalidRequest: ``target`` reads as no address, or this node cannot speak to it."""
        self._peer(target)

    def run(self, entry: OutgoingEntry) -> asyncio.Task[None]:
        """Carry the entry on in a task of its own."""
        return self._supervisor.keep(
            lambda: self._run(entry.key),
            name=f"migration {entry.key}",
            died=lambda error: self._died(entry.key, error),
        )

    async def cancel(self, key: str) -> None:
        """Ask a migration to stop."""
        engine = self._engines.get(key)
        if engine is not None and await engine.cancel() is not CancelAnswer.ENDED:
            return
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", key)
        if entry.attempt.phase.final:
            raise WrongPhase(f"{key} has ended already: {entry.attempt.phase.value}")
        attempt = msgspec.structs.replace(entry.attempt, cancel=True)
        await self.save(msgspec.structs.replace(entry, attempt=attempt))
        if key in self._at_once:
            self._at_once[key].set()  # It need not wait for its turn to end.
        engine = self._engines.get(key)
        if engine is not None:  # It began while this was written down.
            await engine.cancel()

    async def recover(self, key: str) -> None:
        """Look again at both sides of a migration that ended in doubt, and put together what can be."""
        entry = self._entries[key]
        engine = self._engines.get(key)
        if engine is not None and engine.record.interrupted:
            engine.nudge()
            return
        require_in_doubt(key, entry.attempt)
        entry = msgspec.structs.replace(entry, attempt=reopened(entry.attempt, self._services.clock.now()))
        await self.save(entry)
        self.run(entry)

    async def delete(self, key: str) -> None:
        """Forget a migration, now or when it is over."""
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", key)
        await self.save(msgspec.structs.replace(entry, deleted=True))
        await self._tidy(key)
        if not entry.attempt.phase.final:
            await self.cancel(key)

    async def cancel_attempt(self, machine: Machine) -> None:
        """``machine`` is deleted: stop the migration that takes it away; one in doubt lets go of it."""
        entry = next((e for e in self.entries() if e.attempt.attempt == machine.record.outgoing), None)
        if entry is not None and not entry.attempt.phase.final:
            await self.cancel(entry.key)
            return
        if entry is not None and entry.attempt.phase is Phase.SUCCEEDED:
            raise WrongPhase(
                f"{machine.record.key} has moved to {entry.attempt.outgoing.target_node}",
                hint="delete it there",
            )
        if entry is not None and entry.attempt.cause is Cause.POST_COPY_FAILED:
            # Who gives up one half gives up the other.
            attempt = msgspec.structs.replace(entry.attempt, untold=True, discarded=True)
            entry = msgspec.structs.replace(entry, attempt=attempt)
            await self.save(entry)
            self._supervisor.spawn(self._remind(entry), name=f"reminder {entry.key}")
        # In one: what is let go of without being deleted is let run.
        await machine.update(lambda record: msgspec.structs.replace(record, outgoing="", desired="deleted"))
        if entry is not None:
            await self._tidy(entry.key)

    async def close(self) -> None:
        """Close the connections to peers."""
        for peer in self._peers.values():
            await peer.close()

    async def _died(self, key: str, error: Exception) -> None:
        """A bug ended the task. Before a job runs the migration fails with it; a running job is watched."""
        entry = self._entries.get(key)
        if entry is None or entry.attempt.phase.final or entry.attempt.phase is Phase.RUNNING:
            return
        known = isinstance(error, LauncherError)  # what the configuration says of the target, say
        reason = str(error) if known else f"bug in launcher: {type(error).__name__}: {error}"
        attempt = failed(entry.attempt, Cause.SOURCE_UNABLE, reason, at=self._services.clock.now())
        self._settling.add(key)  # The task runs again, and its instance is told.
        await self.save(msgspec.structs.replace(entry, attempt=attempt))

    async def _run(self, key: str) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return  # It was forgotten before its turn came.
        machine = next((m for m in self._instances.machines() if m.record.uid == entry.uid), None)
        if machine is None:
            log.warning("a migration without its instance is dropped", migration=key)
            await self.drop(entry)
            return
        if not entry.attempt.phase.final and machine.record.outgoing != entry.attempt.attempt:
            # The agent died between writing the migration down and tying the instance to it.
            if machine.record.outgoing:
                await self.drop(entry)
                return
            await machine.update(lambda r: msgspec.structs.replace(r, outgoing=entry.attempt.attempt))
        if not ended(entry.attempt):
            await self._to_its_end(entry, machine)
        try:
            await self._settle(self._entries[key], machine)
        finally:
            self._settling.discard(key)
        self._publish(self._entries[key])
        if self._entries[key].attempt.untold:
            self._supervisor.spawn(self._remind(self._entries[key]), name=f"reminder {key}")
        await self._tidy(key)
        await self._trim()

    async def _to_its_end(self, entry: OutgoingEntry, machine: Machine) -> None:
        """Wait for its turn and carry the migration on until nothing is left to do, or to wait for."""
        key = entry.key
        at_once = self._at_once[key] = asyncio.Event()
        if entry.attempt.cancel or entry.attempt.phase not in (Phase.PENDING, Phase.PREPARING_TARGET):
            at_once.set()  # A job that runs already is watched, whoever else waits.
        within_s = float(entry.attempt.outgoing.options.utility_volumes_timeout_s)
        held = await released(
            machine, within_s=within_s, at_once=at_once, tell=lambda why: self._hold(key, why)
        )
        if held:
            del self._at_once[key]
            now = self._services.clock.now()
            attempt = failed(self._entries[key].attempt, Cause.UTILITY_VOLUMES, held, at=now)
            await self.note(key, machine, attempt)
            return
        if self._slots.full and not at_once.is_set():
            self._tell(key, MigrationProgress(phase="Pending", elapsed_s=0.0, note="waits for its turn"))
        async with self._slots.place(entry.attempt.outgoing.priority, at_once=at_once):
            del self._at_once[key]
            attempt = await self._carry(self._entries[key], machine)
        for _ in range(CONFIRM_TRIES):
            if ended(attempt):
                break
            await asyncio.sleep(CONFIRM_AGAIN_S)
            attempt = await self._carry(self._entries[key], machine)

    async def _hold(self, key: str, why: str) -> None:
        entry = self._entries[key]
        self._tell(key, MigrationProgress(phase=entry.attempt.phase.value, elapsed_s=0.0, note=why))
        attempt = msgspec.structs.replace(entry.attempt, held=why)
        await self.save(msgspec.structs.replace(entry, attempt=attempt))

    async def _carry(self, entry: OutgoingEntry, machine: Machine) -> AttemptRecord:
        while True:
            waiting = self._connected
            if self._services.hypervisor.connected:
                try:
                    attempt = await self._attempt(entry, machine)
                    entry = self._entries[entry.key]
                    if entry.attempt.phase.final:
                        return attempt
                    continue  # A second attempt, see ``note``.
                except HypervisorUnavailable as error:
                    log.warning("a migration waits for libvirt", migration=entry.key, why=str(error))
            await waiting.wait()
            entry = self._entries[entry.key]

    async def _attempt(self, entry: OutgoingEntry, machine: Machine) -> AttemptRecord:
        outgoing = entry.attempt.outgoing
        facts = await self._facts.get()
        shown = self._services.hub.get(machine.record.key)
        feared = doubt(machine.record, facts) if entry.attempt.phase is Phase.PENDING else ""
        if feared:
            log.warning("a migration is in danger", migration=entry.key, why=feared)
        recorder = None
        if not entry.attempt.phase.final:
            recorder = await self._recordings.recorder(header_of(entry, self._services.clock.now()))
        given = await material(entry.attempt, machine.record, shown, facts, self._services.hypervisor)
        engine = SourceMigration(
            self._entries[entry.key].attempt,  # as it is now: a request to cancel may have come meanwhile
            material=given,
            hypervisor=self._services.hypervisor,
            peer=self._peer(entry.target),
            policy=make_policy(outgoing.policy, outgoing.options, outgoing.workload),
            clock=self._services.clock,
            journal=_Journal(self, entry.key, machine),
            publish=lambda progress: self._tell(entry.key, progress),
            recorder=recorder,
        )
        self._engines[entry.key] = engine
        try:
            return await engine.run()
        finally:
            self._engines.pop(entry.key, None)

    async def note(self, key: str, machine: Machine, attempt: AttemptRecord) -> None:
        """The engine's record changed: store and show it, its end not before ``_settle``."""
        entry = msgspec.structs.replace(self._entries[key], attempt=attempt)
        second = again(attempt, tuple(places(self._config)), at=self._services.clock.now())
        if second is not None and not entry.deleted:
            log.warning("a migration is tried again", migration=key, why=second.steps[-1].reason)
            # At once: who cancels or deletes it now means this one.
            await self.save(msgspec.structs.replace(entry, attempt=second))
            await self._recordings.end(entry)
            entry = self._entries[key]
        else:
            if ended(attempt):
                self._settling.add(key)
            await self.save(entry)
        if not machine.gone:
            state = migration_state(entry)
            await machine.update(lambda r: msgspec.structs.replace(r, migration_state=state), wake=False)

    async def _settle(self, entry: OutgoingEntry, machine: Machine) -> None:
        attempt = entry.attempt
        state = migration_state(entry)
        log.info(
            "migration ended",
            migration=entry.key,
            phase=attempt.phase.value,
            cause=attempt.cause.value,
            why=attempt.reason,
        )
        await self._recordings.end(entry)
        if machine.gone:
            return
        at = self._services.clock.now()
        await machine.update(lambda record: settled(record, attempt, state, at=at))
        if attempt.phase is Phase.SUCCEEDED and attempt.confirmed:
            try:  # Whoever sees that it succeeded may send the guest back: nothing of it may be here then.
                async with asyncio.timeout(LET_GO_S):
                    await machine.wait_gone()
            except TimeoutError:
                log.warning("what the guest left here is not removed yet", migration=entry.key)

    async def _remind(self, entry: OutgoingEntry) -> None:
        await remind(entry.attempt, self._peer(entry.target))
        present = self._entries.get(entry.key)
        if present is not None and present.attempt == entry.attempt:
            told = msgspec.structs.replace(entry.attempt, untold=False)
            await self.save(msgspec.structs.replace(present, attempt=told))
        await self._tidy(entry.key)

    async def _tidy(self, key: str) -> None:
        """Drop a migration that is to be forgotten, once it is over."""
        entry = self._entries.get(key)
        if entry is not None and entry.deleted and over(entry.attempt, self._held()):
            await self.drop(entry)

    async def _trim(self) -> None:
        for entry in outdated(self.entries(), self._held()):
            await self.drop(entry)
        await self._recordings.prune()

    def _held(self) -> frozenset[str]:
        """The attempts that an instance is tied to, and those whose end is being settled."""
        settling = (self._entries[key].attempt.attempt for key in self._settling if key in self._entries)
        return frozenset((*(record.outgoing for record in self._instances.records()), *settling))

    def _peer(self, target: str) -> GrpcPeer:
        if target not in self._peers:
            self._peers[target] = peer_of(target, self._config.tls)
        return self._peers[target]

    def _tell(self, key: str, progress: MigrationProgress) -> None:
        if Phase(progress.phase).final:
            return  # The report tells it, unless it is tried again.
        self._progress[key] = progress
        self._publish(self._entries[key])

    def _publish(self, entry: OutgoingEntry) -> None:
        shown = before_the_end(entry) if entry.key in self._settling else entry
        self._hub.set(entry.key, view(shown, self._progress.get(entry.key)))


class _Journal:
    """Hands the engine's record to the runs."""

    def __init__(self, runs: OutgoingRuns, key: str, machine: Machine) -> None:
        self._runs = runs
        self._key = key
        self._machine = machine

    async def save(self, record: AttemptRecord) -> None:
        await self._runs.note(self._key, self._machine, record)
