# SPDX-License-Identifier: Apache-2.0
"""All instances of the node: accept, find, watch. What happens to one is its machine's affair."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Callable

import msgspec

from launcher.agent.apart import require_apart
from launcher.agent.attachments import looked_at, require_unused
from launcher.agent.draft import Site, draft
from launcher.agent.hostfacts import HostFacts
from launcher.agent.ledger import holding
from launcher.agent.lending import with_functions
from launcher.agent.machine import Machine, Services
from launcher.agent.port import Companions, WatchEvent
from launcher.agent.records import InstanceRecord, Transition
from launcher.agent.settings import defaults_settings, node_limits, plan_settings
from launcher.agent.status import show
from launcher.agent.supervisor import Supervisor
from launcher.agent.volume_ledger import opened_by
from launcher.domain.read import DomainView
from launcher.errors import AlreadyExists, Conflict, InvalidSpec, NotFound, Violation
from launcher.host.boot import boot_id
from launcher.host.config import Config
from launcher.spec.model import ObjectMeta, VirtualMachineInstance

KIND = "VirtualMachineInstance"
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # it names directories


class Instances:
    """The machines by ``namespace/name``."""

    def __init__(self, config: Config, services: Services, facts: HostFacts, supervisor: Supervisor) -> None:
        self._config = config
        self._services = services
        self._facts = facts
        self._supervisor = supervisor
        self._machines: dict[str, Machine] = {}
        self._limits = node_limits(config)
        self.awaited: Callable[[str], str] = lambda _key: ""
        """The migration by which ``namespace/name`` is expected from elsewhere; empty: it is not."""
        self.draining = 0
        """How many drains of the whole node are under way: nothing new comes meanwhile."""
        self.accepting = asyncio.Lock()
        """Held from the look at what is left of the node until a record says that it is taken."""

    async def load(self) -> None:
        """Take up every instance of the store; libvirt tells the rest."""
        for record in await self._services.store.instances():
            machine = self._start(record)
            await machine.update(lambda present: present)  # shown at once, whether libvirt answers or not

    async def settle(self, *, timeout_s: float) -> None:
        """Wait for libvirt, and until every instance was looked at once; at most ``timeout_s`` for all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._connected()
                for machine in self.machines():
                    await machine.until(lambda m: m.known, timeout_s=2 * timeout_s)

    async def _connected(self) -> None:
        """Wait until libvirt is there: who asks at once would be refused for no good reason."""
        hypervisor, changed = self._services.hypervisor, asyncio.Event()
        unsubscribe = hypervisor.subscribe(lambda event: changed.set())
        try:
            while not hypervisor.connected:
                await changed.wait()
                changed.clear()
        finally:
            unsubscribe()

    def machines(self) -> tuple[Machine, ...]:
        """All machines."""
        return tuple(self._machines.values())

    def records(self) -> tuple[InstanceRecord, ...]:
        """All records."""
        return tuple(machine.record for machine in self._machines.values())

    def by_uuid(self, domain_uuid: str) -> Machine | None:
        """The machine of a domain."""
        own = (m for m in self.machines() if not m.record.awaits)
        return next((m for m in own if m.record.plan.identity.uuid == domain_uuid), None)

    def find(self, namespace: str, name: str) -> Machine:
        """The machine of an instance that lives here; raises NotFound."""
        machine = self._machines.get(f"{namespace}/{name}")
        if machine is None or machine.gone or machine.record.incoming:
            raise NotFound(KIND, f"{namespace}/{name}")
        return machine

    def wake_all(self) -> None:
        """Let every machine look again."""
        for machine in self.machines():
            machine.wake()

    async def draft(
        self,
        manifest: VirtualMachineInstance,
        companions: Companions,
        *,
        uid: str,
        live: DomainView | None = None,
    ) -> InstanceRecord:
        """Validate and plan an instance without accepting it; hold ``accepting`` until it is adopted.

        Raises:
            InvalidSpec, HostUnsupported, HypervisorUnavailable, AlreadyExists (the UUID is another's),
            Exhausted (others have what it needs), NetworkError (a link that it is to have is not there).
        """
        record = draft(
            manifest,
            await self._beside(manifest, companions, arriving=live is not None),
            uid=uid,
            site=await self.site(manifest, uid),
            now=self._services.clock.now(),
            boot_id=boot_id(),
            live=live,
        )
        taken = self.by_uuid(record.plan.identity.uuid)
        if taken is not None and taken.record.uid != uid:
            hint = f"it is that of {taken.record.key}"
            raise AlreadyExists("domain UUID", record.plan.identity.uuid, hint=hint)
        await require_apart(record, (m.record for m in self.machines() if not m.ended))
        return record

    async def site(self, vmi: VirtualMachineInstance | None, uid: str) -> Site:
        """The node, as the instance ``uid`` finds it: without what it has; an empty one has nothing."""
        facts = await self._facts.get(vmi)
        others = tuple(
            m.record
            for m in self.machines()
            if m.record.uid != uid and not m.ended and not _gives_way(m, vmi)
        )
        return Site(
            facts=facts,
            plan=plan_settings(self._config),
            defaults=defaults_settings(self._config, facts),
            limits=self._limits,
            holdings=tuple(map(holding, others)),
            opened=tuple(use for record in others for use in opened_by(record)),
        )

    async def create(
        self, manifest: VirtualMachineInstance, companions: Companions, *, dry_run: bool
    ) -> VirtualMachineInstance:
        """Accept an instance; the same object (same uid) twice is the same as once."""
        if self.draining:
            raise Conflict(
                "this node is being drained", hint="create it on another, or wait until that ended"
            )
        async with self.accepting:
            named = _identified(manifest, now=self._services.clock.now())
            metadata = named.metadata or ObjectMeta()
            key = f"{metadata.namespace}/{metadata.name}"
            present = self._machines.get(key)
            if present is not None and not present.gone:
                asked = manifest.metadata.uid if manifest.metadata is not None else None
                if asked and asked == present.record.uid and not present.record.incoming:
                    return self.shown(present.record.key)
                raise AlreadyExists(KIND, key, hint=_clash(present.record))
            require_unused(companions, (m.record for m in self.machines() if not m.ended))
            drafted = await self.draft(named, companions, uid=metadata.uid or "")
            record = _awaiting(drafted, self.awaited(key))
            if dry_run:
                now = record.created
                return show(record, None, node=self._config.node_name, now=now, before=None)
            await self._refuse_strangers(record)
            await self.adopt(record)
            return self.shown(key)

    async def _beside(
        self, manifest: VirtualMachineInstance, companions: Companions, *, arriving: bool
    ) -> Companions:
        """``companions`` with virtual functions of the node, and with all that their links have."""
        uid = manifest.metadata.uid if manifest.metadata is not None else None
        others = (
            m.record
            for m in self.machines()
            if m.record.uid != uid and not m.ended and not _gives_way(m, manifest)
        )
        networks = plan_settings(self._config).network
        lent = await with_functions(manifest, companions, networks, others, arriving=arriving)
        return await looked_at(manifest, lent)

    async def _refuse_strangers(self, record: InstanceRecord) -> None:
        """A domain of that name in no record (the database was lost) is somebody's guest: it stays."""
        identity = record.plan.identity
        for domain in await self._services.hypervisor.list_domains():
            if domain.name == identity.domain_name and domain.uuid != identity.uuid:
                raise AlreadyExists(
                    "domain",
                    domain.name,
                    hint=f"libvirt has it as {domain.uuid} and this agent does not know it: its database was "
                    f"lost, or somebody else made it. Create the instance with that domain's uid to take it "
                    f"over, or end it (virsh destroy and undefine)",
                )

    async def adopt(self, record: InstanceRecord) -> Machine:
        """Take up an instance that was accepted here or is being brought here."""
        await self._services.store.save_instance(record)
        machine = self._start(record)
        await machine.update(lambda present: present)
        return machine

    async def get(self, namespace: str, name: str) -> VirtualMachineInstance:
        """The object as the API shows it."""
        return self.shown(self.find(namespace, name).record.key)

    async def list(self, namespace: str | None) -> tuple[VirtualMachineInstance, ...]:
        """All objects of a namespace (None: of all)."""
        objects = [o for o in self._services.hub.all() if _in_namespace(o, namespace)]
        return tuple(sorted(objects, key=_sort_key))

    def watch(
        self, namespace: str | None, name: str | None
    ) -> AsyncIterator[WatchEvent[VirtualMachineInstance]]:
        """The present objects, then every change."""
        return self._services.hub.watch(
            lambda o: (
                _in_namespace(o, namespace)
                and (name is None or (o.metadata is not None and o.metadata.name == name))
            )
        )

    def _start(self, record: InstanceRecord) -> Machine:
        machine = Machine(self._services, record)
        self._machines[record.key] = machine
        self._supervisor.keep(lambda: self._drive(machine), name=f"instance {record.key}", died=machine.died)
        return machine

    async def _drive(self, machine: Machine) -> None:
        await machine.run()
        if self._machines.get(machine.record.key) is machine:
            del self._machines[machine.record.key]

    def shown(self, key: str) -> VirtualMachineInstance:
        """The object of ``namespace/name`` as the API shows it; raises NotFound."""
        shown = self._services.hub.get(key)
        if shown is None:
            raise NotFound(KIND, key)
        return shown


