# SPDX-License-Identifier: Apache-2.0
"""What comes next for an instance, from its record and its domain."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.agent import reconcile as do
from launcher.agent.records import InstanceRecord, Moment
from launcher.hypervisor.port import DomainRecord, DomainState

MakeRecord = Callable[..., InstanceRecord]
NOW = Moment(boot_id="boot-1", seconds=1000.0)
FRESH = do.Efforts()


def domain(state: DomainState, reason: str = "booted") -> DomainRecord:
    return DomainRecord(uuid="u", name="lab_web", state=state, reason=reason, persistent=True)


RUNNING = domain(DomainState.RUNNING)
OFF = domain(DomainState.SHUTOFF, "unknown")


def decide(record: InstanceRecord, observed: DomainRecord | None, efforts: do.Efforts = FRESH) -> do.Decision:
    return do.reconcile(record, observed, now=NOW, efforts=efforts)


def test_the_way_up(make_record: MakeRecord) -> None:
    assert decide(make_record(), None).actions == (do.Prepare(),)
    assert decide(make_record(prepared=True), None).actions == (do.Enter("Scheduled"),)
    scheduled = make_record(prepared=True, phase="Scheduled")
    assert decide(scheduled, None).actions == (do.Define(),)
    assert decide(scheduled, OFF).actions == (do.Start(paused=False),)
    assert decide(scheduled, RUNNING).actions == (do.Enter("Running"),)
    assert decide(make_record(prepared=True, phase="Running"), RUNNING) == do.Decision()


def test_start_strategy_paused_starts_paused(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Scheduled", user_paused=True)
    assert decide(record, OFF).actions == (do.Start(paused=True),)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (domain(DomainState.SHUTOFF, "shutdown"), do.Enter("Succeeded")),
        (domain(DomainState.SHUTOFF, "crashed"), "GuestCrashed"),
        (domain(DomainState.CRASHED, "panicked"), "GuestPanicked"),
        (domain(DomainState.SHUTOFF, "destroyed"), "Destroyed"),
        (domain(DomainState.PAUSED, "post-copy-failed"), "PostcopyFailed"),
        (domain(DomainState.SHUTOFF, "unknown"), "DomainLost"),
        (None, "DomainLost"),
    ],
)
def test_a_running_instance_whose_domain_ended_is_never_started_again(
    make_record: MakeRecord, observed: DomainRecord | None, expected: do.Enter | str
) -> None:
    (action,) = decide(make_record(prepared=True, phase="Running"), observed).actions
    assert isinstance(action, do.Enter)
    if isinstance(expected, str):
        assert (action.phase, action.reason) == ("Failed", expected)
    else:
        assert action == expected


def test_a_guest_that_powered_off_before_it_was_seen_running_has_succeeded(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Scheduled")
    assert decide(record, domain(DomainState.SHUTOFF, "shutdown")).actions == (do.Enter("Succeeded"),)


def test_a_reboot_of_the_node_is_told_from_a_loss(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Running", boot_id="boot-0")
    (action,) = decide(record, OFF).actions
    assert isinstance(action, do.Enter)
    assert action.reason == "NodeRebooted"


def test_destroyed_without_acpi_or_grace_succeeded(make_record: MakeRecord) -> None:
    killed = domain(DomainState.SHUTOFF, "destroyed")
    record = make_record(prepared=True, phase="Running", grace_period_s=0)
    assert decide(record, killed).actions == (do.Enter("Succeeded"),)


def test_an_ended_instance_is_undefined_once(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Succeeded")
    assert decide(record, domain(DomainState.SHUTOFF, "shutdown")).actions == (do.Undefine(),)
    assert decide(record, None).actions == (do.Retire(),)
    retired = make_record(prepared=False, phase="Succeeded")
    assert decide(retired, None) == do.Decision()


def test_pause_follows_the_users_wish_only(make_record: MakeRecord) -> None:
    running = make_record(prepared=True, phase="Running")
    wished = make_record(prepared=True, phase="Running", user_paused=True)
    paused = domain(DomainState.PAUSED, "user")
    assert decide(wished, RUNNING).actions == (do.Suspend(),)
    assert decide(wished, paused) == do.Decision()
    assert decide(running, paused).actions == (do.Resume(),)
    for reason in ("migration", "snapshot", "save", "dump"):
        assert decide(running, domain(DomainState.PAUSED, reason)) == do.Decision()


def test_io_error_pause_is_resumed_with_a_growing_pause(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Running")
    stuck = domain(DomainState.PAUSED, "ioerror")
    first = decide(record, stuck)
    assert first.actions == (do.Resume(),)
    second = decide(record, stuck, do.Efforts(resume_ago_s=1.0, resumes=1))
    assert second.actions == ()
    assert second.look_again_s == 19.0
    assert decide(record, stuck, do.Efforts(resume_ago_s=25.0, resumes=1)).actions == (do.Resume(),)
    assert decide(record, stuck, do.Efforts(resume_ago_s=179.0, resumes=30)).actions == ()


def test_delete_signals_resends_and_kills_when_the_grace_is_over(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Running", desired="deleted")
    first = decide(record, RUNNING)
    assert first.actions == (do.Shutdown(),)
    assert first.look_again_s == 5.0
    began = make_record(
        prepared=True,
        phase="Running",
        desired="deleted",
        shutdown_began=Moment(boot_id="boot-1", seconds=980.0),
    )
    assert decide(began, RUNNING, do.Efforts(shutdown_ago_s=2.0)).actions == ()
    assert decide(began, RUNNING, do.Efforts(shutdown_ago_s=5.0)).actions == (do.Shutdown(),)
    stopping = domain(DomainState.SHUTDOWN, "user")
    assert decide(began, stopping, do.Efforts(shutdown_ago_s=9.0)).actions == ()
    late = make_record(
        prepared=True,
        phase="Running",
        desired="deleted",
        shutdown_began=Moment(boot_id="boot-1", seconds=970.0),
    )
    assert decide(late, RUNNING).actions == (do.Destroy(),)
    assert decide(late, OFF).actions == (do.Undefine(),)
    assert decide(late, None).actions == (do.Release(),)


def test_delete_without_grace_kills_at_once(make_record: MakeRecord) -> None:
    record = make_record(prepared=True, phase="Running", desired="deleted", grace_period_s=0)
    assert decide(record, RUNNING).actions == (do.Destroy(),)


def test_the_grace_clock_starts_anew_after_a_reboot(make_record: MakeRecord) -> None:
    record = make_record(
        desired="deleted", phase="Running", shutdown_began=Moment(boot_id="boot-0", seconds=0.0)
    )
    assert decide(record, RUNNING).actions == (do.Shutdown(),)


def test_a_migrating_domain_is_left_alone(make_record: MakeRecord) -> None:
    for changes in ({"outgoing": "m1"}, {"incoming": "m1"}, {"outgoing": "m1", "desired": "deleted"}):
        record = make_record(phase="Running", prepared=True, **changes)
        for observed in (None, RUNNING, OFF, domain(DomainState.PAUSED, "migration")):
            assert decide(record, observed) == do.Decision()


def test_an_instance_that_moved_away_is_let_go_but_never_killed(make_record: MakeRecord) -> None:
    record = make_record(phase="Running", prepared=True, moved_to="b", desired="deleted")
    assert decide(record, RUNNING) == do.Decision()
    assert decide(record, domain(DomainState.SHUTOFF, "migrated")).actions == (do.Undefine(),)
    assert decide(record, None).actions == (do.Release(),)


# the fixture only makes values, so sharing it between examples is harmless
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_always_settles(make_record: MakeRecord, data: st.DataObject) -> None:
    """Performing what is said, on a world that does as told, ends within a few rounds."""
    record = make_record(
        phase=data.draw(st.sampled_from(["Pending", "Scheduled", "Running", "Succeeded", "Failed"])),
        prepared=data.draw(st.booleans()),
        desired=data.draw(st.sampled_from(["running", "deleted"])),
        user_paused=data.draw(st.booleans()),
        grace_period_s=0,
    )
    reasons = ["booted", "user", "shutdown", "crashed", "destroyed", "unknown", "failed", "ioerror"]
    observed: DomainRecord | None = data.draw(
        st.one_of(
            st.none(),
            st.builds(domain, st.sampled_from(list(DomainState)), st.sampled_from(reasons)),
        )
    )
    efforts = do.Efforts()
    for _ in range(12):
        decision = decide(record, observed, efforts)
        if not decision.actions:
            return
        for action in decision.actions:
            record, observed, efforts = perform(action, record, observed, efforts)
        if any(isinstance(action, do.Release) for action in decision.actions):
            return
    raise AssertionError("it goes round in circles")


def perform(
    action: do.Action, record: InstanceRecord, observed: DomainRecord | None, efforts: do.Efforts
) -> tuple[InstanceRecord, DomainRecord | None, do.Efforts]:
    match action:
        case do.Prepare():
            record = msgspec.structs.replace(record, prepared=True)
        case do.Retire():
            record = msgspec.structs.replace(record, prepared=False)
        case do.Enter(phase=phase):
            record = msgspec.structs.replace(record, phase=phase)
        case do.Define():
            observed = OFF
        case do.Start(paused=paused):
            observed = domain(DomainState.PAUSED, "user") if paused else RUNNING
        case do.Suspend():
            observed = domain(DomainState.PAUSED, "user")
        case do.Resume():
            observed = RUNNING
        case do.Destroy():
            observed = domain(DomainState.SHUTOFF, "destroyed")
        case do.Undefine():
            observed = None
        case _:
            pass
    return record, observed, efforts
