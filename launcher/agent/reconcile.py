# SPDX-License-Identifier: Apache-2.0
"""Desired against observed: what to do next for one instance. Pure; ``machine`` performs what it says.

The function is level-triggered: it looks at what is, not at what happened, so an agent that was killed at any
point comes back to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from launcher.agent import lifecycle
from launcher.agent.disks import DiskStep, disk_steps
from launcher.agent.functions import PlugFunction, function_step
from launcher.agent.growth import GrowDisk, growth_steps
from launcher.agent.hotplug import (
    Attempts,
    Hardware,
    PlugMemory,
    PlugVCPUs,
    disk_of,
    growth_of,
    memory_step,
    vcpus_step,
)
from launcher.agent.io_errors import may_go_on
from launcher.agent.nics import InterfaceStep, interfaces_step
from launcher.agent.records import FINAL, InstanceRecord, Moment, Phase
from launcher.hypervisor.port import DomainRecord, DomainState

SHUTDOWN_RESEND_S = 5.0
"""A booting guest loses the first ACPI power button; KubeVirt resends after at most 5 s."""
IO_RESUME_MIN_S = 10.0
IO_RESUME_MAX_S = 180.0
"""Back-off between attempts to resume a guest that an I/O error paused (10 s to 3 min, as KubeVirt)."""
IO_PROBE_S = 5.0
"""Between two looks whether storage that is seen to be broken, or full, is well again."""
FOLDER_PROBE_S = 10.0
"""Between two looks at the directory of a utility volume that is at fault."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the plan's steps (files, taps)."""


@dataclass(frozen=True, slots=True)
class Define:
    """Define the domain."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the defined domain."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Suspend:
    """Pause the vCPUs because the user wants it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the vCPUs run."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Ask the guest to power off; the first time starts the grace period."""


@dataclass(frozen=True, slots=True)
class Destroy:
    """End the QEMU process."""


@dataclass(frozen=True, slots=True)
class Undefine:
    """Make libvirt forget the domain."""


@dataclass(frozen=True, slots=True)
class Release:
    """Undo the journalled steps and forget the instance."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Give back what a guest that ended for good used: disks and secrets of its own, daemons, interfaces."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter a phase."""

    phase: Phase
    reason: str = ""
    message: str = ""


_HardwareStep = PlugVCPUs | PlugMemory | InterfaceStep | PlugFunction | DiskStep | GrowDisk
Action = (
    Prepare
    | Define
    | Start
    | Suspend
    | Resume
    | _HardwareStep
    | Shutdown
    | Destroy
    | Undefine
    | Release
    | Retire
    | Enter
)


