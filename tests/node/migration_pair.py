# SPDX-License-Identifier: Apache-2.0
"""Both ends of one migration between two real libvirtds, without agents around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from hypervisor_guests import connected, dirtying, dirtying_xml, guest

from launcher.errors import HostUnsupported, HypervisorUnavailable, NotFound
from launcher.host.clock import SystemClock
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.lab.node import Node
from launcher.migration.attempt import AttemptRecord, Material, Outgoing, begin, encode
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool
from launcher.migration.progress import MigrationProgress
from launcher.migration.reservation import IncomingRecord, Reservation, tcp_endpoints
from launcher.migration.source import SourceMigration
from launcher.migration.target import TargetSide
from launcher.units import MIB


class Hooks:
    """A target whose agent has nothing to prepare."""

    def __init__(self, uuid: str, node: Node) -> None:
        self._uuid = uuid
        self._node = node
        self.released = 0
        self.adopted: list[DomainState] = []

    async def identify(self, request: PrepareRequest) -> str:
        return self._uuid

    async def reserve(self, request: PrepareRequest) -> Reservation:
        return Reservation(uuid=self._uuid)

    async def release(self, record: IncomingRecord) -> None:
        self.released += 1

    async def cut(self, record: IncomingRecord) -> None:
        await asyncio.to_thread(
            self._node.run, "ss", "--kill", "--tcp", "state", "connected", f"( sport = :{record.port} )"
        )

    async def fence(self, record: IncomingRecord) -> None:
        """Left to libvirtd, which ends it when it is back."""

    async def reopen(self, record: IncomingRecord, migrate_uri: str) -> None:
        raise HostUnsupported("a monitor to recover by", "the guest has only libvirt's")

    async def adopt(self, record: IncomingRecord, domain: DomainRecord) -> None:
        self.adopted.append(domain.state)


class NoJournal:
    async def save(self, record: IncomingRecord) -> None: ...
    async def forget(self, attempt: str) -> None: ...


class Pair:
    """Both ends of one migration of one guest; ``engine`` makes the source's, again after it was killed."""

    def __init__(
        self,
        source: LibvirtHypervisor,
        target: LibvirtHypervisor,
        node: Node,
        uuid: str,
        options: Options,
        folder: Path,
    ) -> None:
        self.source = source
        self.target = target
        self.uuid = uuid
        self.hooks = Hooks(uuid, node)
        self.looks: list[MigrationProgress] = []
        self.journal: list[str] = []
        self._folder = folder
        self._attempts = 0
        self._outgoing = Outgoing(
            attempt="",
            namespace="default",
            name="dirtying",
            uuid=uuid,
            source_node="a",
            target_node="b",
            options=options,
            workload=Workload(memory_bytes=32 * MIB),
        )
        self._side = self.make_side(self.hooks, node)

    def make_side(self, hooks: Hooks, node: Node) -> TargetSide:
        return TargetSide(
            node="b",
            hypervisor=self.target,
            hooks=hooks,
            checks=(),
            ports=PortPool(49300, 49310, lambda _port: True),
            endpoints=tcp_endpoints(f"qemu+tcp://{node.ip}/system", node.ip),
            clock=SystemClock(),
            journal=NoJournal(),
        )

    async def save(self, record: AttemptRecord) -> None:
        self.journal.append(encode(record))

    def engine(self, record: AttemptRecord | None = None) -> SourceMigration:
        """The source's side; each without a ``record`` is a new attempt."""
        if record is None:
            self._attempts += 1
            attempt = f"{self._attempts}-{self.uuid}"
            record = begin(msgspec.structs.replace(self._outgoing, attempt=attempt))
            self.looks.clear()
        outgoing = record.outgoing
        return SourceMigration(
            record,
            material=Material(vmi="{}"),
            hypervisor=self.source,
            peer=self._side,
            policy=make_policy(outgoing.policy, outgoing.options, outgoing.workload),
            clock=SystemClock(),
            journal=self,
            publish=self.looks.append,
        )

    async def until_pass(self, number: int) -> None:
        async with asyncio.timeout(60):
            while not any(look.iteration >= number for look in self.looks):
                await asyncio.sleep(0.05)

    async def until_data(self) -> None:
        """Wait until memory flows."""
        async with asyncio.timeout(60):
            while not any(look.iteration and look.processed > MIB for look in self.looks):
                await asyncio.sleep(0.05)

    async def until_stalled(self, for_s: float) -> None:
        """Wait until the engine has seen for so long that nothing moves."""
        async with asyncio.timeout(60):
            while True:
                last = self.looks[-1]
                still = [look for look in self.looks if look.processed == last.processed]
                if last.elapsed_s - still[0].elapsed_s >= for_s:
                    return
                await asyncio.sleep(0.05)

    async def until_post_copy(self, engine: SourceMigration) -> None:
        """Wait until the guest runs on the target without all of its memory."""
        async with asyncio.timeout(60):
            while not engine.record.post_copy:
                await asyncio.sleep(0.05)
            while (await self.target.domain(self.uuid)).state is not DomainState.RUNNING:
                await asyncio.sleep(0.05)

    async def writes_on(self) -> bool:
        """The guest, wherever it is, goes on with what it does."""
        log = self._folder / "serial.log"
        told = log.stat().st_size
        async with asyncio.timeout(30):
            while log.stat().st_size == told:
                await asyncio.sleep(0.1)
        return True

    async def states(self) -> tuple[DomainState | None, DomainState | None]:
        return await state_of(self.source, self.uuid), await state_of(self.target, self.uuid)


async def state_of(hypervisor: LibvirtHypervisor, uuid: str) -> DomainState | None:
    """The domain's state; None: there is none. A libvirtd that was restarted may take a while to answer."""
    async with asyncio.timeout(60):
        while True:
            try:
                return (await hypervisor.domain(uuid)).state
            except NotFound:
                return None
            except HypervisorUnavailable:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def moving(a: Node, b: Node, folder: Path, options: Options) -> AsyncIterator[Pair]:
    """A busy guest on ``a`` and both ends of its migration to ``b``."""
    async with (
        connected(a.libvirt_uri) as (source, _),
        connected(b.libvirt_uri) as (target, _),
        guest(source, dirtying_xml(folder), paused=False) as uuid,
    ):
        await dirtying(folder)
        try:
            yield Pair(source, target, b, uuid, options, folder)
        finally:
            await target.destroy(uuid, graceful=False)
            await target.undefine(uuid)
