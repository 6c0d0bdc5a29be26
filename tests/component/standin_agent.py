# SPDX-License-Identifier: Apache-2.0
"""A small agent in memory behind the real API server: it keeps objects, streams changes, echoes consoles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import replace
from standin_backups import StandInBackups

from launcher.agent.port import (
    AddedVolume,
    Capacity,
    Companions,
    DrainRequest,
    DrainStep,
    EventType,
    InterfaceTraffic,
    MigrationProgress,
    MigrationReport,
    MigrationView,
    NodeView,
    SevMeasurementView,
    SevPlatformView,
    WatchEvent,
)
from launcher.errors import (
    AlreadyExists,
    InvalidRequest,
    InvalidSpec,
    NotFound,
    Unavailable,
    Violation,
    WrongPhase,
)
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.spec.model import (
    SEV,
    LaunchSecurity,
    ObjectMeta,
    VirtualMachineInstance,
    VirtualMachineInstanceCondition,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationStatus,
    VirtualMachineInstanceStatus,
)
from launcher.spec.rules import check

VMI = VirtualMachineInstance
Key = tuple[str, str]

REPORT = MigrationReport(
    succeeded=True,
    total_ms=2345,
    downtime_ms=87,
    iterations=4,
    transferred=300 * 2**20,
    steps=((10.0, "max_downtime 279 ms", "iteration 3 began"), (20.0, "max_downtime 407 ms", "10 s passed")),
)


class EchoConsole:
    """A guest that greets, answers each line in capitals, and hangs up at ``exit``; or is never silent."""

    def __init__(self, *, chatty: bool = False) -> None:
        self.chatty = chatty
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._out.put_nowait(b"login: ")
        self.closed = False

    async def read(self) -> bytes:
        if self.chatty:
            await asyncio.sleep(0.1)
            return b"tick"
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        if data.strip() == b"refuse":
            raise WrongPhase("the guest does not want to talk")
        self._out.put_nowait(b"" if data.strip() == b"exit" else data.upper())

    async def close(self) -> None:
        self.closed = True
        self._out.put_nowait(b"")


class EchoStream:
    """A guest's port that says again what it hears, and breaks the connection at ``break``."""

    def __init__(self, greeting: bytes = b"") -> None:
        self._out: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._greeting = greeting
        self.ended = False
        self.closed = False

    async def read(self) -> bytes:
        greeting, self._greeting = self._greeting, b""
        return greeting or await self._out.get()

    async def write(self, data: bytes) -> None:
        if data == b"break":
            raise Unavailable("the guest broke the connection", hint="ask it why")
        await self._out.put(data)

    async def end(self) -> None:
        self.ended = True
        await self._out.put(b"")

    async def close(self) -> None:
        if not self.closed and self._out.empty():
            self._out.put_nowait(b"")
        self.closed = True


class StandInDrains:
    """Has one instance to move."""

    def __init__(self) -> None:
        self.asked: list[DrainRequest] = []

    async def capacity(self) -> Capacity:
        return Capacity(memory_left=None, inbound_left=2)

    async def drain(self, request: DrainRequest) -> AsyncIterator[DrainStep]:
        self.asked.append(request)
        target = request.targets[0] if request.targets else "b"
        if "nowhere" in request.targets:
            raise InvalidRequest([])
        web = DrainStep(namespace="lab", name="web", state="would move", target=target, predicted_s=1.5)
        if request.dry_run:
            yield web
            return
        yield DrainStep(namespace="lab", name="stuck", state="stays", reason="its disk is here")
        yield replace(web, state="moving", migration="drain-web-x")
        yield replace(web, state="moved", migration="drain-web-x")