@dataclass(frozen=True, slots=True)
class Efforts:
    """What was tried lately, in seconds before now; None: not yet."""

    shutdown_ago_s: float | None = None
    resume_ago_s: float | None = None
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, in order, and when to look again if nothing happens."""

    actions: tuple[Action, ...] = ()
    look_again_s: float | None = None


def reconcile(
    record: InstanceRecord,
    observed: DomainRecord | None,
    *,
    now: Moment,
    efforts: Efforts,
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
) -> Decision:
    """Compare and decide. ``observed`` is None when libvirt does not know the domain."""
    if record.incoming or record.outgoing:
        return Decision()  # the domain is the migration's until it ends
    if record.moved_to:
        return _leave(observed)
    if record.desired == "deleted":
        return _delete(record, observed, now=now, efforts=efforts)
    if record.awaits:
        return Decision()  # one that runs elsewhere will take its place
    verdict = lifecycle.judge(record, observed, boot_id=now.boot_id)
    if verdict.phase != record.phase:
        return Decision((Enter(verdict.phase, verdict.reason, verdict.message),))
    if record.phase in FINAL:
        return _finish(record, observed)
    if not record.prepared:
        return Decision((Prepare(),))
    if record.phase == "Pending":
        return Decision((Enter("Scheduled"),))
    if observed is None:
        return Decision() if lifecycle.awaits_session(record) else Decision((Define(),))
    if not lifecycle.alive(observed):
        return Decision((Start(paused=record.user_paused),))
    decision = _settle_pause(record, observed, efforts, hardware)
    return decision if decision.actions or decision.look_again_s else _plug(record, hardware)


def _plug(record: InstanceRecord, hardware: Hardware) -> Decision:
    """Bring the hardware to what is asked for; what fails again and again is left, and reported."""
    waits = []
    for step, attempts in _hardware_steps(record, hardware):
        if step is None or attempts.exhausted:
            continue
        if attempts.wait_s <= 0:
            return Decision((step,))
        waits.append(attempts.wait_s)
    if any(state.message for state in hardware.folders):
        waits.append(FOLDER_PROBE_S)
    return Decision(look_again_s=min(waits, default=None))


def _hardware_steps(
    record: InstanceRecord, hardware: Hardware
) -> Iterator[tuple[_HardwareStep | None, Attempts]]:
    """What is to be changed, and how that went so far."""
    if hardware.live is not None:
        yield vcpus_step(record, hardware.live), hardware.vcpus
        yield memory_step(record, hardware.live), hardware.memory
        yield interfaces_step(record, hardware.live), hardware.interfaces
        yield function_step(record, hardware.live), hardware.functions
        for step in disk_steps(record, hardware.live):
            yield step, hardware.of_disk(disk_of(step.name))
    for growth in growth_steps(record, hardware.sizes):
        yield growth, hardware.of_disk(growth_of(growth.disk.name))


def _finish(record: InstanceRecord, observed: DomainRecord | None) -> Decision:
    if observed is None:
        return Decision((Retire(),)) if record.prepared else Decision()
    if lifecycle.alive(observed):
        return Decision((Destroy(),))
    return Decision((Undefine(),))


def _leave(observed: DomainRecord | None) -> Decision:
    """The instance lives on another node. A domain that runs here is never ended: somebody must look."""
    if observed is None:
        return Decision((Release(),))
    return Decision() if lifecycle.alive(observed) else Decision((Undefine(),))


def _settle_pause(
    record: InstanceRecord, observed: DomainRecord, efforts: Efforts, hardware: Hardware
) -> Decision:
    if record.user_paused:
        return Decision((Suspend(),)) if observed.state is DomainState.RUNNING else Decision()
    if observed.state is not DomainState.PAUSED:
        return Decision()
    if observed.reason == "ioerror" and not may_go_on(hardware.troubles):
        return Decision(look_again_s=IO_PROBE_S)
    if observed.reason == "ioerror":
        wait_s = min(IO_RESUME_MIN_S * 2**efforts.resumes, IO_RESUME_MAX_S)
        ago_s = efforts.resume_ago_s
        if efforts.resumes and ago_s is not None and ago_s < wait_s:
            return Decision(look_again_s=wait_s - ago_s)
        return Decision((Resume(),), look_again_s=wait_s)
    if observed.reason in {"user", "unknown", "starting-up"}:
        return Decision((Resume(),))
    return Decision()  # migration, save, dump, snapshot …: whoever paused it resumes it


def _delete(
    record: InstanceRecord, observed: DomainRecord | None, *, now: Moment, efforts: Efforts
) -> Decision:
    if observed is None:
        return Decision((Release(),))
    if not lifecycle.alive(observed):
        return Decision((Undefine(),))
    grace_s = lifecycle.grace_period_s(record)
    began = record.shutdown_began
    waited_s = now.seconds - began.seconds if began and began.boot_id == now.boot_id else 0.0
    if grace_s <= 0 or waited_s >= grace_s:
        return Decision((Destroy(),))
    left_s = grace_s - waited_s
    pause_s = min(SHUTDOWN_RESEND_S, left_s)
    if began is None or efforts.shutdown_ago_s is None:
        return Decision((Shutdown(),), look_again_s=pause_s)
    if efforts.shutdown_ago_s < SHUTDOWN_RESEND_S or observed.state is DomainState.SHUTDOWN:
        return Decision(look_again_s=min(left_s, max(0.1, SHUTDOWN_RESEND_S - efforts.shutdown_ago_s)))
    return Decision((Shutdown(),), look_again_s=pause_s)
