# SPDX-License-Identifier: Apache-2.0
"""Migrations that are expected from nodes of another control plane: ``spec.receive`` of a migration object.

Both ends know the migration only by its ``migrationID``. Who sends may come first: it is told to wait. An
instance that is created while its name is expected waits, too, and gives way to the one that comes.
"""

from __future__ import annotations

import msgspec

from launcher.agent.entries import keep
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.port import MigrationReport, MigrationView
from launcher.agent.records import InstanceRecord
from launcher.agent.watch import Hub
from launcher.errors import AlreadyExists, Conflict, InvalidSpec, Violation, WrongPhase
from launcher.migration.peer import PrepareReply, PrepareRequest
from launcher.migration.target import TargetSide
from launcher.spec.codec import dec_hook
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationCondition,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp,
    VirtualMachineInstanceMigrationStatus,
)

KIND = "expected"
WAITING = "WaitingForSync"
COMING = "TargetReady"
SUCCEEDED = "Succeeded"
FAILED = "Failed"


class ExpectedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An expected migration, as it is stored. ``attempt`` is the sender's, once it came; ``waiting`` is the
    record of the instance that gave way, for the case that nothing arrives."""

    manifest: VirtualMachineInstanceMigration
    migration_id: str
    instance: str
    transitions: tuple[tuple[str, str], ...]
    attempt: str = ""
    source: str = ""
    reason: str = ""
    waiting: InstanceRecord | None = None

    @property
    def key(self) -> str:
        """``namespace/name`` of the migration."""
        metadata = self.manifest.metadata or ObjectMeta()
        return f"{metadata.namespace}/{metadata.name}"

    @property
    def phase(self) -> str:
        """The phase now."""
        return self.transitions[-1][0]

    @property
    def ended(self) -> bool:
        """Nothing more is expected."""
        return self.phase in (SUCCEEDED, FAILED)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class Expected:
    """The entries by ``namespace/name``. ``address`` is where senders reach this node; they are shown it."""

    def __init__(self, services: Services, instances: Instances, address: str) -> None:
        self._services = services
        self._instances = instances
        self._address = address
        self._entries: dict[str, ExpectedEntry] = {}
        self._hub: Hub[MigrationView] | None = None

    async def load(self, hub: Hub[MigrationView]) -> None:
        """Take up the entries of the store and show them on ``hub``."""
        self._hub = hub
        for text in (await self._services.store.documents(KIND)).values():
            entry = msgspec.json.decode(text, type=ExpectedEntry, dec_hook=dec_hook)
            self._entries[entry.key] = entry
            self._publish(entry)

    def find(self, key: str) -> ExpectedEntry | None:
        """The entry of a migration object."""
        return self._entries.get(key)

    def awaited(self, instance: str) -> str:
        """The migrationID by which ``namespace/name`` is expected; empty: it is not."""
        return next(
            (e.migration_id for e in self._entries.values() if e.instance == instance and not e.ended), ""
        )

    async def create(self, manifest: VirtualMachineInstanceMigration) -> VirtualMachineInstanceMigration:
        """Expect an instance.

        Raises:
            InvalidSpec: it names no instance, or both ends at once.
            AlreadyExists: the object is here.
            Conflict: the id is in use, or the instance runs here.
        """
        spec, metadata = manifest.spec, manifest.metadata or ObjectMeta()
        assert spec.receive is not None, "only such migrations come here"
        if spec.vmi_name is None or spec.send_to is not None:
            field, message = ("spec.vmiName", "required: the name of the instance that comes")
            if spec.send_to is not None:
                field, message = ("spec.receive", "goes not with sendTo: each end has an object of its own")
            raise InvalidSpec([Violation(field=field, type="FieldValueInvalid", message=message)])
        instance = f"{metadata.namespace}/{spec.vmi_name}"
        entry = ExpectedEntry(
            manifest=manifest,
            migration_id=spec.receive.migration_id,
            instance=instance,
            transitions=((WAITING, self._services.clock.now()),),
        )
        if entry.key in self._entries:
            raise AlreadyExists("VirtualMachineInstanceMigration", entry.key)
        active = [e for e in self._entries.values() if not e.ended]
        if any(e.migration_id == entry.migration_id or e.instance == instance for e in active):
            raise Conflict(f"{instance} or the migration ID {entry.migration_id} is expected already")
        if any(r.key == instance and not r.awaits for r in self._instances.records()):
            raise Conflict(f"the instance {instance} is on this node already")
        await self._save(entry)
        return self._view(entry).object

    async def prepare(self, request: PrepareRequest, side: TargetSide) -> PrepareReply:
        """Hand a request on to ``side``, unless it is of a migration that is not expected (yet)."""
        if request.migration_id:
            found = msgspec.json.decode(request.vmi, type=_Named).metadata
            why, busy = self._unexpected(request, f"{found.namespace}/{found.name}")
            if why:
                return PrepareReply(findings=(why,), busy=busy)
        return await side.prepare(request)

    def _unexpected(self, request: PrepareRequest, instance: str) -> tuple[str, bool]:
        """What speaks against a migration, and whether that may change; empty: nothing."""
        wanted = request.migration_id
        entry = self._active(wanted)
        if entry is None:
            return f"nobody here expects the migration {wanted} yet", True
        if entry.attempt not in ("", request.attempt):
            return f"the migration {wanted} comes from {entry.source} already", False
        if entry.instance != instance:
            return f"the migration {wanted} is expected to bring {entry.instance}, not {instance}", False
        return "", False

    async def comes(self, request: PrepareRequest, instance: str) -> None:
        """All was checked: the instance that waits gives way."""
        entry = self._active(request.migration_id)
        if entry is None:
            return
        waiting = self._waiting(instance)
        entry = msgspec.structs.replace(
            entry,
            attempt=request.attempt,
            source=request.source_node,
            waiting=waiting.record if waiting is not None else entry.waiting,
        )
        await self._enter(entry, COMING)
        if waiting is not None:
            await waiting.forget()

    async def ended(self, attempt: str, *, arrived: bool) -> None:
        """It came, or it will not: then who gave way waits again."""
        entry = next((e for e in self._entries.values() if e.attempt == attempt and not e.ended), None)
        if entry is None:
            return
        waiting, reason = (
            entry.waiting,
            "" if arrived else "the sender gave it up, or was not heard of any more",
        )
        await self._enter(
            msgspec.structs.replace(entry, waiting=None, reason=reason), SUCCEEDED if arrived else FAILED
        )
        if not arrived and waiting is not None:
            await self._instances.adopt(waiting)

    async def cancel(self, key: str) -> None:
        """Expect it no longer; WrongPhase when it is on its way."""
        entry = self._entries[key]
        if entry.phase != WAITING:
            raise WrongPhase(f"{key} is on its way already", hint="cancel it where it is sent from")
        await self._enter(msgspec.structs.replace(entry, reason="cancelled on request"), FAILED)

    async def delete(self, key: str) -> None:
        """Forget an entry; WrongPhase while it is on its way."""
        entry = self._entries[key]
        if not entry.ended:
            await self.cancel(key)
        await self._services.store.remove(KIND, key)
        del self._entries[key]
        if self._hub is not None:
            self._hub.remove(key)

    def _active(self, migration_id: str) -> ExpectedEntry | None:
        active = (e for e in self._entries.values() if not e.ended)
        return next((e for e in active if migration_id and e.migration_id == migration_id), None)

    def _waiting(self, instance: str) -> Machine | None:
        return next(
            (m for m in self._instances.machines() if m.record.key == instance and m.record.awaits), None
        )

    async def _enter(self, entry: ExpectedEntry, phase: str) -> None:
        at = self._services.clock.now()
        await self._save(msgspec.structs.replace(entry, transitions=(*entry.transitions, (phase, at))))

    async def _save(self, entry: ExpectedEntry) -> None:
        document = (KIND, entry.key)
        await keep(self._entries, entry.key, entry, store=self._services.store, document=document)
        self._publish(entry)

    def _publish(self, entry: ExpectedEntry) -> None:
        if self._hub is not None:
            self._hub.set(entry.key, self._view(entry))

    def _view(self, entry: ExpectedEntry) -> MigrationView:
        failed = VirtualMachineInstanceMigrationCondition(
            type="Failed",
            status="True",
            reason="cancelled" if "cancel" in entry.reason else "not-arrived",
            message=entry.reason,
        )
        status = VirtualMachineInstanceMigrationStatus(
            phase=entry.phase,
            phase_transition_timestamps=tuple(
                VirtualMachineInstanceMigrationPhaseTransitionTimestamp(
                    phase=phase, phase_transition_timestamp=at
                )
                for phase, at in entry.transitions
            ),
            synchronization_addresses=(self._address,) if self._address else (),
            conditions=(failed,) if entry.phase == FAILED else (),
        )
        done = entry.phase == SUCCEEDED
        report = (
            MigrationReport(succeeded=done, reason=entry.reason, source="target") if entry.ended else None
        )
        return MigrationView(object=msgspec.structs.replace(entry.manifest, status=status), report=report)
