# SPDX-License-Identifier: Apache-2.0
"""An agent that is upgraded in the middle of a migration reads what the older one wrote down.

``stored_before_retries.json`` is of the agent of commit 84a9b18, before migrations had second attempts,
networks, devices, volumes that move, and guests that are given up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.agent.landing import Landings
from launcher.agent.migration_status import OutgoingEntry, view
from launcher.agent.outgoing_ends import ended
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_ledger import opened_by
from launcher.agent.volume_moves import departing
from launcher.host.config import Config, Libvirt, Migration
from launcher.migration.again import again
from launcher.migration.attempt import Cause, Phase, reopened
from launcher.migration.compose import make_policy
from launcher.migration.flags import migrate_params
from launcher.migration.ports import PortPool
from launcher.migration.reservation import IncomingRecord, Landing
from launcher.spec.codec import dec_hook

STORED = json.loads(Path(__file__).with_name("stored_before_retries.json").read_bytes())


def stored(kind: str, wanted: Any) -> Any:
    return msgspec.json.decode(json.dumps(STORED[kind]), type=wanted, dec_hook=dec_hook)


def test_an_instance_that_is_leaving() -> None:
    record: InstanceRecord = stored("instance", InstanceRecord)
    assert (record.outgoing, record.moving) == ("uid-move", ())
    assert departing(record) == record.manifest
    assert [(use.volume, use.path) for use in opened_by(record)] == [("root", "/srv/root/disk.img")]


def test_a_migration_that_runs_goes_on_with_the_state_of_its_rules() -> None:
    entry: OutgoingEntry = stored("outgoing", OutgoingEntry)
    attempt = entry.attempt
    assert (attempt.phase, attempt.token, attempt.network) == (Phase.RUNNING, "uid-move", "")
    policy = make_policy(attempt.outgoing.policy, attempt.outgoing.options, attempt.outgoing.workload)
    state = policy.decode(attempt.policy_state)
    assert state != policy.initial()
    assert attempt.reply is not None
    params = migrate_params(attempt.outgoing, attempt.reply)
    assert (params.listen_address, params.tls_destination) == ("10.0.0.2", "")
    assert view(entry, None).object.status is not None


def test_a_migration_that_ended_in_halves_can_be_recovered() -> None:
    entry: OutgoingEntry = stored("ended", OutgoingEntry)
    assert ended(entry.attempt)
    assert again(entry.attempt, ("", "fast"), at="2026-01-01T00:01:00Z") is None
    record = reopened(entry.attempt, "2026-01-01T00:01:00Z")
    assert (record.phase, record.cause, record.post_copy) == (Phase.RUNNING, Cause.NONE, True)


@pytest.mark.parametrize("address", ["127.0.0.1"])
def test_a_reservation_has_the_address_that_is_configured(address: str) -> None:
    record: IncomingRecord = stored("incoming", IncomingRecord)
    assert record.reservation is not None
    assert (record.reservation.landing, record.reclaimed, record.discarded) == (Landing(), False, False)
    config = Config(
        node="b",
        libvirt=Libvirt(migration_uri="qemu+tls://{address}/system"),
        migration=Migration(address=address),
    )
    ports = PortPool(49152, 49160, lambda _port: True)
    found = Landings(config).endpoints(ports, record.attempt, record.port, record.reservation.landing)
    assert found.migrate_uri == f"tcp://{address}:49152"
