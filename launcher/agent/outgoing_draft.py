# SPDX-License-Identifier: Apache-2.0
"""What a migration away, or of volumes within the node, would be like: options, disks, what forbids it.

Begins nothing and asks no peer.
"""

from __future__ import annotations

import asyncio

import msgspec

from launcher.agent.departure import deadline_s, moved_disks, tls_findings
from launcher.agent.functions import functions_of
from launcher.agent.machine import Machine, Services
from launcher.agent.migratability import HOST_DEVICE, disks_to_copy, migration_findings
from launcher.agent.migration_options import check_rules, link_bps, node_options, read_policies
from launcher.agent.moving_devices import fixed_devices
from launcher.agent.records import InstanceRecord
from launcher.errors import MigrationRefused, WrongPhase
from launcher.host.config import Config
from launcher.migration.attempt import Outgoing
from launcher.migration.options import Options, Workload, resolve
from launcher.migration.selection import NAMESPACE_LABEL, policy_name, select
from launcher.plan.context import guest_memory
from launcher.plan.devices.hostdev import is_function
from launcher.plan.steps import CreateImage
from launcher.spec.model import MigrationPolicy, ObjectMeta, VirtualMachineInstanceMigration

CHANNELS = 8
"""Parallel connections of a compressed stream (KubeVirt's number); libvirt compresses no other. Without
compression one is enough: with several QEMU does not keep to a cap of the bandwidth."""


class Drafts:
    """Drafts of migrations of this node's instances."""

    def __init__(self, config: Config, services: Services) -> None:
        self._config = config
        self._services = services
        self._node_options = node_options(config)
        self._rules = check_rules(config)
        self._link_bps = link_bps(config)

    async def within(
        self, machine: Machine, attempt: str, manifest: VirtualMachineInstanceMigration
    ) -> Outgoing:
        """A migration of volumes under a guest that stays."""
        record, metadata = machine.record, manifest.metadata or ObjectMeta()
        _require_running(record)
        moved = await moved_disks(record, self._services.hypervisor)
        options, policy = await self._options(record)
        return Outgoing(
            attempt=attempt,
            namespace=metadata.namespace or "default",
            name=metadata.name or "",
            uuid=record.plan.identity.uuid,
            source_node=self._config.node_name,
            target_node=self._config.node_name,
            options=options,
            policy=self._rules,
            migration_policy=policy,
            priority=manifest.spec.priority or "",
            workload=Workload(memory_bytes=0, disk_bytes=sum(disk.bytes for disk in moved)),
        )

    async def outgoing(
        self, machine: Machine, attempt: str, manifest: VirtualMachineInstanceMigration, target: str
    ) -> Outgoing:
        record = machine.record
        _require_running(record)
        findings = migration_findings(record)
        if findings:
            raise MigrationRefused([f"{reason}: {message}" for reason, message in findings])
        fixed = await fixed_devices(record)
        if fixed:
            raise MigrationRefused([f"{HOST_DEVICE}: {message}" for message in fixed])
        copied = disks_to_copy(record)
        sizes = {step.path: step.size or 0 for step in record.plan.steps if isinstance(step, CreateImage)}
        disk_bytes = sum(
            sizes.get(disk.source.path, 0)
            for disk in record.plan.devices.disks
            if disk.source is not None and disk.target in copied
        )
        moved = await moved_disks(record, self._services.hypervisor)
        metadata = manifest.metadata or ObjectMeta()
        options, policy = await self._options(record)
        workload = Workload(
            memory_bytes=guest_memory(record.defaulted),
            disk_bytes=disk_bytes + sum(disk.bytes for disk in moved),
            vfio=any(not is_function(device) for device in record.plan.devices.hostdevs),
        )
        if not options.disable_tls:
            unfit = await asyncio.to_thread(tls_findings, self._config, deadline_s(options, workload))
            if unfit:
                raise MigrationRefused(unfit)
        return Outgoing(
            attempt=attempt,
            namespace=metadata.namespace or "default",
            name=metadata.name or "",
            uuid=record.plan.identity.uuid,
            source_node=self._config.node_name,
            target_node=target,
            options=options,
            policy=self._rules,
            migration_policy=policy,
            priority=manifest.spec.priority or "",
            workload=workload,
            user_paused=record.user_paused,
            migrate_disks=copied,
            parallel=CHANNELS if options.compression else 0,
            tls=not options.disable_tls,
            migration_id=manifest.spec.send_to.migration_id if manifest.spec.send_to is not None else "",
            unplug=tuple(device.alias for device in functions_of(record)),
        )

    async def _options(self, record: InstanceRecord) -> tuple[Options, str]:
        """The options of a migration of the instance, and the name of the policy that gave some; or empty."""
        policy = await self._policy(record)
        options = resolve(None, policy.spec if policy is not None else None, self._node_options)
        options = msgspec.structs.replace(options, switchover_bps=self._link_bps)
        return options, policy_name(policy) if policy is not None else ""

    async def _policy(self, record: InstanceRecord) -> MigrationPolicy | None:
        """The MigrationPolicy of the instance, from the files as they are now."""
        policies = await asyncio.to_thread(read_policies, self._config.migration.policies_dir)
        metadata = record.manifest.metadata or ObjectMeta()
        return select(policies, labels=metadata.labels, namespace={NAMESPACE_LABEL: record.namespace})


def _require_running(record: InstanceRecord) -> None:
    if record.phase != "Running" or record.desired == "deleted":
        state = "being deleted" if record.desired == "deleted" else record.phase
        raise WrongPhase(f"{record.key} cannot be migrated: it is {state}, it must be Running")