class StandInAgent:
    """AgentPort over dictionaries. ``failure`` is raised by every call of instances while it is set."""

    def __init__(self) -> None:
        self.instances: dict[Key, VMI] = {}
        self.companions: dict[Key, Companions] = {}
        self.migrations: dict[Key, MigrationView] = {}
        self.targets: dict[Key, str] = {}
        self.prepared: list[PrepareRequest] = []
        self.consoles: list[EchoConsole] = []
        self.streams: list[EchoStream] = []
        self.failure: Exception | None = None
        self.secrets: dict[Key, tuple[str, str]] = {}
        self.watchers: list[asyncio.Queue[WatchEvent[VMI]]] = []
        self.chatty = False
        self.backups = StandInBackups()
        self.drains = StandInDrains()
        self.lingers = False  # a guest that takes its time to shut down
        self.recording = b""
        self.strategies: list[str] = []
        self._version = 0

    @property
    def volumes(self) -> StandInAgent:
        return self

    async def create_instance(self, manifest: VMI, companions: Companions, *, dry_run: bool = False) -> VMI:
        self._fail()
        if violations := check(manifest):
            raise InvalidSpec(violations)
        meta = manifest.metadata
        assert meta is not None
        assert meta.namespace
        assert meta.name
        key = (meta.namespace, meta.name)
        if key in self.instances:
            raise AlreadyExists("VirtualMachineInstance", f"{key[0]}/{key[1]}")
        created = replace(manifest, status=VirtualMachineInstanceStatus(phase="Pending", node_name="here"))
        if not dry_run:
            self.companions[key] = companions
            self.put(created, EventType.ADDED)
        return created

    async def add_volume(
        self,
        namespace: str,
        name: str,
        options: AddedVolume,
        companions: Companions,
        *,
        dry_run: bool = False,
    ) -> VMI:
        old = await self.get_instance(namespace, name)
        self.companions[namespace, name] = companions
        devices = old.spec.domain.devices
        disks = (*devices.disks, options.disk) if options.disk is not None else devices.disks
        domain = replace(old.spec.domain, devices=replace(devices, disks=disks))
        volumes = (*old.spec.volumes, options.volume)
        changed = replace(old, spec=replace(old.spec, domain=domain, volumes=volumes))
        if not dry_run:
            self.put(changed)
        return changed

    async def remove_volume(self, namespace: str, name: str, volume: str, *, dry_run: bool = False) -> VMI:
        old = await self.get_instance(namespace, name)
        kept = tuple(entry for entry in old.spec.volumes if entry.name != volume)
        if kept == old.spec.volumes:
            raise NotFound("volume", volume)
        changed = replace(old, spec=replace(old.spec, volumes=kept))
        if not dry_run:
            self.put(changed)
        return changed

    async def update_instance(
        self,
        manifest: VMI,
        companions: Companions = Companions(),  # noqa: B008 - frozen
        *,
        dry_run: bool = False,
        strategy: str = "",
    ) -> VMI:
        metadata = manifest.metadata or ObjectMeta()
        key = (metadata.namespace or "default", metadata.name or "")
        old = await self.get_instance(*key)
        cpu, was = manifest.spec.domain.cpu, old.spec.domain.cpu
        if (cpu.model if cpu else None) != (was.model if was else None):
            message = "cannot be changed while the guest runs"
            raise InvalidSpec([Violation(field="spec.domain.cpu.model", type="Forbidden", message=message)])
        changed = replace(old, spec=manifest.spec)
        self.strategies.append(strategy)
        if not dry_run:
            self.put(changed)
        return changed

    async def get_instance(self, namespace: str, name: str) -> VMI:
        self._fail()
        try:
            return self.instances[namespace, name]
        except KeyError:
            raise NotFound("VirtualMachineInstance", f"{namespace}/{name}") from None

    async def list_instances(self, namespace: str | None) -> tuple[VMI, ...]:
        self._fail()
        return tuple(vmi for key, vmi in self.instances.items() if namespace in (None, key[0]))

    async def watch_instances(
        self, namespace: str | None, name: str | None
    ) -> AsyncIterator[WatchEvent[VMI]]:
        self._fail()
        inbox: asyncio.Queue[WatchEvent[VMI]] = asyncio.Queue()
        present = await self.list_instances(namespace)
        self.watchers.append(inbox)
        try:
            for vmi in present:
                if name is None or (vmi.metadata and vmi.metadata.name == name):
                    yield WatchEvent(type=EventType.ADDED, version=self._version, object=vmi)
            yield WatchEvent(type=EventType.BOOKMARK, version=self._version)
            while True:
                yield await inbox.get()
        finally:
            self.watchers.remove(inbox)

    async def delete_instance(
        self, namespace: str, name: str, *, grace_period_s: int | None = None, discard_state: bool = False
    ) -> VMI:
        vmi = await self.get_instance(namespace, name)
        if self.lingers:
            return vmi
        del self.instances[namespace, name]
        self._tell(WatchEvent(type=EventType.DELETED, version=self._next(), object=vmi))
        return vmi

    async def pause_instance(self, namespace: str, name: str) -> VMI:
        return self._paused(await self.get_instance(namespace, name), paused=True)

    async def unpause_instance(self, namespace: str, name: str) -> VMI:
        vmi = await self.get_instance(namespace, name)
        if vmi.status is None or not vmi.status.conditions:
            raise WrongPhase(f"{namespace}/{name} is not paused", hint="launcherctl get vmi -o wide shows it")
        return self._paused(vmi, paused=False)

    async def instance_xml(self, namespace: str, name: str) -> str:
        await self.get_instance(namespace, name)
        return f"<domain><name>{namespace}_{name}</name></domain>"

    async def console(self, namespace: str, name: str) -> EchoConsole:
        await self.get_instance(namespace, name)
        self.consoles.append(EchoConsole(chatty=self.chatty))
        return self.consoles[-1]

    async def console_log(self, namespace: str, name: str, *, tail_bytes: int) -> bytes:
        await self.get_instance(namespace, name)
        return b"tick 1\r\ntick 2\r\n"[-tail_bytes:]

    async def traffic(self, namespace: str | None, name: str | None) -> tuple[InterfaceTraffic, ...]:
        self._fail()
        keys = [key for key in self.instances if namespace in (None, key[0]) and name in (None, key[1])]
        return tuple(
            InterfaceTraffic(
                namespace=key[0], instance=key[1], interface="default", rx_bytes=4096, tx_packets=7
            )
            for key in keys
        )

    async def port_forward(self, namespace: str, name: str, port: int) -> EchoStream:
        await self.get_instance(namespace, name)
        if port != 22:
            raise Unavailable(f"the guest refuses connections to port {port}", hint="does it listen?")
        self.streams.append(EchoStream())
        return self.streams[-1]

    async def vnc(self, namespace: str, name: str) -> EchoStream:
        await self.get_instance(namespace, name)
        self.streams.append(EchoStream(b"RFB 003.008\n"))
        return self.streams[-1]

    async def usb_redirect(self, namespace: str, name: str) -> EchoStream:
        await self.get_instance(namespace, name)
        self.streams.append(EchoStream())
        return self.streams[-1]

    async def create_migration(
        self, manifest: VirtualMachineInstanceMigration, *, target: str
    ) -> VirtualMachineInstanceMigration:
        meta = manifest.metadata or ObjectMeta()
        key = (meta.namespace or "", meta.name or "")
        await self.get_instance(key[0], manifest.spec.vmi_name or "")
        if target == "nowhere":
            raise InvalidRequest([])
        view = MigrationView(object=_in_phase(manifest, "Running"))
        self.migrations[key], self.targets[key] = view, target
        return view.object

    async def get_migration(self, namespace: str, name: str) -> MigrationView:
        try:
            return self.migrations[namespace, name]
        except KeyError:
            raise NotFound("VirtualMachineInstanceMigration", f"{namespace}/{name}") from None

    async def list_migrations(self, namespace: str | None) -> tuple[MigrationView, ...]:
        return tuple(view for key, view in self.migrations.items() if namespace in (None, key[0]))

    async def watch_migration(self, namespace: str, name: str) -> AsyncIterator[MigrationView]:
        view = await self.get_migration(namespace, name)
        yield view
        for iteration in (1, 2, 3):
            yield replace(view, progress=_progress(iteration))
        report = REPORT if not name.startswith("bad") else MigrationReport(succeeded=False, reason="no luck")
        phase = "Succeeded" if report.succeeded else "Failed"
        yield MigrationView(object=_in_phase(view.object, phase), progress=_progress(4), report=report)

    async def watch_migrations(self, namespace: str | None) -> AsyncIterator[WatchEvent[MigrationView]]:
        for view in await self.list_migrations(namespace):
            yield WatchEvent(type=EventType.ADDED, version=self._version, object=view)
        yield WatchEvent(type=EventType.BOOKMARK, version=self._version)

    async def recover_migration(self, namespace: str, name: str) -> MigrationView:
        return await self.get_migration(namespace, name)

    async def cancel_migration(self, namespace: str, name: str) -> MigrationView:
        view = await self.get_migration(namespace, name)
        self.migrations[namespace, name] = replace(view, object=_in_phase(view.object, "Failed"))
        return self.migrations[namespace, name]

    async def delete_migration(self, namespace: str, name: str) -> MigrationView:
        view = await self.get_migration(namespace, name)
        del self.migrations[namespace, name]
        return view

    async def migration_recording(self, namespace: str, name: str, *, attempt: int = 0) -> bytes:
        await self.get_migration(namespace, name)
        return self.recording

    async def node(self) -> NodeView:
        return NodeView(
            name="here",
            version="1",
            libvirt_connected=False,
            libvirt_reason="refused",
            facts={"arch": "amd64", "libvirtVersion": 9000000, "cells": [{"id": 0}]},
            instances=len(self.instances),
            migrations=len(self.migrations),
            peers=("there",),
        )

    async def sev_platform(self) -> SevPlatformView:
        self._fail()
        return SevPlatformView(pdh="UERI", cert_chain="Y2VydHM=", cbitpos=51, reduced_phys_bits=1)

    async def set_up_sev(self, namespace: str, name: str, *, session: str, dh_cert: str) -> VMI:
        vmi = await self.get_instance(namespace, name)
        sev = SEV(session=session, dh_cert=dh_cert)
        domain = replace(vmi.spec.domain, launch_security=LaunchSecurity(sev=sev))
        changed = replace(vmi, spec=replace(vmi.spec, domain=domain))
        self.put(changed)
        return changed

    async def sev_measurement(self, namespace: str, name: str) -> SevMeasurementView:
        await self.get_instance(namespace, name)
        return SevMeasurementView(measurement="bWVhc3VyZWQ=", api_major=1, api_minor=51, policy=1)

    async def inject_sev_secret(self, namespace: str, name: str, *, header: str, secret: str) -> None:
        await self.get_instance(namespace, name)
        self.secrets[namespace, name] = (header, secret)

    async def prepare_migration(self, request: PrepareRequest) -> PrepareReply:
        self._fail()
        self.prepared.append(request)
        return PrepareReply(node="here", migrate_uri="tcp://192.0.2.1:49152", lease_s=30.0)

    async def finish_migration(
        self, attempt: str, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        domain = "discarded" if discard else "reclaimed" if reclaim else ""
        return TargetState(attempt=attempt, known=True, domain=domain, reason=reason, adopted=succeeded)

    async def interrupt_migration(self, attempt: str, *, reopen: bool = False) -> TargetState:
        return await self.migration_state(attempt)

    async def migration_state(self, attempt: str) -> TargetState:
        return TargetState(attempt=attempt, known=False)

    def put(self, vmi: VMI, kind: EventType = EventType.MODIFIED) -> None:
        """Store an instance and tell the watchers."""
        meta = vmi.metadata or ObjectMeta()
        self.instances[meta.namespace or "", meta.name or ""] = vmi
        self._tell(WatchEvent(type=kind, version=self._next(), object=vmi))

    def _paused(self, vmi: VMI, *, paused: bool) -> VMI:
        shown = (VirtualMachineInstanceCondition(type="Paused", status="True"),) if paused else ()
        changed = replace(vmi, status=VirtualMachineInstanceStatus(phase="Running", conditions=shown))
        self.put(changed)
        return changed

    def _tell(self, event: WatchEvent[VMI]) -> None:
        for inbox in self.watchers:
            inbox.put_nowait(event)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def _in_phase(vmim: VirtualMachineInstanceMigration, phase: str) -> VirtualMachineInstanceMigration:
    return replace(vmim, status=VirtualMachineInstanceMigrationStatus(phase=phase))


def _progress(iteration: int) -> MigrationProgress:
    remaining = (200 >> iteration) * 2**20
    return MigrationProgress(
        phase="Running",
        elapsed_s=iteration * 0.4,
        iteration=iteration,
        total=256 * 2**20,
        processed=256 * 2**20 - remaining,
        remaining=remaining,
        bandwidth_bps=100 * 2**20,
        max_downtime_ms=150,
        eta_s=2.0 if iteration > 1 else None,
        note="max_downtime 279 ms: iteration 3 began" if iteration == 3 else "",
    )
