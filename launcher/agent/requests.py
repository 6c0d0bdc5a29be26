# SPDX-License-Identifier: Apache-2.0
"""What is asked of an instance that is there: other vCPUs and memory, a pause, its end."""

from __future__ import annotations

import msgspec

from launcher.agent.instances import Instances
from launcher.agent.machine import Services
from launcher.agent.records import FINAL, InstanceRecord
from launcher.agent.update import updated
from launcher.errors import WrongPhase
from launcher.hypervisor.port import DomainState
from launcher.spec.model import ObjectMeta, VirtualMachineInstance
from launcher.spec.rules.checks import is_label, is_subdomain

PAUSE_TIMEOUT_S = 15.0


class Requests:
    """Each is written into the record; when a call returns, that is on disk."""

    def __init__(self, services: Services, instances: Instances) -> None:
        self._services = services
        self._instances = instances

    async def change(self, manifest: VirtualMachineInstance, *, dry_run: bool) -> VirtualMachineInstance:
        """Take a changed manifest for an instance that runs; asking for the same again tries it again.

        Raises:
            NotFound, InvalidSpec, Conflict, WrongPhase, Exhausted: see ``update.updated``.
        """
        async with self._instances.accepting:
            metadata = manifest.metadata or ObjectMeta()
            machine = self._instances.find(metadata.namespace or "default", metadata.name or "")
            site = await self._instances.site(manifest, machine.record.uid)

            def change(record: InstanceRecord) -> InstanceRecord:
                return updated(record, manifest, site=site, lowest_sockets=machine.sockets_given_up)

            if dry_run:
                return machine.show(change(machine.record))
            await machine.update(change, wake=False)
            machine.retry()
            return self._instances.shown(machine.record.key)

    async def delete(
        self, namespace: str, name: str, *, grace_period_s: int | None, discard_state: bool = False
    ) -> VirtualMachineInstance:
        """Begin to stop and remove an instance; asked to discard its state once, that is not taken back."""
        machine = self._instances.find(namespace, name)

        def change(record: InstanceRecord) -> InstanceRecord:
            grace = record.grace_period_s if grace_period_s is None else grace_period_s
            deleted_at = record.deleted_at or self._services.clock.now()
            metadata = msgspec.structs.replace(
                record.manifest.metadata or ObjectMeta(), deletion_timestamp=deleted_at
            )
            return msgspec.structs.replace(
                record,
                desired="deleted",
                deleted_at=deleted_at,
                grace_period_s=grace,
                discard_state=record.discard_state or discard_state,
                manifest=msgspec.structs.replace(record.manifest, metadata=metadata),
            )

        record = await machine.update(change)
        return self._instances.shown(record.key)

    async def forget_state(self, namespace: str, name: str) -> bool:
        """Remove what is kept of earlier instances ``namespace/name``; returns whether there was any."""
        key = f"{namespace}/{name}"
        async with self._instances.accepting:
            if any(m.record.key == key and not m.gone for m in self._instances.machines()):
                return False  # one is on its way here
            if not (is_label(namespace) and is_subdomain(name)):
                return False
            return await self._services.resources.forget_state(self._services.kept(namespace, name))

    async def set_paused(self, namespace: str, name: str, *, paused: bool) -> VirtualMachineInstance:
        """Pause or unpause the vCPUs; returns when libvirt says so.

        Raises:
            WrongPhase: not running, being deleted, or migrating. TimedOut: libvirt did not follow in 15 s.
        """
        machine = self._instances.find(namespace, name)
        record = machine.record
        verb = "paused" if paused else "unpaused"
        if record.phase != "Running" or record.desired == "deleted":
            raise WrongPhase(
                f"{record.key} cannot be {verb}: its phase is {record.phase}, it must be Running"
            )
        if record.outgoing:
            raise WrongPhase(
                f"{record.key} cannot be {verb} while it migrates",
                hint="wait for the migration, or cancel it",
            )
        await machine.update(lambda r: msgspec.structs.replace(r, user_paused=paused))
        wanted = {DomainState.PAUSED} if paused else {DomainState.RUNNING, DomainState.BLOCKED}
        await machine.until(
            lambda m: (m.observed is not None and m.observed.state in wanted) or m.record.phase in FINAL,
            timeout_s=PAUSE_TIMEOUT_S,
        )
        return self._instances.shown(record.key)