def _identified(manifest: VirtualMachineInstance, *, now: str) -> VirtualMachineInstance:
    """The manifest with namespace, uid and creation time filled in, and without a status."""
    metadata = manifest.metadata or ObjectMeta()
    uid = metadata.uid or str(uuid.uuid4())
    if not _UID.fullmatch(uid):
        message = "accepted are 1 to 63 letters, digits and dashes, such as a UUID"
        raise InvalidSpec(
            [Violation(field="metadata.uid", type="FieldValueInvalid", value=uid[:80], message=message)]
        )
    name = metadata.name or f"{metadata.generate_name}{uid[:5]}"
    filled = msgspec.structs.replace(
        metadata,
        name=name,
        namespace=metadata.namespace or "default",
        uid=uid,
        creation_timestamp=metadata.creation_timestamp or now,
    )
    return msgspec.structs.replace(manifest, metadata=filled, status=None)


def _awaiting(record: InstanceRecord, migration: str) -> InstanceRecord:
    """The record of an instance whose name is expected: it does not start."""
    if not migration:
        return record
    waits = Transition(phase="WaitingForSync", at=record.created)
    return msgspec.structs.replace(record, awaits=migration, phase=waits.phase, transitions=(waits,))


def _gives_way(machine: Machine, vmi: VirtualMachineInstance | None) -> bool:
    """What an instance holds that waits for just this one is this one's."""
    metadata = (vmi.metadata if vmi is not None else None) or ObjectMeta()
    return bool(machine.record.awaits) and machine.record.key == f"{metadata.namespace}/{metadata.name}"


def _clash(record: InstanceRecord) -> str:
    if record.incoming:
        return "a migration is bringing an instance of that name here"
    if record.desired == "deleted":
        return "it is being deleted; wait until it is gone"
    return "delete it first, or choose another name"


def _in_namespace(shown: VirtualMachineInstance, namespace: str | None) -> bool:
    return namespace is None or (shown.metadata is not None and shown.metadata.namespace == namespace)


def _sort_key(shown: VirtualMachineInstance) -> tuple[str, str]:
    metadata = shown.metadata or ObjectMeta()
    return (metadata.namespace or "", metadata.name or "")
