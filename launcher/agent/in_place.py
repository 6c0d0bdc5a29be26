# SPDX-License-Identifier: Apache-2.0
"""Migrations that only move volumes, under a guest that stays on this node: begun, shown, cancelled, kept.

They are objects like all migrations, only without a target. What one does is the affair of ``in_place_run``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from launcher.agent.in_place_claims import InPlaceClaims
from launcher.agent.in_place_run import InPlaceEntry, InPlaceRun, shown
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import tied
from launcher.agent.port import MigrationView
from launcher.agent.recordings import Recordings, header_of
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import Conflict, HypervisorUnavailable, LauncherError, NotFound, WrongPhase
from launcher.host.logging import get
from launcher.migration.attempt import AttemptRecord, Outgoing
from launcher.migration.progress import MigrationProgress
from launcher.migration.recording import Recorder, Resumed
from launcher.spec.codec import dec_hook, enc_hook
from launcher.spec.model import VirtualMachineInstanceMigration

log = get(__name__)

KIND = "in-place"
KEPT = 100
"""Ended ones that are remembered; older ones are dropped."""


class InPlace:
    """The entries by ``namespace/name``, and a task for each that has not ended."""

    def __init__(
        self,
        services: Services,
        instances: Instances,
        supervisor: Supervisor,
        hub: Hub[MigrationView],
        recordings: Recordings,
    ) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._hub = hub
        self._recordings = recordings
        self._lock = asyncio.Lock()
        self._entries: dict[str, InPlaceEntry] = {}
        self._runs: dict[str, InPlaceRun] = {}
        self._connected = asyncio.Event()

    async def load(self) -> None:
        """Take up the entries of the store; those that have not ended go on."""
        for text in (await self._services.store.documents(KIND)).values():
            entry = msgspec.json.decode(text, type=InPlaceEntry, dec_hook=dec_hook)
            if entry.deleted and entry.attempt.phase.final:
                await self._drop(entry)
                continue
            self._entries[entry.key] = entry
            self._publish(entry)
            if not entry.attempt.phase.final:
                self._start(entry)

    def resume(self) -> None:
        """libvirt answers (again)."""
        self._connected.set()
        self._connected = asyncio.Event()

    def entries(self) -> tuple[InPlaceEntry, ...]:
        """All that are remembered."""
        return tuple(self._entries.values())

    def find(self, key: str) -> InPlaceEntry | None:
        """The entry of a migration."""
        return self._entries.get(key)

    async def begin(
        self, manifest: VirtualMachineInstanceMigration, machine: Machine, outgoing: Outgoing
    ) -> VirtualMachineInstanceMigration:
        """Begin to move the volumes that are to move.

        Raises:
            Conflict: the instance migrates, or is busy.
        """
        entry = InPlaceEntry(
            manifest=manifest, uid=machine.record.uid, attempt=AttemptRecord(outgoing=outgoing)
        )
        self._entries[entry.key] = entry
        try:
            await self.change(entry.key, lambda present: present)
            await machine.update(lambda record: tied(record, entry.as_outgoing()))
        except LauncherError:
            await self._drop(entry)
            raise
        self._start(entry)
        return shown(entry, None).object

    async def cancel(self, key: str) -> None:
        """Ask that nothing is moved; what the guest writes to already stays so."""

        def asked(entry: InPlaceEntry) -> InPlaceEntry:
            if entry.attempt.phase.final:
                raise WrongPhase(f"{key} has ended already: {entry.attempt.phase.value}")
            return _cancelled(entry)

        await self.change(key, asked)
        if key in self._runs:
            self._runs[key].nudge()

    async def cancel_attempt(self, attempt: str) -> bool:
        """Cancel the one with the uid ``attempt``; returns whether it is one of these."""
        entry = next((e for e in self.entries() if e.attempt.attempt == attempt), None)
        if entry is not None and not entry.attempt.phase.final:
            await self.cancel(entry.key)
        return entry is not None

    async def delete(self, key: str) -> None:
        """Forget one, now or when it has ended."""

        def asked(entry: InPlaceEntry) -> InPlaceEntry:
            return msgspec.structs.replace(_cancelled(entry), deleted=True)

        entry = await self.change(key, lambda e: e if e.attempt.phase.final else asked(e))
        if entry.attempt.phase.final:
            await self._drop(entry)
        elif key in self._runs:
            self._runs[key].nudge()

    async def recording(self, key: str, *, attempt: int = 0) -> bytes:
        """What is recorded of one, as JSON lines; raises NotFound."""
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", key)
        if attempt not in (0, 1):
            raise NotFound("attempt", str(attempt), hint=f"of {key} there is 1")
        return await self._recordings.read(entry.attempt.token)

    async def change(self, key: str, change: Callable[[InPlaceEntry], InPlaceEntry]) -> InPlaceEntry:
        """Change an entry, remember and show it. One change waits for the other, so that none is lost.

        Raises:
            NotFound: there is none. What ``change`` raises.
        """
        async with self._lock:
            present = self._entries.get(key)
            if present is None:
                raise NotFound("VirtualMachineInstanceMigration", key)
            entry = change(present)
            if entry.attempt.phase.final and not present.attempt.phase.final:
                await self._recordings.end(entry.as_outgoing())
            text = msgspec.json.encode(entry, enc_hook=enc_hook)
            await self._services.store.put(KIND, entry.attempt.attempt, text)
            self._entries[key] = entry
            self._publish(entry)
            return entry

    def tell(self, key: str, progress: MigrationProgress) -> None:
        """Show how far one is."""
        self._publish(self._entries[key], progress)

    def _start(self, entry: InPlaceEntry) -> None:
        self._supervisor.keep(lambda: self._run(entry.key), name=f"migration {entry.key}")

    async def _run(self, key: str) -> None:
        entry = self._entries.get(key)
        if entry is None or entry.attempt.phase.final:
            return
        machine = next((m for m in self._instances.machines() if m.record.uid == entry.uid), None)
        attempt = entry.attempt.attempt
        if machine is None or machine.record.outgoing not in ("", attempt):
            log.warning("a migration without its instance is dropped", migration=key)
            await self._drop(entry)
            return
        if not machine.record.outgoing:
            # The agent may have died between writing the migration down and tying the instance to it.
            try:
                await machine.update(lambda record: tied(record, entry.as_outgoing()), wake=False)
            except Conflict as error:
                log.warning(f"a migration that did not begin is dropped: {error}", migration=key)
                await self._drop(entry)
                return
        claims = InPlaceClaims(machine, self._services, self._instances)
        recorder = await self._recorder(entry)
        run = self._runs[key] = InPlaceRun(key, machine, self._services, claims, self, recorder)
        try:
            while True:
                waiting = self._connected
                if self._services.hypervisor.connected:
                    try:
                        await run.run()
                        break
                    except HypervisorUnavailable as error:
                        log.warning("a migration waits for libvirt", migration=key, why=str(error))
                await waiting.wait()
        finally:
            del self._runs[key]
        ended = [entry for entry in self.entries() if entry.attempt.phase.final]
        ended.sort(key=lambda e: e.attempt.transitions[-1].at if e.attempt.transitions else "")
        over = len(ended) - KEPT
        for place, old in enumerate(ended):
            if old.deleted or place < over:
                await self._drop(old)
        await self._recordings.prune()

    async def _recorder(self, entry: InPlaceEntry) -> Recorder:
        """Where it is recorded; no rules decide."""
        attempt, clock = entry.attempt, self._services.clock
        header = msgspec.structs.replace(header_of(entry.as_outgoing(), clock.now()), rules="")
        recorder = await self._recordings.recorder(header)
        if attempt.job_began is not None:
            passed = max(0.0, clock.monotonic() - attempt.job_began)
            recorder.note(Resumed(t=passed, at=clock.now(), state=""))
        return recorder

    async def _drop(self, entry: InPlaceEntry) -> None:
        await self._services.store.remove(KIND, entry.attempt.attempt)
        self._entries.pop(entry.key, None)
        self._hub.remove(entry.key)
        await self._recordings.drop(entry.attempt.token)

    def _publish(self, entry: InPlaceEntry, progress: MigrationProgress | None = None) -> None:
        self._hub.set(entry.key, shown(entry, progress))


def _cancelled(entry: InPlaceEntry) -> InPlaceEntry:
    return msgspec.structs.replace(entry, attempt=msgspec.structs.replace(entry.attempt, cancel=True))
