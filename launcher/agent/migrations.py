# SPDX-License-Identifier: Apache-2.0
"""Migrations of the node: begins, shows, cancels and finishes those that leave; owns the side that receives.

What a migration does is the engine's affair (``migration.source``, ``migration.target``); here it is tied to
instances, the store, peers and watchers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import msgspec

from launcher.agent.destinations import destination
from launcher.agent.expected import Expected
from launcher.agent.hostfacts import HostFacts
from launcher.agent.in_place import InPlace
from launcher.agent.in_place_run import InPlaceEntry
from launcher.agent.incoming import IncomingJournal, incoming_side
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import OutgoingEntry, tied, view
from launcher.agent.outgoing import OutgoingRuns
from launcher.agent.outgoing_draft import Drafts
from launcher.agent.port import EventType, MigrationView, WatchEvent
from launcher.agent.recordings import Recordings
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import (
    AlreadyExists,
    InvalidRequest,
    InvalidSpec,
    LauncherError,
    NotFound,
    Violation,
    WrongPhase,
)
from launcher.host.config import Config
from launcher.hypervisor.port import ConnectionEvent, Event, LifecycleEvent
from launcher.migration.attempt import Outgoing, begin
from launcher.migration.target import TargetSide
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)
from launcher.spec.rules import check_migration

KIND = "VirtualMachineInstanceMigration"
HOSTNAME_LABEL = "kubernetes.io/hostname"
SWEEP_S = 5.0


class Migrations:
    """Outgoing migrations by ``namespace/name``; ``incoming`` is the receiving side."""

    def __init__(
        self,
        config: Config,
        services: Services,
        instances: Instances,
        facts: HostFacts,
        supervisor: Supervisor,
    ) -> None:
        self._config = config
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._hub: Hub[MigrationView] = Hub()
        self._beginning: set[str] = set()  # Names of those that are looked at and not remembered yet.
        self._recordings = Recordings(Path(config.state_dir, "recordings"))
        self._in_place = InPlace(services, instances, supervisor, self._hub, self._recordings)
        self._runs = OutgoingRuns(config, services, instances, facts, supervisor, self._hub, self._recordings)
        self._recordings.keep(lambda: recorded((*self._runs.entries(), *self._in_place.entries())))
        self._drafts = Drafts(config, services)
        self._incoming_journal = IncomingJournal(services)
        self.expected = Expected(services, instances, config.listen.tcp)
        instances.awaited = self.expected.awaited
        self.incoming: TargetSide = incoming_side(
            config, services, instances, self._incoming_journal, self.expected
        )

    async def load(self) -> None:
        """Take up what the store remembers; running jobs are taken up when libvirt answers."""
        self.incoming.restore(await self._incoming_journal.load())
        await self._runs.load()
        await self._in_place.load()
        await self._recordings.prune()  # Not before all are known that are to be kept.
        await self.expected.load(self._hub)
        self._supervisor.keep(self._sweep, name="incoming leases")

    async def close(self) -> None:
        """End the watches and the connections to peers; the jobs go on in libvirt."""
        self._hub.close()
        await self._runs.close()

    def on_event(self, event: Event) -> None:
        """What libvirt tells."""
        match event:
            case ConnectionEvent(up=True):
                self._runs.resume()
                self._in_place.resume()
            case LifecycleEvent(uuid=domain, event="resumed", detail="migrated"):
                self._supervisor.spawn(self._arrived(domain), name=f"arrival of {domain}")
            case _:
                return

    def running(self) -> int:
        """How many migrations are under way, both ways."""
        incoming = sum(1 for record in self.incoming.records if not record.adopted)
        attempts = [entry.attempt for entry in self._runs.entries()]
        attempts += [entry.attempt for entry in self._in_place.entries()]
        return incoming + sum(1 for attempt in attempts if not attempt.phase.final)

    async def create(
        self, manifest: VirtualMachineInstanceMigration, *, target: str
    ) -> VirtualMachineInstanceMigration:
        """Begin a migration.

        Raises:
            InvalidSpec, InvalidRequest, NotFound, AlreadyExists, Conflict, WrongPhase, MigrationRefused.
        """
        violations = check_migration(manifest)
        if violations:
            raise InvalidSpec(violations)
        named = self._identified(manifest)
        metadata = named.metadata or ObjectMeta()
        key = f"{metadata.namespace}/{metadata.name}"
        if named.spec.receive is not None and self._runs.find(key) is None:
            if target:
                message = "what is received comes to this node, and goes to no other"
                wrong = Violation(
                    field="target", type="FieldValueInvalid", value=target[:80], message=message
                )
                raise InvalidRequest([wrong])
            return await self.expected.create(named)
        present = self._runs.find(key) or self._in_place.find(key)
        if present is not None:
            if present.attempt.attempt == metadata.uid and manifest.metadata and manifest.metadata.uid:
                return self.get(*key.split("/", 1)).object
            raise AlreadyExists(KIND, key)
        if self.expected.find(key) is not None or key in self._beginning:
            raise AlreadyExists(KIND, key)
        self._beginning.add(key)
        try:
            return await self._begin(named, key, target)
        finally:
            self._beginning.discard(key)

    async def _begin(
        self, named: VirtualMachineInstanceMigration, key: str, target: str
    ) -> VirtualMachineInstanceMigration:
        metadata = named.metadata or ObjectMeta()
        if named.spec.vmi_name is None:
            message = "required: the name of the instance to migrate"
            raise InvalidSpec([Violation(field="spec.vmiName", type="FieldValueRequired", message=message)])
        machine = self._instances.find(metadata.namespace or "default", named.spec.vmi_name)
        if machine.record.moving and self._stays(named, target):
            outgoing = await self._drafts.within(machine, metadata.uid or "", named)
            return await self._in_place.begin(named, machine, outgoing)
        peer_name, address = self._target(named, target)
        self._runs.check(address)
        entry = OutgoingEntry(
            manifest=named,
            target=address,
            uid=machine.record.uid,
            attempt=begin(await self._drafts.outgoing(machine, metadata.uid or "", named, peer_name)),
        )

        await self._runs.save(entry)
        try:
            await machine.update(lambda record: tied(record, entry))
        except LauncherError:
            await self._runs.drop(entry)
            raise
        self._runs.run(entry)
        return view(entry, None).object

    def get(self, namespace: str, name: str) -> MigrationView:
        """One migration; raises NotFound."""
        found = self._hub.get(f"{namespace}/{name}")
        if found is None:
            raise NotFound(KIND, f"{namespace}/{name}")
        return found

    def list(self, namespace: str | None) -> tuple[MigrationView, ...]:
        """All migrations of a namespace (None: of all), oldest first."""
        views = [v for v in self._hub.all() if _in_namespace(v, namespace)]
        return tuple(sorted(views, key=_created))

    def watch_all(self, namespace: str | None) -> AsyncIterator[WatchEvent[MigrationView]]:
        """The present migrations, then every change."""
        return self._hub.watch(lambda v: _in_namespace(v, namespace))

    async def watch_one(self, namespace: str, name: str) -> AsyncIterator[MigrationView]:
        """The present view, then every change, until the migration ended; raises NotFound."""
        wanted = (namespace, name)
        self.get(namespace, name)
        async for event in self._hub.watch(lambda v: _name(v) == wanted):
            if event.object is None:
                continue
            if event.type is EventType.DELETED:
                return
            yield event.object
            if event.object.report is not None:
                return

    async def cancel(self, namespace: str, name: str) -> MigrationView:
        """Ask a migration to stop; raises NotFound, WrongPhase when it ended already."""
        current = self.get(namespace, name)
        if current.report is not None:
            phase = current.object.status.phase if current.object.status is not None else ""
            raise WrongPhase(f"{namespace}/{name} has ended already: {phase}")
        key = f"{namespace}/{name}"
        await self._holder(key).cancel(key)
        return self.get(namespace, name)

    async def recover(self, namespace: str, name: str) -> MigrationView:
        """Try again what ended in doubt, or is being tried; raises NotFound, WrongPhase for all others."""
        self.get(namespace, name)
        if self.expected.find(f"{namespace}/{name}"):
            raise WrongPhase(f"{namespace}/{name} is received here", hint="recover it where it is sent from")
        if self._in_place.find(f"{namespace}/{name}"):
            raise WrongPhase(f"{namespace}/{name} cannot be recovered: its guest did not leave this node")
        await self._runs.recover(f"{namespace}/{name}")
        return self.get(namespace, name)

    async def delete(self, namespace: str, name: str) -> MigrationView:
        """Forget a migration, when it is over (see ``outgoing_ends.over``); raises NotFound."""
        last = self.get(namespace, name)
        key = f"{namespace}/{name}"
        await self._holder(key).delete(key)
        return last

    async def recording(self, namespace: str, name: str, *, attempt: int = 0) -> bytes:
        """What is recorded of a migration, as JSON lines; raises NotFound."""
        key = f"{namespace}/{name}"
        if self.expected.find(key) is not None:
            raise NotFound("recording", key, hint="it is recorded where it is sent from")
        holder = self._in_place if self._in_place.find(key) else self._runs
        return await holder.recording(key, attempt=attempt)

    async def preview(self, machine: Machine) -> Outgoing:
        """What a migration of ``machine`` would be like; raises as ``create`` before it asks a peer."""
        spec = VirtualMachineInstanceMigrationSpec(vmi_name=machine.record.name)
        return await self._drafts.outgoing(machine, "", VirtualMachineInstanceMigration(spec=spec), "")

    async def cancel_of(self, machine: Machine) -> None:
        """Ask the migration that takes ``machine`` away, if any, to stop."""
        attempt = machine.record.outgoing
        if attempt and not await self._in_place.cancel_attempt(attempt):
            await self._runs.cancel_attempt(machine)

    def _holder(self, key: str) -> Expected | InPlace | OutgoingRuns:
        if self.expected.find(key):
            return self.expected
        return self._in_place if self._in_place.find(key) else self._runs

    def _stays(self, manifest: VirtualMachineInstanceMigration, target: str) -> bool:
        """Whether the guest is to stay on this node: no other is named."""
        wanted = target or manifest.spec.added_node_selector.get(HOSTNAME_LABEL, "")
        return manifest.spec.send_to is None and wanted in ("", self._config.node_name)

    def _target(self, manifest: VirtualMachineInstanceMigration, target: str) -> tuple[str, str]:
        sent = manifest.spec.send_to
        if sent is not None:
            return _address(sent.connect_url, target)
        wanted = target or manifest.spec.added_node_selector.get(HOSTNAME_LABEL, "")
        field = "target" if target else f"spec.addedNodeSelector[{HOSTNAME_LABEL}]"
        if not wanted:
            known = ", ".join(sorted(self._config.peers)) or "none is configured"
            message = f"required: where to migrate to, here or by --to NODE; peers of this node: {known}"
            raise InvalidRequest([Violation(field=field, type="FieldValueRequired", message=message)])
        if wanted == self._config.node_name:
            message = "the instance is on this node already"
            raise InvalidRequest(
                [Violation(field=field, type="FieldValueInvalid", value=wanted, message=message)]
            )
        return wanted, destination(self._config, wanted, field=field)

    def _identified(self, manifest: VirtualMachineInstanceMigration) -> VirtualMachineInstanceMigration:
        metadata = manifest.metadata or ObjectMeta()
        uid = metadata.uid or str(uuid.uuid4())
        prefix = metadata.generate_name or f"{manifest.spec.vmi_name}-"
        filled = msgspec.structs.replace(
            metadata,
            name=metadata.name or f"{prefix}{uid[:5]}",
            namespace=metadata.namespace or "default",
            uid=uid,
            creation_timestamp=metadata.creation_timestamp or self._services.clock.now(),
        )
        return msgspec.structs.replace(manifest, metadata=filled, status=None)

    async def _arrived(self, domain: str) -> None:
        try:
            await self.incoming.arrived(domain)
        except LauncherError:
            return  # the source's finish or the lease's end asks again

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            if self._services.hypervisor.connected:
                await self.incoming.sweep()


def recorded(entries: Iterable[OutgoingEntry | InPlaceEntry]) -> Iterator[str]:
    """The attempts of ``entries``, of which recordings may be kept."""
    return (token for entry in entries for token in entry.attempt.tokens)


def _address(connect_url: str, target: str) -> tuple[str, str]:
    """Where ``sendTo`` leads; a scheme before the address and a path after it say nothing here."""
    address = connect_url.partition("://")[2] or connect_url
    address = address.partition("/")[0]
    if target and target != address:
        message = "a migration with sendTo has its target there"
        raise InvalidRequest(
            [Violation(field="target", type="FieldValueInvalid", value=target, message=message)]
        )
    if not address.rpartition(":")[2].isdigit():
        message = "names no port; accepted is ADDRESS:PORT of the other agent"
        field = "spec.sendTo.connectURL"
        raise InvalidRequest(
            [Violation(field=field, type="FieldValueInvalid", value=connect_url, message=message)]
        )
    return address, address


def _in_namespace(shown: MigrationView, namespace: str | None) -> bool:
    return namespace is None or _name(shown)[0] == namespace


def _name(shown: MigrationView) -> tuple[str, str]:
    metadata = shown.object.metadata or ObjectMeta()
    return (metadata.namespace or "", metadata.name or "")


def _created(shown: MigrationView) -> tuple[str, str]:
    metadata = shown.object.metadata or ObjectMeta()
    return (metadata.creation_timestamp or "", metadata.name or "")
