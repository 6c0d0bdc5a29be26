# SPDX-License-Identifier: Apache-2.0
"""What a target remembers of an incoming attempt, and what it needs from its agent. Records and protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from launcher.hypervisor.port import DomainRecord
from launcher.migration.peer import PrepareRequest


class Landing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the stream of an attempt comes in: at an ``address`` of this node, or by sockets in a ``folder``.

    ``server`` is the name in the certificate of QEMU here, when that is not for the address. Copied disks
    come in by ``disks_port``; 0: not by a port, or an older agent did not write it down.
    """

    address: str = ""
    folder: str = ""
    server: str = ""
    disks_port: int = 0


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent prepared for an attempt: the domain that will arrive and its XML here."""

    uuid: str
    landing: Landing = Landing()
    destination_xml: str = ""
    persistent_xml: str = ""


class IncomingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An incoming attempt, for the journal. ``expires`` is monotonic time of this boot.

    ``adopted``: the guest arrived and is this node's. ``released``: it did not, and nothing is held any
    more; remembered for a while, because only then can the node prove that it has no domain. ``reclaimed``:
    the source said that it has the guest, so none of this attempt may live here. ``discarded``: it gave the
    guest up, of which there was half here. Nothing secret.
    """

    attempt: str
    source_node: str
    uuid: str
    port: int = 0
    expires: float = 0.0
    adopted: bool = False
    reclaimed: bool = False
    discarded: bool = False
    released: bool = False
    reservation: Reservation | None = None


class TargetHooks(Protocol):
    """The agent's share in an incoming migration. All may be called again after a restart."""

    async def identify(self, request: PrepareRequest) -> str:
        """The UUID of the domain that would arrive; ``InvalidSpec`` when the request makes no sense."""

    async def reserve(self, request: PrepareRequest) -> Reservation:
        """Make volumes and taps and count the memory as taken. It undoes its own part when it fails."""

    async def release(self, record: IncomingRecord) -> None:
        """Undo ``reserve``; what is not there is fine. The domain is gone or never came."""

    async def cut(self, record: IncomingRecord) -> None:
        """End the TCP connections of the stream on this host. QEMU's monitor may hang meanwhile: its main
        thread can be the one that waits for a page."""

    async def fence(self, record: IncomingRecord) -> None:
        """End the QEMU process of the incoming guest without libvirt, if there is one."""

    async def reopen(self, record: IncomingRecord, migrate_uri: str) -> None:
        """Have QEMU wait there for a new connection, past libvirt; HostUnsupported when it has no way to be
        told."""

    async def adopt(self, record: IncomingRecord, domain: DomainRecord) -> None:
        """The guest arrived: from now on the agent owns it like one it started."""


class TargetJournal(Protocol):
    """Where incoming attempts outlive the process."""

    async def save(self, record: IncomingRecord) -> None: ...
    async def forget(self, attempt: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Something that could make the migration fail. ``run`` returns findings, one sentence each."""

    name: str
    run: Callable[[PrepareRequest], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the source connects to: this node's libvirtd and the QEMU that will wait."""

    destination_uri: str
    migrate_uri: str
    disks_uri: str = ""


EndpointsOf = Callable[[str, int, Landing], Endpoints]
"""Of an attempt, the port that it has, and where its stream comes in."""


def tcp_endpoints(destination_uri: str, address: str) -> EndpointsOf:
    """Endpoints on ``address`` for every attempt and port."""
    return lambda _attempt, port, _landing: Endpoints(
        destination_uri=destination_uri, migrate_uri=tcp_uri(address, port)
    )


def tcp_uri(address: str, port: int) -> str:
    """``tcp://ADDRESS:PORT``; an IPv6 address is bracketed."""
    return f"tcp://{bracketed(address)}:{port}"


def bracketed(address: str) -> str:
    """``address`` as a URI spells it."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address
