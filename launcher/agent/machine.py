# SPDX-License-Identifier: Apache-2.0
"""One instance's live object: a task that looks, asks ``reconcile``, performs. Only writer of its record.

Everything that concerns the instance (requests, libvirt events, timers) only wakes the task; what to do is
always decided from the record and from libvirt's present answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from launcher.agent import hotplug, lifecycle
from launcher.agent import reconcile as do
from launcher.agent.bindings import edited
from launcher.agent.disk_watch import DiskWatch
from launcher.agent.growth import GrowDisk
from launcher.agent.hotplug import Hardware
from launcher.agent.plugging import STEPS, Plugging, Step
from launcher.agent.records import FINAL, InstanceRecord, Moment, Notice, Phase, Transition
from launcher.agent.services import Services as Services
from launcher.agent.sighting import NOTHING, Sighting
from launcher.agent.start_errors import explained
from launcher.agent.status import show
from launcher.agent.supervisor import unless
from launcher.domain.build import build
from launcher.domain.read import DomainView, read_domain
from launcher.errors import (
    HypervisorError,
    HypervisorUnavailable,
    LauncherError,
    NotFound,
    StorageError,
    TimedOut,
)
from launcher.host.boot import boot_id, boot_seconds
from launcher.host.logging import get
from launcher.hypervisor.port import DeviceKeptEvent, DomainRecord, DomainState, Event
from launcher.plan.context import vcpu_topology
from launcher.plan.kept import keeps_state
from launcher.spec.model import VirtualMachineInstance

log = get(__name__)

RETRY_MIN_S = 1.0
RETRY_MAX_S = 60.0
"""Back-off between attempts after an error; each attempt starts from a fresh look."""
MAX_ACTIONS_A_PASS = 16
"""More actions in a row without a pause would mean that reconcile and the world disagree for ever."""


class Machine:
    """The instance of ``record``. Run ``run()`` as a task; it ends when the instance is forgotten."""

    def __init__(self, services: Services, record: InstanceRecord) -> None:
        self._services = services
        self._record = record
        self._observed: DomainRecord | None = None
        self._live: DomainView | None = None
        self._plugging = Plugging(services.hypervisor, services.resources, services.clock)
        self._disks = DiskWatch(services.hypervisor, services.resources)
        self._notice = record.notice
        self._seen = NOTHING
        self._known = False
        self._faults: tuple[str, ...] = ()
        self._cut_off: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._gone = asyncio.Event()
        self._retries = 0
        self._shutdown_at: float | None = None
        self._resume_at: float | None = None
        self._resumes = 0

    @property
    def record(self) -> InstanceRecord:
        """What is remembered now."""
        return self._record

    @property
    def observed(self) -> DomainRecord | None:
        """The domain as it was seen last."""
        return self._observed

    @property
    def known(self) -> bool:
        """Whether the domain was looked at since the agent started."""
        return self._known

    @property
    def hardware(self) -> Hardware:
        """What the domain had when it was looked at last, where that may change while it runs."""
        seen = self._plugging.seen(self._live)
        disks = self._disks
        return dataclasses.replace(seen, sizes=disks.sizes, troubles=disks.troubles, folders=disks.folders)

    @property
    def sockets_given_up(self) -> int | None:
        """Sockets that the guest has, when plugging those it should have was given up; None: it was not."""
        live, hardware = self._live, self.hardware
        if live is None or not hardware.vcpus.exhausted:
            return None
        return live.vcpus // vcpu_topology(self._record.defaulted).per_socket

    @property
    def ended(self) -> bool:
        """Whether the guest ended and libvirt has nothing of it any more."""
        return self._record.phase in FINAL and self._known and self._observed is None

    @property
    def gone(self) -> bool:
        """Whether the instance was forgotten."""
        return self._gone.is_set()

    async def wait_gone(self) -> None:
        """Wait until the instance is forgotten."""
        await self._gone.wait()

    def wake(self) -> None:
        """Look again soon."""
        self._wake.set()

    def told(self, event: Event) -> None:
        """Something happened to the domain: look again soon."""
        if isinstance(event, DeviceKeptEvent):
            self._plugging.refused(event.alias)
        self.wake()

    def notice(self, change: Callable[[Notice], Notice]) -> None:
        """Remember what an event told; what follows from it is decided at the next look, which is soon."""
        self._notice = change(self._notice)
        self.wake()

    async def saw(self, seen: Sighting) -> None:
        """Show what was seen of the guest's interfaces."""
        if seen != self._seen and not self.gone:
            self._seen = seen
            await self._publish()

    def retry(self) -> None:
        """Try again, soon, to change the domain's hardware, however often that failed."""
        self._plugging.reset()
        self.wake()

    async def until(self, reached: Callable[[Machine], bool], *, timeout_s: float) -> None:
        """Wait until ``reached`` holds or the instance is gone; raises TimedOut."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.gone or reached(self))
        except TimeoutError:
            why = self._record.sync_error or "the domain did not reach the state"
            raise TimedOut(f"{self._record.key}: {why} within {timeout_s:.0f} s") from None

    async def update(
        self, change: Callable[[InstanceRecord], InstanceRecord], *, wake: bool = True
    ) -> InstanceRecord:
        """Change the record; it is on disk and published when this returns, and looked at next.

        Raises:
            NotFound: the instance was forgotten meanwhile.
        """
        async with self._lock:
            if self.gone:
                raise NotFound("VirtualMachineInstance", self._record.key)
            record = change(self._record)
            if record != self._record:
                await self._services.store.save_instance(record)
                self._record = record
            await self._publish()
        if wake:
            self.wake()
        return record

    async def _note(self, **changes: object) -> None:
        await self.update(lambda record: msgspec.structs.replace(record, **changes), wake=False)

    async def forget(self) -> None:
        """Release all that the instance owns and drop it; the domain must be gone by then.

        What firmware and TPM remember is kept for the next instance of the name, except where the truth about
        it is on another node: after a migration away, or one hither that failed.
        """
        record, resources = self._record, self._services.resources
        discard = bool(record.discard_state or record.moved_to or record.incoming)
        await resources.release(record.uid, discard_state=discard)
        if record.discard_state:
            await resources.forget_state(self._services.kept(record.namespace, record.name))
        async with self._lock:
            await self._services.store.forget_instance(self._record.uid)
            self._gone.set()
            self._services.hub.remove(self._record.key, self.show(self._record))
        async with self._changed:
            self._changed.notify_all()
        self.wake()

    async def died(self, error: Exception) -> None:
        """A bug ended ``run``; it will be run again. Until then the instance says so."""
        await self._note(sync_error=f"bug in launcher: {type(error).__name__}: {error}")

    async def run(self) -> None:
        """Look, decide, act, until the instance is forgotten."""
        while not self.gone:
            self._wake.clear()
            pause_s = await self._pass()
            if self.gone:
                return
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pass(self) -> float | None:
        """One look and what follows from it; returns the seconds until the next look (None: when woken)."""
        try:
            for _ in range(MAX_ACTIONS_A_PASS):
                if not await self._look():
                    return None
                decision = do.reconcile(
                    self._record,
                    self._observed,
                    now=_now(),
                    efforts=self._efforts(),
                    hardware=self.hardware,
                )
                if not decision.actions:
                    await self._mend_network()
                    await self._succeeded()
                    return decision.look_again_s
                for action in decision.actions:
                    await self._perform(action)
                if self.gone or decision.look_again_s is not None:
                    return decision.look_again_s
        except HypervisorUnavailable:
            return None  # the connection's return wakes every machine
        except (LauncherError, TimeoutError) as error:
            return await self._failed(error)
        return RETRY_MIN_S

    async def _look(self) -> bool:
        if not self._services.hypervisor.connected:
            return False
        uuid, live = self._record.plan.identity.uuid, None
        try:
            observed = await self._services.hypervisor.domain(uuid)
            if hotplug.can_change(self._record) and lifecycle.alive(observed):
                live = read_domain(await self._services.hypervisor.domain_xml(uuid))
            self._observed, self._live = observed, live
        except NotFound:
            self._observed = self._live = None
            self._seen = NOTHING
        self._known = True
        await self._disks.look(
            self._record, self._observed if lifecycle.alive(self._observed) else None, self._live
        )
        self._calm_down()
        self._faults = await self._look_at_shares()
        if live is not None and live.agent_connected not in (None, self._record.agent_connected):
            # An event told of it while no agent of ours listened.
            await self._note(agent_connected=live.agent_connected)
        if self._notice != self._record.notice:
            await self._note(notice=self._notice)
        await self._publish()
        return True

    def _calm_down(self) -> None:
        """A guest that ran for a while after an I/O error counts as well: the next one is a new one."""
        running = self._observed is not None and self._observed.state is DomainState.RUNNING
        at, now = self._resume_at, self._services.clock.monotonic()
        if running and at is not None and now - at > do.IO_RESUME_MAX_S:
            self._resume_at, self._resumes = None, 0

    async def _look_at_shares(self) -> tuple[str, ...]:
        plan = self._record.plan
        if not plan.devices.filesystems or not lifecycle.alive(self._observed):
            return ()
        return await self._services.resources.faults(plan)

    async def _mend_network(self) -> None:
        if self._record.phase != "Running" or self._leaves or self._record.incoming:
            return
        cut_off = await self._services.resources.mend_network(self._record.uid)
        if cut_off != self._cut_off:
            self._cut_off = cut_off
            await self._publish()

    async def _perform(self, action: do.Action) -> None:
        uuid = self._record.plan.identity.uuid
        hypervisor = self._services.hypervisor
        log.info(_words(action), vmi=self._record.key, uid=self._record.uid)
        if isinstance(action, STEPS):
            await self._change(action)
            return
        match action:
            case do.Prepare():
                plan = await self._services.resources.make(self._record)
                await self._note(plan=plan, prepared=True)
            case do.Define():
                await hypervisor.define(await edited(build(self._record.plan), self._record))
            case do.Start(paused=paused):
                await self._begin(uuid, paused=paused)
            case do.Suspend():
                await hypervisor.suspend(uuid)
            case do.Resume():
                self._resume_at, self._resumes = self._services.clock.monotonic(), self._resumes + 1
                await hypervisor.resume(uuid)
            case do.Shutdown():
                await self._shutdown(uuid)
            case do.Destroy():
                await hypervisor.destroy(uuid, graceful=self._retries == 0)
            case do.Undefine():
                await hypervisor.undefine(uuid, keep_nvram=keeps_state(self._record.plan))
            case do.Release():
                await self.forget()
            case do.Retire():
                await self._services.resources.retire(self._record.uid)
                await self._note(prepared=False)
            case do.Enter(phase=phase, reason=reason, message=message):
                at = self._services.clock.now()
                await self.update(lambda r: enter(r, phase, reason, message, at=at), wake=False)

    async def _change(self, step: Step) -> None:
        """Change the guest's hardware; whoever wants the guest gone, or elsewhere, does not wait for it."""
        work = self._plugging.perform(self._record, step)
        change = await unless(work, lambda: self._leaves, changed=self._wake)
        if isinstance(step, GrowDisk):
            self._disks.forget(step.disk.name)
        if change is not None:
            await self.update(change, wake=False)

    @property
    def _leaves(self) -> bool:
        return self.gone or self._record.desired == "deleted" or bool(self._record.outgoing)

    async def _begin(self, uuid: str, *, paused: bool) -> None:
        """Start the domain. What it was to find may have gone since: after a failure all is made again."""
        try:
            await self._services.hypervisor.create(uuid, paused=paused)
        except HypervisorError as error:
            await self._note(prepared=False)
            raise explained(error, self._record.plan.devices) from error

    async def _shutdown(self, uuid: str) -> None:
        began = self._record.shutdown_began
        if began is None or began.boot_id != boot_id():
            await self._note(shutdown_began=_now())
        self._shutdown_at = self._services.clock.monotonic()
        await self._services.hypervisor.shutdown(uuid)

    async def _succeeded(self) -> None:
        self._retries = 0
        if self._record.sync_error:
            await self._note(sync_error="", sync_reason="", sync_volume="")

    async def _failed(self, error: BaseException) -> float:
        delay_s = min(RETRY_MIN_S * 2.0**self._retries, RETRY_MAX_S)
        self._retries += 1
        text = str(error) or type(error).__name__
        log.warning(f"cannot reconcile: {text}", vmi=self._record.key, uid=self._record.uid, retry_s=delay_s)
        told = error if isinstance(error, StorageError) else None
        reason, volume = (told.problem, told.volume) if told is not None else ("", "")
        await self._note(sync_error=text, sync_reason=reason, sync_volume=volume)
        return delay_s

    def _efforts(self) -> do.Efforts:
        now = self._services.clock.monotonic()
        return do.Efforts(
            shutdown_ago_s=None if self._shutdown_at is None else now - self._shutdown_at,
            resume_ago_s=None if self._resume_at is None else now - self._resume_at,
            resumes=self._resumes,
        )

    async def _publish(self) -> None:
        if not self._record.incoming and not self.gone:
            self._services.hub.set(self._record.key, self.show(self._record))
        async with self._changed:
            self._changed.notify_all()

    def show(self, record: InstanceRecord) -> VirtualMachineInstance:
        """The object of ``record``, which is this instance's or what it would be."""
        return show(
            record,
            self._observed,
            node=self._services.node,
            now=self._services.clock.now(),
            before=self._services.hub.get(self._record.key),
            hardware=self.hardware,
            known=self._known,
            faults=self._faults,
            cut_off=self._cut_off,
            seen=self._seen,
        )


def enter(
    record: InstanceRecord, phase: Phase, reason: str = "", message: str = "", *, at: str
) -> InstanceRecord:
    """The record in another phase, with the time of the transition."""
    if record.phase == phase:
        return record
    return msgspec.structs.replace(
        record,
        phase=phase,
        reason=reason,
        message=message,
        transitions=(*record.transitions, Transition(phase=phase, at=at)),
    )


def _words(action: do.Action) -> str:
    name = type(action).__name__.lower()
    return f"{name} {action.phase}" if isinstance(action, do.Enter) else name


def _now() -> Moment:
    return Moment(boot_id=boot_id(), seconds=boot_seconds())
