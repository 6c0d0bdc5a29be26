# SPDX-License-Identifier: Apache-2.0
"""What a source agent asks of a target agent. Records and a protocol; the wire is somebody else's.

Sequence of one migration (attempt = the uid of the VirtualMachineInstanceMigration):

    source                                   target
      |-- prepare(attempt, vmi, xml) --------->|  checks everything that can fail, reserves (lease), makes
      |<------------- findings | endpoints ----|  volumes and taps; nothing is defined
      |== libvirt peer to peer, QEMU stream ==>|  not through either agent
      |-- finish(attempt, succeeded) --------->|  adopt the domain, or release the reservation
      |<------------- state -------------------|
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class SharedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk that both nodes must reach, by its path in the domain's XML, and the bytes its guest sees."""

    path: str
    bytes: int


class MovedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk whose volume goes to another claim: the bytes that its guest sees, and those that it takes."""

    volume: str
    bytes: int
    taken: int = 0


class MovingDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the host that moves its state, and what it is (``VENDOR:DEVICE``; empty: not known)."""

    name: str
    model: str = ""


class PrepareRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the target needs to judge and to prepare.

    ``vmi`` is the whole object as JSON text; ``companions`` the Secrets, ConfigMaps and bindings that
    came beside it, as JSON text; ``domain_xml`` the migratable XML of the running domain. ``tls``: the
    stream will be encrypted; ``deadline_s`` is how long the migration may take (0: unknown),
    ``source_time`` the time of day in seconds since 1970, ``disks`` those that are not copied,
    ``copied_bytes`` what those that are take on the source now. ``migration_id`` is what both ends call the
    migration when they share no control plane. ``notice`` is what the source remembers of the guest besides,
    as JSON text: that its watchdog fired, what its probes said. ``network`` names the migration network that
    the stream is to take (empty: the usual one). ``moved`` are copied to other claims than ``domain_xml``
    shows, which ``vmi`` names already.
    """

    attempt: str
    source_node: str
    vmi: str
    domain_xml: str
    companions: str = ""
    source_libvirt_version: int = 0
    source_qemu_version: int = 0
    tls: bool = False
    deadline_s: float = 0.0
    source_time: float = 0.0
    disks: tuple[SharedDisk, ...] = ()
    copied_bytes: int = 0
    migration_id: str = ""
    notice: str = ""
    network: str = ""
    moved: tuple[MovedDisk, ...] = ()
    devices: tuple[MovingDevice, ...] = ()


class PrepareReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``findings`` not empty: refused, and nothing was left behind. Else where to migrate to.

    ``destination_xml`` is the domain as the target wants it to run, ``persistent_xml`` as it wants it
    remembered; empty: as on the source. ``disks_uri`` is where copied disks go, empty: libvirt chooses.
    ``tls_destination`` is the name in the certificate of QEMU there; empty: the host of ``migrate_uri``.
    ``busy``: the only finding is that too many migrations come here now, or that it is not expected yet.
    """

    findings: tuple[str, ...] = ()
    node: str = ""
    destination_uri: str = ""
    migrate_uri: str = ""
    destination_xml: str = ""
    persistent_xml: str = ""
    disks_uri: str = ""
    tls_destination: str = ""
    busy: bool = False
    libvirt_version: int = 0
    lease_s: float = 0.0


class TargetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the target knows of an attempt. ``domain`` is libvirt's state name or empty when there is none."""

    attempt: str
    known: bool
    domain: str = ""
    reason: str = ""
    adopted: bool = False


class Peer(Protocol):
    """Another node's agent. Calls raise ``launcher.errors`` classes; all may be repeated."""

    async def prepare(self, request: PrepareRequest) -> PrepareReply: ...
    async def finish(
        self, attempt: str, *, succeeded: bool, reason: str = "", reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        """Tell the outcome. ``reclaim``: the source has the guest, and it runs there; whatever came of this
        attempt to the target is one copy too many and is ended, also later. ``discard``: the source gives the
        guest up; a half that waits for memory, or what is left of one, is ended, but no guest that is whole.
        """

    async def state(self, attempt: str) -> TargetState: ...
    async def interrupt(self, attempt: str) -> TargetState:
        """End the connections of a post-copy on the target, which may not know that they are dead."""

    async def reopen(self, attempt: str) -> TargetState:
        """Have the target's QEMU wait for a new connection of an interrupted post-copy, past its libvirt."""
