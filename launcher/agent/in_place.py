# SPDX-License-Identifier: Apache-2.0
"""Migrations that only move volumes, under a guest that stays on this node: begun, shown, cancelled, kept.

They are objects like all migrations, only without a target. What one does is the affair of ``in_place_run``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from launcher.agent.entries import keep
from launcher.agent.in_place_run import InPlaceEntry, InPlaceRun, shown
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import tied
from launcher.agent.port import MigrationView
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import HypervisorUnavailable, LauncherError, NotFound, WrongPhase
from launcher.host.logging import get
from launcher.migration.attempt import AttemptRecord, Outgoing
from launcher.migration.progress import MigrationProgress
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstanceMigration

log = get(__name__)

KIND = "in-place"
KEPT = 100
"""Ended ones that are remembered; older ones are dropped."""


class InPlace:
    """The entries by ``namespace/name``, and a task for each that has not ended."""

    def __init__(
        self, services: Services, instances: Instances, supervisor: Supervisor, hub: Hub[MigrationView]
    ) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._hub = hub
        self._entries: dict[str, InPlaceEntry] = {}
        self._runs: dict[str, InPlaceRun] = {}
        self._connected = asyncio.Event()

    async def load(self) -> None:
        """Take up the entries of the store; those that have not ended go on."""
        for text in (await self._services.store.documents(KIND)).values():
            entry = msgspec.json.decode(text, type=InPlaceEntry, dec_hook=dec_hook)
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
        await self.save(entry)
        try:
            await machine.update(lambda record: tied(record, entry.as_outgoing()))
        except LauncherError:
            await self._drop(entry)
            raise
        self._start(entry)
        return shown(entry, None).object

    async def cancel(self, key: str) -> None:
        """Ask that nothing is moved; what the guest writes to already stays so."""
        entry = self._entries.get(key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", key)
        if entry.attempt.phase.final:
            raise WrongPhase(f"{key} has ended already: {entry.attempt.phase.value}")
        await self.save(
            msgspec.structs.replace(entry, attempt=msgspec.structs.replace(entry.attempt, cancel=True))
        )
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
        entry = self._entries[key]
        if entry.attempt.phase.final:
            await self._drop(entry)
            return
        await self.save(msgspec.structs.replace(entry, deleted=True))
        with suppress(WrongPhase, NotFound):  # It ended while that was written down.
            await self.cancel(key)

    async def save(self, entry: InPlaceEntry, progress: MigrationProgress | None = None) -> None:
        """Remember an entry and show it."""
        document = (KIND, entry.attempt.attempt)
        await keep(self._entries, entry.key, entry, store=self._services.store, document=document)
        if entry.key in self._entries:
            self._publish(self._entries[entry.key], progress)

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
        # The agent may have died between writing the migration down and tying the instance to it.
        await machine.update(lambda record: msgspec.structs.replace(record, outgoing=attempt), wake=False)
        run = self._runs[key] = InPlaceRun(key, machine, self._services, self._instances, self)
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
        if self._entries[key].deleted:
            await self._drop(self._entries[key])
        ended = [entry for entry in self.entries() if entry.attempt.phase.final]
        ended.sort(key=lambda e: e.attempt.transitions[-1].at if e.attempt.transitions else "")
        for old in ended[: max(0, len(ended) - KEPT)]:
            await self._drop(old)

    async def _drop(self, entry: InPlaceEntry) -> None:
        await self._services.store.remove(KIND, entry.attempt.attempt)
        self._entries.pop(entry.key, None)
        self._hub.remove(entry.key)

    def _publish(self, entry: InPlaceEntry, progress: MigrationProgress | None = None) -> None:
        self._hub.set(entry.key, shown(entry, progress))
