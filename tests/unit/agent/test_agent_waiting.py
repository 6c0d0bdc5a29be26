# SPDX-License-Identifier: Apache-2.0
"""An instance that waits for one from elsewhere does nothing by itself, and can be deleted."""

from __future__ import annotations

from msgspec.structs import replace

from launcher.agent.reconcile import Decision, Efforts, Release, reconcile
from launcher.agent.records import InstanceRecord, Moment

NOW = Moment(boot_id="boot-1", seconds=100.0)


def test_it_is_neither_prepared_nor_started(make_record) -> None:  # type: ignore[no-untyped-def]
    waits: InstanceRecord = make_record(awaits="move-1", phase="WaitingForSync")
    assert reconcile(waits, None, now=NOW, efforts=Efforts()) == Decision()
    deleted = replace(waits, desired="deleted")
    assert Release() in reconcile(deleted, None, now=NOW, efforts=Efforts()).actions
