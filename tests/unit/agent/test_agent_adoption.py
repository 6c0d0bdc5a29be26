# SPDX-License-Identifier: Apache-2.0
"""A guest that arrived is adopted by an agent that may be killed between any two steps of that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from launcher.agent.expected import Expected
from launcher.agent.incoming import IncomingHooks
from launcher.agent.instances import Instances
from launcher.agent.landing import Landings
from launcher.agent.machine import Machine, Services
from launcher.agent.records import InstanceRecord
from launcher.agent.store import Store
from launcher.agent.watch import Hub
from launcher.errors import Bug
from launcher.host.clock import SystemClock
from launcher.host.config import Config
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.ports import PortPool
from launcher.migration.reservation import IncomingRecord, Reservation
from launcher.plan.settings import PlanSettings

MakeRecord = Callable[..., InstanceRecord]


class Node:
    """One machine that waits for its guest, and what the agent does for it."""

    def __init__(self, store: Store, record: InstanceRecord) -> None:
        self.services = Services(
            node="b",
            hypervisor=cast(Any, None),
            store=store,
            resources=cast(Any, SimpleNamespace(release=self._released)),
            hub=Hub(),
            clock=SystemClock(),
        )
        self.machine = Machine(self.services, record)
        self.given_back: list[str] = []
        instances = cast(Instances, SimpleNamespace(by_uuid=lambda _: self.machine))
        ports = PortPool(1, 2, lambda _port: True)
        expected = Expected(self.services, instances, "")
        self.hooks = IncomingHooks(
            self.services, instances, PlanSettings(), ports, Landings(Config()), expected
        )
        self.uuid = record.plan.identity.uuid
        self.here = IncomingRecord(
            attempt="move", source_node="a", uuid=self.uuid, reservation=Reservation(uuid=self.uuid)
        )
        self.domain = DomainRecord(
            uuid=self.uuid, name="lab_web", state=DomainState.RUNNING, reason="migrated", persistent=True
        )

    async def _released(self, uid: str, *, discard_state: bool) -> None:
        assert discard_state, "what it kept would keep the guest from coming again"
        self.given_back.append(uid)


@pytest.fixture
async def node(make_record: MakeRecord, tmp_path: Path) -> AsyncIterator[Node]:
    store = await Store.open(tmp_path / "launcher.db")
    yield Node(store, replace(make_record(), incoming="move", prepared=True))
    await store.close()


async def test_it_is_adopted_again_when_that_was_not_written_down(node: Node) -> None:
    await node.hooks.adopt(node.here, node.domain)
    adopted = node.machine.record
    assert (adopted.phase, adopted.incoming) == ("Running", "")
    await node.hooks.adopt(node.here, node.domain)
    assert node.machine.record == adopted


async def test_one_that_was_half_adopted_is_let_go_of(node: Node) -> None:
    await node.hooks.adopt(node.here, node.domain)
    await node.hooks.release(node.here)
    assert node.machine.gone
    assert node.given_back == [node.machine.record.uid]


async def test_what_is_here_otherwise_is_neither_adopted_nor_let_go_of(node: Node) -> None:
    """The attempt was refused because of it, so it has no reservation."""
    await node.machine.update(lambda record: replace(record, incoming=""))
    refused = replace(node.here, reservation=None)
    with pytest.raises(Bug):
        await node.hooks.adopt(refused, node.domain)
    await node.hooks.release(refused)
    assert not node.machine.gone
