# SPDX-License-Identifier: Apache-2.0
"""What only events tell of a guest (a panic, a watchdog) and what becomes of it in phase and conditions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from launcher.agent.conditions import conditions
from launcher.agent.incoming import notice_of
from launcher.agent.lifecycle import judge
from launcher.agent.records import Firings, InstanceRecord, Notice
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.peer import PrepareRequest
from launcher.spec.codec import dec_hook, enc_hook

MakeRecord = Callable[..., InstanceRecord]
AT = "2026-03-01T12:00:00Z"
RESET, POWEROFF = Firings(count=2, action="reset", at=AT), Firings(count=1, action="poweroff", at=AT)


def ended(reason: str) -> DomainRecord:
    return DomainRecord(uuid="u", name="n", state=DomainState.SHUTOFF, reason=reason, persistent=True)


@pytest.mark.parametrize(
    ("notice", "reason", "expected"),
    [
        (Notice(), "crashed", "GuestCrashed"),
        (Notice(panicked=True), "crashed", "GuestPanicked"),
        (Notice(watchdog=POWEROFF), "crashed", "WatchdogFired"),
        (Notice(watchdog=POWEROFF), "failed", "WatchdogFired"),
        (Notice(watchdog=RESET), "crashed", "GuestCrashed"),
        (Notice(), "failed", "DomainFailed"),
        (Notice(panicked=True, watchdog=POWEROFF), "crashed", "GuestPanicked"),
    ],
)
def test_why_a_guest_ended(make_record: MakeRecord, notice: Notice, reason: str, expected: str) -> None:
    verdict = judge(make_record(phase="Running", notice=notice), ended(reason), boot_id="boot-1")
    assert (verdict.phase, verdict.reason) == ("Failed", expected)


def test_a_start_that_failed_is_tried_again(make_record: MakeRecord) -> None:
    record = make_record(phase="Scheduled", prepared=True)
    assert judge(record, ended("failed"), boot_id="boot-1").phase == "Scheduled"


def test_a_watchdog_that_fired_is_shown(make_record: MakeRecord) -> None:
    running = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)

    def shown(notice: Notice) -> list[str]:
        record = make_record(phase="Running", notice=notice)
        return [c.message or "" for c in conditions(record, running, ()) if c.type == "WatchdogFired"]

    assert shown(Notice()) == []
    assert shown(Notice(watchdog=RESET)) == [
        f"the guest did not feed its watchdog, 2 times; at {AT} its action was reset"
    ]
    (once,) = shown(Notice(watchdog=POWEROFF))
    assert ", once;" in once


def test_it_outlives_the_agent(make_record: MakeRecord) -> None:
    record = make_record(notice=Notice(panicked=True, watchdog=RESET))
    text = msgspec.json.encode(record, enc_hook=enc_hook)
    assert msgspec.json.decode(text, type=InstanceRecord, dec_hook=dec_hook).notice == record.notice


def test_what_is_remembered_of_a_guest_goes_along_with_it() -> None:
    notice = Notice(watchdog=Firings(count=2, action="reset", at="2026-01-01T00:00:00Z"), ready=True)
    request = PrepareRequest(
        attempt="a", source_node="b", vmi="{}", domain_xml="", notice=msgspec.json.encode(notice).decode()
    )
    assert notice_of(request) == notice
    older = PrepareRequest(attempt="a", source_node="b", vmi="{}", domain_xml="")
    assert notice_of(older) == Notice()
    newer = msgspec.structs.replace(request, notice='{"watchdog": "in another form"}')
    assert notice_of(newer) == Notice()
