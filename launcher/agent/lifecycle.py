# SPDX-License-Identifier: Apache-2.0
"""Which phase an instance is in, judged from its record and its domain. Pure; a table, no actions.

Phases on a node: Pending (accepted) -> Scheduled (its files and taps exist) -> Running -> Succeeded | Failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from launcher.agent.records import FINAL, InstanceRecord, Phase
from launcher.hypervisor.port import DomainRecord, DomainState

DEFAULT_GRACE_S = 30
"""terminationGracePeriodSeconds when the manifest has none (the API's default)."""

DOWN = frozenset({DomainState.SHUTOFF, DomainState.CRASHED, DomainState.NOSTATE})
_ENDED_WELL = frozenset({"shutdown", "saved", "from-snapshot"})
_ENDED_BADLY = {
    "crashed": ("GuestCrashed", "the QEMU process ended unexpectedly"),
    "panicked": ("GuestPanicked", "the guest panicked"),
    "failed": ("DomainFailed", "the QEMU process ended with an error"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The phase an instance should be in and, for Failed, why."""

    phase: Phase
    reason: str = ""
    message: str = ""


def alive(observed: DomainRecord | None) -> bool:
    """Whether a QEMU process runs for the domain (paused and shutting down count)."""
    return observed is not None and observed.state not in DOWN


def grace_period_s(record: InstanceRecord) -> int:
    """Seconds between the shutdown signal and the kill; a delete request may shorten the manifest's."""
    if record.grace_period_s is not None:
        return record.grace_period_s
    asked = record.manifest.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_S if asked is None else asked


def awaits_session(record: InstanceRecord) -> bool:
    """Whether the owner of a SEV guest, who wants to attest it, has yet to hand over a session for it."""
    asked = record.defaulted.spec.domain.launch_security
    if asked is None or asked.sev is None or asked.sev.attestation is None:
        return False
    return not (asked.sev.session and asked.sev.dh_cert)


def has_acpi(record: InstanceRecord) -> bool:
    """Whether the guest can see a power button."""
    features = record.defaulted.spec.domain.features
    return features is not None and features.acpi is not None and features.acpi.enabled is not False


def judge(record: InstanceRecord, observed: DomainRecord | None, *, boot_id: str) -> Verdict:
    """The phase that ``observed`` (None: libvirt does not know the domain) implies.

    A domain that stopped by itself ended the instance: it is never started a second time.
    """
    unchanged = Verdict(record.phase, record.reason, record.message)
    if record.phase in FINAL:
        return unchanged
    started = record.phase == "Running"
    if observed is None:
        if started:
            return _lost(record, boot_id, "libvirt no longer knows the domain")
        return unchanged
    if alive(observed):
        if observed.state is DomainState.PAUSED and observed.reason == "post-copy-failed":
            return Verdict("Failed", "PostcopyFailed", "the memory of the guest was lost in post-copy")
        if record.notice.dead_why and started:
            return Verdict(
                "Failed", "LivenessProbeFailed", f"its liveness probe failed: {record.notice.dead_why}"
            )
        return Verdict("Running")
    if observed.reason in _ENDED_BADLY and (started or observed.reason != "failed"):
        return _ended_badly(record, observed.reason)
    if observed.reason == "destroyed":
        if has_acpi(record) and grace_period_s(record) != 0:
            return Verdict("Failed", "Destroyed", "the domain was destroyed, not shut down")
        return Verdict("Succeeded")
    if observed.reason in _ENDED_WELL:
        return Verdict("Succeeded")
    return (
        _lost(record, boot_id, "the domain stopped for a reason libvirt does not know")
        if started
        else unchanged
    )


def _ended_badly(record: InstanceRecord, reason: str) -> Verdict:
    """libvirt says no more than that the process is gone when a panic or a watchdog ended it; events did."""
    fired = record.notice.watchdog
    if record.notice.panicked:
        reason = "panicked"
    elif fired is not None and fired.action == "poweroff":
        return Verdict("Failed", "WatchdogFired", f"its watchdog powered the guest off at {fired.at}")
    return Verdict("Failed", *_ENDED_BADLY[reason])


def _lost(record: InstanceRecord, boot_id: str, message: str) -> Verdict:
    if record.boot_id != boot_id:
        return Verdict("Failed", "NodeRebooted", "the node was rebooted while the guest ran")
    return Verdict("Failed", "DomainLost", message)
