# SPDX-License-Identifier: Apache-2.0
"""What probes decide about an instance, and what becomes of it in phase and conditions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launcher.agent import reconcile as do
from launcher.agent.conditions import conditions
from launcher.agent.lifecycle import judge
from launcher.agent.records import InstanceRecord, Moment, Notice
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.spec.model import VirtualMachineInstanceMigrationState

MakeRecord = Callable[..., InstanceRecord]
PROBED = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  readinessProbe: {tcpSocket: {port: 80}}
  livenessProbe: {guestAgentPing: {}}
  domain: {memory: {guest: 128Mi}, devices: {}}
"""
RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)


def ready(record: InstanceRecord, observed: DomainRecord = RUNNING) -> tuple[str | None, str | None]:
    (found,) = (c for c in conditions(record, observed, ()) if c.type == "Ready")
    return found.status, found.reason


@pytest.mark.parametrize(
    ("notice", "expected"),
    [
        (Notice(), ("False", "ReadinessProbePending")),
        (Notice(ready=True), ("True", None)),
        (Notice(ready=False, unready_why="refused"), ("False", "ReadinessProbeFailed")),
    ],
)
def test_a_guest_is_ready_when_its_probe_says_so(
    make_record: MakeRecord, notice: Notice, expected: tuple[str, str | None]
) -> None:
    status, reason = ready(make_record(PROBED, phase="Running", notice=notice))
    assert (status, reason or None) == expected


def test_a_guest_without_a_probe_is_ready_when_it_runs(make_record: MakeRecord) -> None:
    assert ready(make_record(phase="Running"))[0] == "True"


def test_a_guest_that_came_from_another_node_stays_ready(make_record: MakeRecord) -> None:
    came = VirtualMachineInstanceMigrationState(source_node="a")
    assert ready(make_record(PROBED, phase="Running", migration_state=came))[0] == "True"
    failed = make_record(PROBED, phase="Running", migration_state=came, notice=Notice(ready=False))
    assert ready(failed)[0] == "False"


def test_a_paused_guest_is_not_ready_whatever_its_probe_said(make_record: MakeRecord) -> None:
    paused = DomainRecord(uuid="u", name="n", state=DomainState.PAUSED, reason="user", persistent=True)
    record = make_record(PROBED, phase="Running", notice=Notice(ready=True), user_paused=True)
    assert ready(record, paused) == ("False", "GuestNotRunning")


def test_a_guest_that_its_liveness_probe_gave_up_fails_and_is_ended(make_record: MakeRecord) -> None:
    record = make_record(PROBED, phase="Running", prepared=True, notice=Notice(dead_why="no answer"))
    verdict = judge(record, RUNNING, boot_id="boot-1")
    assert (verdict.phase, verdict.reason) == ("Failed", "LivenessProbeFailed")
    assert "no answer" in verdict.message
    now = Moment(boot_id="boot-1", seconds=1.0)
    failed = make_record(PROBED, phase="Failed", prepared=True, notice=Notice(dead_why="no answer"))
    assert do.reconcile(failed, RUNNING, now=now, efforts=do.Efforts()).actions == (do.Destroy(),)
