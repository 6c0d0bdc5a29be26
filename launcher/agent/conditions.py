# SPDX-License-Identifier: Apache-2.0
"""Conditions of an instance's status: which hold now, and since when. Pure.

As in KubeVirt, a condition that does not hold is absent; only Ready, LiveMigratable, Synchronized and
AccessCredentialsSynchronized are also shown as False.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.agent import lifecycle
from launcher.agent.functions import function_step
from launcher.agent.hotplug import (
    Attempts,
    Hardware,
    current_memory,
    memory_step,
    requested_memory,
    vcpus_step,
)
from launcher.agent.nics import (
    DropNetwork,
    InterfaceStep,
    PlugInterface,
    SetLink,
    UnplugInterface,
    interfaces_step,
)
from launcher.agent.records import FINAL, InstanceRecord
from launcher.agent.volume_moves import moves_condition
from launcher.agent.volume_status import changing_volumes
from launcher.domain.read import DomainView
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.plan.context import guest_memory
from launcher.plan.media.credentials import by_agent
from launcher.spec.model import VirtualMachineInstanceCondition as Condition
from launcher.units import human_bytes

_UNKNOWN = Condition(
    type="Ready", status="Unknown", reason="LibvirtUnavailable", message="libvirt was not asked yet"
)
_AWAITS_SESSION = Condition(
    type="Ready",
    status="False",
    reason="SEVSessionRequired",
    message="its owner has to hand over the session to start it in: launcherctl sev setup",
)
_PAUSES = {
    "user": ("PausedByUser", "the guest is paused by a user"),
    "ioerror": ("PausedIOError", "the guest is paused by an I/O error"),
}


def conditions(
    record: InstanceRecord,
    observed: DomainRecord | None,
    findings: tuple[tuple[str, str], ...],
    *,
    known: bool = True,
    hardware: Hardware = Hardware(),  # noqa: B008 - frozen
    faults: tuple[str, ...] = (),
    cut_off: tuple[str, ...] = (),
) -> Iterator[Condition]:
    """What holds now. ``findings`` are the (reason, message) pairs that forbid a live migration, ``faults``
    the shares that the guest has lost, ``cut_off`` its links."""
    yield _ready(record, observed) if known else _UNKNOWN
    if record.phase == "Running":
        if findings:
            reason, message = findings[0]
            text = "; ".join(text for _, text in findings) if len(findings) > 1 else message
            yield Condition(type="LiveMigratable", status="False", reason=reason, message=text)
        else:
            yield Condition(type="LiveMigratable", status="True")
    pause = _pause(record, observed, hardware)
    if pause is not None:
        yield Condition(type="Paused", status="True", reason=pause[0], message=pause[1])
    if record.phase == "Running" and hardware.live is not None:
        yield from _changing(record, hardware.live, hardware)
    if record.phase == "Running":
        yield from changing_volumes(record, hardware)
        yield from moves_condition(record)
    if record.agent_connected and record.phase == "Running":
        yield Condition(type="AgentConnected", status="True")
    if record.phase == "Running" and by_agent(record.defaulted):
        yield _credentials(record)
    if record.plan.identity.virt == "qemu":
        yield Condition(
            type="SoftwareEmulation", status="True", message="the guest runs by emulation, without KVM"
        )
    ports = record.allocations.node_ports
    if ports and record.phase == "Running":
        message = ", ".join(f"{port.node} -> {port.guest}/{port.protocol}" for port in ports)
        yield Condition(type="NodePorts", status="True", reason="Forwarded", message=message)
    fired = record.notice.watchdog
    if fired is not None:
        times = "once" if fired.count == 1 else f"{fired.count} times"
        message = f"the guest did not feed its watchdog, {times}; at {fired.at} its action was {fired.action}"
        yield Condition(type="WatchdogFired", status="True", reason="GuestHung", message=message)
    if faults:
        message = "; ".join(faults)
        yield Condition(type="SharesConnected", status="False", reason="VirtiofsdEnded", message=message)
    if cut_off and record.phase == "Running":
        message = "; ".join(cut_off)
        yield Condition(type="NetworkConnected", status="False", reason="LinkRemoved", message=message)
    if record.sync_error:
        reason = record.sync_reason or "FailedSync"
        yield Condition(type="Synchronized", status="False", reason=reason, message=record.sync_error)


def _credentials(record: InstanceRecord) -> Condition:
    """Whether the guest agent took the access credentials that go by it."""
    kind, delivery = "AccessCredentialsSynchronized", record.notice.credentials
    if not record.agent_connected:
        message = "the guest agent is not connected"
        return Condition(type=kind, status="False", reason="GuestAgentOffline", message=message)
    if delivery is None:
        message = "the guest agent was not told them yet"
        return Condition(type=kind, status="False", reason="Pending", message=message)
    if delivery.done:
        return Condition(type=kind, status="True")
    return Condition(type=kind, status="False", reason="GuestAgentRefused", message=delivery.why)


def _changing(record: InstanceRecord, live: DomainView, hardware: Hardware) -> Iterator[Condition]:
    """Changes that are under way (True), or that were given up (False)."""
    if vcpus_step(record, live) is not None:
        what = f"{live.vcpus} of {record.plan.vcpus.current} vCPUs are plugged"
        yield _change("HotVCPUChange", "VCPUHotplugFailed", what, hardware.vcpus)
    change, missing = interfaces_step(record, live), function_step(record, live)
    if change is not None:
        yield _change(
            "HotInterfaceChange", "InterfaceChangeFailed", _of_interfaces(change), hardware.interfaces
        )
    elif missing is not None:
        what = f"virtual function {missing.device.name} is being plugged"
        yield _change("HotInterfaceChange", "InterfaceChangeFailed", what, hardware.functions)
    memory, requested = guest_memory(record.defaulted), requested_memory(live)
    current = current_memory(live)
    if memory_step(record, live) is not None:
        what = f"{human_bytes(memory)} are asked for, the guest is offered {human_bytes(requested)}"
        yield _change("HotMemoryChange", "MemoryHotplugFailed", what, hardware.memory)
    elif current != requested:
        what = f"the guest has {human_bytes(current)} of {human_bytes(requested)}: it takes or gives them"
        yield _change("HotMemoryChange", "", what, Attempts())


def _of_interfaces(step: InterfaceStep) -> str:
    match step:
        case PlugInterface(nic=nic):
            return f"interface {nic.name} is being plugged"
        case UnplugInterface(name=name):
            return f"the guest is asked for interface {name}"
        case SetLink(nic=nic):
            return f"the link of {nic.name} is being set {'down' if nic.link_down else 'up'}"
        case DropNetwork():
            return "what unplugged interfaces had is being removed"


def _change(kind: str, failed: str, what: str, attempts: Attempts) -> Condition:
    message = f"{what}; {attempts.error}" if attempts.error else what
    if attempts.exhausted:
        return Condition(type=kind, status="False", reason=failed, message=message)
    return Condition(type=kind, status="True", message=message)


def since(new: Iterable[Condition], old: Iterable[Condition], *, now: str) -> tuple[Condition, ...]:
    """Give each new condition its transition time: kept while the status is the same, else ``now``."""
    times = {(c.type, c.status): c.last_transition_time for c in old}
    dated = []
    for condition in new:
        at = times.get((condition.type, condition.status)) or now
        dated.append(
            Condition(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
                last_transition_time=at,
            )
        )
    return tuple(dated)


def _ready(record: InstanceRecord, observed: DomainRecord | None) -> Condition:
    if record.phase in FINAL:
        return Condition(type="Ready", status="False", reason="GuestNotRunning", message="the guest ended")
    if record.desired == "deleted":
        return Condition(type="Ready", status="False", reason="Terminating", message="being deleted")
    if lifecycle.alive(observed) and observed is not None and observed.state is not DomainState.PAUSED:
        return _probed(record) or Condition(type="Ready", status="True")
    if record.phase in {"Pending", "Scheduled"} and lifecycle.awaits_session(record):
        return _AWAITS_SESSION
    return Condition(type="Ready", status="False", reason="GuestNotRunning", message="the guest does not run")


def _probed(record: InstanceRecord) -> Condition | None:
    """Why a guest that runs is not ready. One that came from another node counts as ready until it fails."""
    if record.defaulted.spec.readiness_probe is None or record.notice.ready:
        return None
    if record.notice.ready is None:
        if record.migration_state is not None:
            return None
        message = "its readiness probe has not succeeded yet"
        return Condition(type="Ready", status="False", reason="ReadinessProbePending", message=message)
    message = f"its readiness probe fails: {record.notice.unready_why}"
    return Condition(type="Ready", status="False", reason="ReadinessProbeFailed", message=message)


def _pause(
    record: InstanceRecord, observed: DomainRecord | None, hardware: Hardware
) -> tuple[str, str] | None:
    if observed is None or observed.state is not DomainState.PAUSED:
        return None
    if record.user_paused:
        return _PAUSES["user"]
    if record.outgoing and observed.reason in {"migration", "post-copy"}:
        return ("PausedByMigrationMonitor", "the guest is paused by its migration")
    found = _PAUSES.get(observed.reason)
    if observed.reason == "ioerror" and found is not None and hardware.troubles:
        details = "; ".join(trouble.message for trouble in hardware.troubles)
        return (found[0], f"{found[1]}: {details}")
    return found
