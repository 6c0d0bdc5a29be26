# SPDX-License-Identifier: Apache-2.0
"""What is asked of an instance that is there: other vCPUs, memory and volumes, a pause, its end."""

from __future__ import annotations

import msgspec

from launcher.agent.added_volume import with_volume, without_volume
from launcher.agent.apart import require_apart
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.port import AddedVolume, Companions
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

    async def change(
        self, manifest: VirtualMachineInstance, companions: Companions, *, dry_run: bool, strategy: str = ""
    ) -> VirtualMachineInstance:
        """Take a changed manifest for an instance that runs; asking for the same again tries it again.

        With the ``strategy`` Migration volumes may name other claims, which a migration then moves them to.

        Raises:
            NotFound, InvalidSpec, Conflict, WrongPhase, Exhausted …: see ``update.updated``.
        """
        async with self._instances.accepting:
            metadata = manifest.metadata or ObjectMeta()
            machine = self._instances.find(metadata.namespace or "default", metadata.name or "")
            return await self._change(machine, manifest, companions, dry_run=dry_run, strategy=strategy)

    async def add_volume(
        self,
        namespace: str,
        name: str,
        options: AddedVolume,
        companions: Companions,
        *,
        dry_run: bool = False,
    ) -> VirtualMachineInstance:
        """Plug a volume into an instance that runs, or put it into its empty CD-ROM drive.

        Raises:
            AlreadyExists: it has a volume of that name. The others: as ``change``.
        """
        async with self._instances.accepting:
            machine = self._instances.find(namespace, name)
            manifest = with_volume(machine.record, options)
            return await self._change(machine, manifest, companions, dry_run=dry_run)

    async def remove_volume(
        self, namespace: str, name: str, volume: str, *, dry_run: bool = False
    ) -> VirtualMachineInstance:
        """Unplug a volume that was plugged, or take it out of its CD-ROM drive.

        Raises:
            NotFound: there is no such volume. The others: as ``change``.
        """
        async with self._instances.accepting:
            machine = self._instances.find(namespace, name)
            manifest = without_volume(machine.record, volume)
            return await self._change(machine, manifest, Companions(), dry_run=dry_run)

    async def _change(
        self,
        machine: Machine,
        manifest: VirtualMachineInstance,
        companions: Companions,
        *,
        dry_run: bool,
        strategy: str = "",
    ) -> VirtualMachineInstance:
        site = await self._instances.site(manifest, machine.record.uid)

        def change(record: InstanceRecord) -> InstanceRecord:
            lowest = machine.sockets_given_up
            return updated(
                record, manifest, site=site, lowest_sockets=lowest, beside=companions, strategy=strategy
            )

        changed = change(machine.record)
        if changed.plan.devices.disks != machine.record.plan.devices.disks:
            others = (other.record for other in self._instances.machines() if not other.ended)
            await require_apart(changed, others)
        if dry_run:
            return machine.show(changed)
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
