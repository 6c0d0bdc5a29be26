# SPDX-License-Identifier: Apache-2.0
"""The agent of one node: what ``api`` talks to. Starts and stops the parts; each request goes to its part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from launcher import __version__
from launcher.agent.access import Access
from launcher.agent.attestation import Attestation
from launcher.agent.backups import Backups
from launcher.agent.downward import DownwardMetrics
from launcher.agent.drain import Drains
from launcher.agent.hostfacts import HostFacts
from launcher.agent.instances import Instances
from launcher.agent.lookout import Lookout
from launcher.agent.machine import Services
from launcher.agent.migrations import Migrations
from launcher.agent.port import (
    ByteStream,
    Companions,
    ConsoleSession,
    InterfaceTraffic,
    MigrationView,
    NodeView,
    SevMeasurementView,
    SevPlatformView,
    WatchEvent,
)
from launcher.agent.probes import Probes
from launcher.agent.records import Firings, Notice
from launcher.agent.requests import Requests
from launcher.agent.resources import Resources
from launcher.agent.roots import make_roots
from launcher.agent.settings import plan_settings
from launcher.agent.storage_settings import storage_settings
from launcher.agent.store import Store
from launcher.agent.supervisor import Supervisor
from launcher.agent.traffic import traffic
from launcher.agent.tunnels import Tunnels
from launcher.agent.watch import Hub
from launcher.console.log import read_tail
from launcher.console.relay import Consoles
from launcher.errors import HypervisorUnavailable, LauncherError, NotFound, Unavailable, WrongPhase
from launcher.host.clock import SystemClock
from launcher.host.config import Config
from launcher.host.logging import get
from launcher.hypervisor.port import (
    AgentLifecycleEvent,
    ConnectionEvent,
    Event,
    Hypervisor,
    LifecycleEvent,
    WatchdogEvent,
)
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.network.executor import NetworkExecutor
from launcher.plan.paths import instance_paths
from launcher.spec.model import VirtualMachineInstance, VirtualMachineInstanceMigration
from launcher.storage.executor import StorageExecutor

log = get(__name__)

MAX_LOG_TAIL_BYTES = 1 << 20
SETTLE_S = 2.0
"""How long the agent looks at what it finds before it serves; without libvirt it serves all the same."""


class NodeAgent:
    """Implements ``AgentPort``. ``start`` first; ``stop`` leaves every guest alone."""

    def __init__(self, config: Config, hypervisor: Hypervisor, store: Store) -> None:
        self._config = config
        self._hypervisor = hypervisor
        self._store = store
        self._supervisor = Supervisor()
        self._facts = HostFacts(config, hypervisor)
        storage = StorageExecutor(storage_settings(config))
        services = Services(
            node=config.node_name,
            hypervisor=hypervisor,
            store=store,
            resources=Resources(store, storage=storage, network=NetworkExecutor()),
            hub=Hub[VirtualMachineInstance](),
            clock=SystemClock(),
            state_dir=config.state_dir,
        )
        self._services = services
        self._instances = Instances(config, services, self._facts, self._supervisor)
        self._requests = Requests(services, self._instances)
        self.volumes = self._requests
        self._migrations = Migrations(config, services, self._instances, self._facts, self._supervisor)
        self._attestation = Attestation(services, self._instances)
        self._probes = Probes(services, self._instances, self._supervisor)
        self._access = Access(services, self._instances, self._supervisor)
        self._lookout = Lookout(services, self._instances, self._supervisor)
        self._downward = DownwardMetrics(services, self._instances, self._facts, self._supervisor)
        self.drains = Drains(config, self._instances, self._migrations)
        self.backups = Backups(config, services, self._instances, self._supervisor)
        self._consoles = Consoles()
        self._tunnels = Tunnels(services, self._instances)
        self._down_reason = "connecting"

    async def start(self) -> None:
        """Take up what the store remembers and begin to follow libvirt."""
        make_roots(self._config)
        self._hypervisor.subscribe(self._on_event)
        await self._instances.load()
        await self._migrations.load()
        await self.backups.load()
        await self._services.resources.take_up(frozenset(r.uid for r in self._instances.records()))
        await self._hypervisor.start()
        await self._instances.settle(timeout_s=SETTLE_S)
        self._supervisor.keep(self._read_all, name="periodic read")
        self._supervisor.keep(self._downward.run, name="downward metrics")
        self._supervisor.keep(self._probes.run, name="probes")
        self._supervisor.keep(self._access.run, name="access credentials")
        self._supervisor.keep(self.backups.run, name="thaws")
        self._supervisor.keep(self._lookout.run, name="lookout")

    async def stop(self) -> None:
        """Stop all tasks. Guests, their files and running migrations go on without the agent."""
        self._services.hub.close()
        await self._migrations.close()
        await self._supervisor.stop()
        await self._services.resources.close()
        await self._hypervisor.close()
        await self._store.close()

    # Instances.

    async def create_instance(
        self, manifest: VirtualMachineInstance, companions: Companions, *, dry_run: bool = False
    ) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._instances.create(manifest, companions, dry_run=dry_run)

    async def update_instance(
        self,
        manifest: VirtualMachineInstance,
        companions: Companions = Companions(),  # noqa: B008 - frozen
        *,
        dry_run: bool = False,
        strategy: str = "",
    ) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._requests.change(manifest, companions, dry_run=dry_run, strategy=strategy)

    async def get_instance(self, namespace: str, name: str) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._instances.get(namespace, name)

    async def list_instances(self, namespace: str | None) -> tuple[VirtualMachineInstance, ...]:
        """See ``AgentPort``."""
        return await self._instances.list(namespace)

    def watch_instances(
        self, namespace: str | None, name: str | None
    ) -> AsyncIterator[WatchEvent[VirtualMachineInstance]]:
        """See ``AgentPort``."""
        return self._instances.watch(namespace, name)

    async def delete_instance(
        self, namespace: str, name: str, *, grace_period_s: int | None = None, discard_state: bool = False
    ) -> VirtualMachineInstance | None:
        """See ``AgentPort``; a migration away is cancelled first."""
        try:
            machine = self._instances.find(namespace, name)
        except NotFound:
            if discard_state and await self._requests.forget_state(namespace, name):
                return None
            raise
        await self._migrations.cancel_of(machine)
        return await self._requests.delete(
            namespace, name, grace_period_s=grace_period_s, discard_state=discard_state
        )

    async def pause_instance(self, namespace: str, name: str) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._requests.set_paused(namespace, name, paused=True)

    async def unpause_instance(self, namespace: str, name: str) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._requests.set_paused(namespace, name, paused=False)

    async def instance_xml(self, namespace: str, name: str) -> str:
        """See ``AgentPort``."""
        return await self._hypervisor.domain_xml(
            self._instances.find(namespace, name).record.plan.identity.uuid
        )

    async def console(self, namespace: str, name: str) -> ConsoleSession:
        """See ``AgentPort``."""
        record = self._instances.find(namespace, name).record
        if record.plan.devices.serial is None:
            raise WrongPhase(f"{record.key} has no serial console", hint="autoattachSerialConsole is false")
        return await self._consoles.attach(record.plan.devices.serial.socket)

    async def console_log(self, namespace: str, name: str, *, tail_bytes: int) -> bytes:
        """See ``AgentPort``."""
        record = self._instances.find(namespace, name).record
        path = Path(instance_paths(plan_settings(self._config), record.uid).serial_log)
        return await asyncio.to_thread(
            read_tail, path, min(tail_bytes or MAX_LOG_TAIL_BYTES, MAX_LOG_TAIL_BYTES)
        )

    async def traffic(self, namespace: str | None, name: str | None) -> tuple[InterfaceTraffic, ...]:
        """See ``AgentPort``."""
        found = self._instances.machines()
        if name is not None:
            found = (self._instances.find(namespace or "default", name),)
        return await traffic(
            self._hypervisor, [m for m in found if namespace in (None, m.record.namespace) and not m.ended]
        )

    async def port_forward(self, namespace: str, name: str, port: int) -> ByteStream:
        """See ``AgentPort``."""
        return await self._tunnels.to_port(namespace, name, port)

    async def vnc(self, namespace: str, name: str) -> ByteStream:
        """See ``AgentPort``."""
        return await self._tunnels.to_screen(namespace, name)

    async def usb_redirect(self, namespace: str, name: str) -> ByteStream:
        """See ``AgentPort``."""
        return await self._tunnels.to_usb(namespace, name)

    # Attestation.

    async def sev_platform(self) -> SevPlatformView:
        """See ``AgentPort``."""
        return await self._attestation.platform()

    async def set_up_sev(
        self, namespace: str, name: str, *, session: str, dh_cert: str
    ) -> VirtualMachineInstance:
        """See ``AgentPort``."""
        return await self._attestation.set_up(namespace, name, session=session, dh_cert=dh_cert)

    async def sev_measurement(self, namespace: str, name: str) -> SevMeasurementView:
        """See ``AgentPort``."""
        return await self._attestation.measurement(namespace, name)

    async def inject_sev_secret(self, namespace: str, name: str, *, header: str, secret: str) -> None:
        """See ``AgentPort``."""
        await self._attestation.inject(namespace, name, header=header, secret=secret)

    # Migrations.

    async def create_migration(
        self, manifest: VirtualMachineInstanceMigration, *, target: str
    ) -> VirtualMachineInstanceMigration:
        """See ``AgentPort``."""
        return await self._migrations.create(manifest, target=target)

    async def get_migration(self, namespace: str, name: str) -> MigrationView:
        """See ``AgentPort``."""
        return self._migrations.get(namespace, name)

    async def list_migrations(self, namespace: str | None) -> tuple[MigrationView, ...]:
        """See ``AgentPort``."""
        return self._migrations.list(namespace)

    def watch_migration(self, namespace: str, name: str) -> AsyncIterator[MigrationView]:
        """See ``AgentPort``."""
        return self._migrations.watch_one(namespace, name)

    def watch_migrations(self, namespace: str | None) -> AsyncIterator[WatchEvent[MigrationView]]:
        """See ``AgentPort``."""
        return self._migrations.watch_all(namespace)

    async def cancel_migration(self, namespace: str, name: str) -> MigrationView:
        """See ``AgentPort``."""
        return await self._migrations.cancel(namespace, name)

    async def recover_migration(self, namespace: str, name: str) -> MigrationView:
        """See ``AgentPort``."""
        return await self._migrations.recover(namespace, name)

    async def delete_migration(self, namespace: str, name: str) -> MigrationView:
        """See ``AgentPort``."""
        return await self._migrations.delete(namespace, name)

    async def migration_recording(self, namespace: str, name: str, *, attempt: int = 0) -> bytes:
        """See ``AgentPort``."""
        return await self._migrations.recording(namespace, name, attempt=attempt)

    async def prepare_migration(self, request: PrepareRequest) -> PrepareReply:
        """See ``AgentPort``."""
        return await self._migrations.expected.prepare(request, self._migrations.incoming)

    async def finish_migration(
        self, attempt: str, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        """See ``AgentPort``."""
        return await self._migrations.incoming.finish(
            attempt, succeeded=succeeded, reason=reason, reclaim=reclaim, discard=discard
        )

    async def interrupt_migration(self, attempt: str, *, reopen: bool = False) -> TargetState:
        """See ``AgentPort``."""
        incoming = self._migrations.incoming
        return await (incoming.reopen(attempt) if reopen else incoming.interrupt(attempt))

    async def migration_state(self, attempt: str) -> TargetState:
        """See ``AgentPort``."""
        return await self._migrations.incoming.state(attempt)

    # The node.

    async def node(self) -> NodeView:
        """See ``AgentPort``."""
        facts: dict[str, object] = {}
        if self._hypervisor.connected:
            try:
                facts = msgspec.to_builtins(await self._facts.get())
            except Unavailable as error:
                self._down_reason = str(error)
        return NodeView(
            name=self._config.node_name,
            version=__version__,
            libvirt_connected=self._hypervisor.connected,
            libvirt_reason="" if self._hypervisor.connected else self._down_reason,
            facts=facts,
            instances=sum(1 for record in self._instances.records() if not record.incoming),
            migrations=self._migrations.running(),
            peers=tuple(sorted(self._config.peers)),
        )

    # What drives it.

    def _on_event(self, event: Event) -> None:
        match event:
            case ConnectionEvent(up=True):
                self._down_reason = ""
                log.info("connected to libvirt")
                self._facts.forget()
                self._instances.wake_all()
                self._supervisor.spawn(self._reap(), name="reaper")
            case ConnectionEvent(why=why):
                self._down_reason = why
                log.warning("no connection to libvirt", why=why)
            case AgentLifecycleEvent(uuid=uuid, connected=connected):
                machine = self._instances.by_uuid(uuid)
                if machine is not None:
                    self._access.agent_changed(machine)
                    work = machine.update(lambda r: msgspec.structs.replace(r, agent_connected=connected))
                    self._supervisor.spawn(_quietly(work), name="guest agent")
            case WatchdogEvent(uuid=uuid, action=action):
                self._on_watchdog(uuid, action)
            case LifecycleEvent(uuid=uuid, event="crashed", detail="panicked"):
                self._on_panic(uuid)
            case _:
                machine = self._instances.by_uuid(event.uuid)
                if machine is not None:
                    machine.told(event)
        self._migrations.on_event(event)
        self.backups.on_event(event)

    def _on_watchdog(self, uuid: str, action: str) -> None:
        machine = self._instances.by_uuid(uuid)
        if machine is None:
            return
        log.warning("the guest did not feed its watchdog", vmi=machine.record.key, action=action)
        at = self._services.clock.now()

        def fired(notice: Notice) -> Notice:
            count = 1 if notice.watchdog is None else notice.watchdog.count + 1
            return msgspec.structs.replace(notice, watchdog=Firings(count=count, action=action, at=at))

        machine.notice(fired)

    def _on_panic(self, uuid: str) -> None:
        machine = self._instances.by_uuid(uuid)
        if machine is not None:
            log.warning("the guest panicked", vmi=machine.record.key)
            machine.notice(lambda notice: msgspec.structs.replace(notice, panicked=True))

    async def _reap(self) -> None:
        living = frozenset(record.uid for record in self._instances.records())
        try:
            swept = await self._services.resources.reap(living)
        except (LauncherError, TimeoutError) as error:
            log.warning(f"cannot remove what belongs to nobody: {error}")
            return
        if swept:
            log.info("removed what belonged to nobody", owners=",".join(swept))

    async def _read_all(self) -> None:
        while True:
            await asyncio.sleep(self._config.reconcile_interval_s)
            self._instances.wake_all()


async def _quietly(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except (LauncherError, HypervisorUnavailable):
        return  # the instance was forgotten meanwhile
