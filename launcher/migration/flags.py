# SPDX-License-Identifier: Apache-2.0
"""From options to the arguments of the migrate call. Pure."""

from __future__ import annotations

import dataclasses
import ipaddress
from urllib.parse import urlsplit

import msgspec

from launcher.hypervisor.port import MigrateFlag, MigrateParams
from launcher.migration.attempt import Outgoing
from launcher.migration.peer import PrepareReply

DETECT_ZEROES = 10_009_000
"""libvirt's number of the release that knows migrate_disks_detect_zeroes, 10.9.0 (its NEWS)."""


def migrate_params(outgoing: Outgoing, reply: PrepareReply, *, libvirt_version: int = 0) -> MigrateParams:
    """Arguments of ``Hypervisor.migrate`` for this attempt and the target's answer.

    ``libvirt_version`` is the source's. When both sides know how, empty blocks of copied disks stay holes
    on the target: an older libvirt refuses the call for a parameter that it does not know.

    Left out on purpose: post-copy for a guest with an attached VFIO device (QEMU refuses to save such a
    device with that capability on) or one that is paused (nothing gets dirty), parallel connections
    together with post-copy (QEMU before 10.1 has not both), compression without them (libvirt refuses it).
    """
    options = outgoing.options
    flags = {MigrateFlag.LIVE, MigrateFlag.PEER2PEER, MigrateFlag.PERSIST_DEST}
    post_copy = options.allow_post_copy and not outgoing.workload.vfio and not outgoing.user_paused
    parallel = outgoing.parallel if not post_copy else 0
    if outgoing.user_paused:
        flags.add(MigrateFlag.PAUSED)
    if options.allow_auto_converge:
        flags.add(MigrateFlag.AUTO_CONVERGE)
    if post_copy:
        flags.add(MigrateFlag.POSTCOPY)
    if parallel:
        flags.add(MigrateFlag.PARALLEL)
    if parallel and options.compression:
        flags.add(MigrateFlag.COMPRESSED)
    if outgoing.migrate_disks:
        flags.add(MigrateFlag.NON_SHARED_INC)
    if options.unsafe:
        flags.add(MigrateFlag.UNSAFE)
    if encrypted(outgoing):
        flags.add(MigrateFlag.TLS)
    holes = min(libvirt_version, reply.libvirt_version) >= DETECT_ZEROES
    return MigrateParams(
        destination_uri=reply.destination_uri,
        migrate_uri=reply.migrate_uri,
        flags=frozenset(flags),
        destination_xml=reply.destination_xml,
        persistent_xml=reply.persistent_xml,
        bandwidth_mib=options.bandwidth_mib,
        parallel_connections=parallel,
        migrate_disks=outgoing.migrate_disks,
        detect_zeroes=outgoing.migrate_disks if holes else (),
        disks_uri=reply.disks_uri if outgoing.migrate_disks else "",
        compression=options.compression if parallel else "",
        tls_destination=reply.tls_destination if encrypted(outgoing) else "",
        listen_address=_listen_address(reply.migrate_uri),
    )


def encrypted(outgoing: Outgoing) -> bool:
    """QEMU encrypts the stream, and asks for the other side's certificate."""
    return outgoing.tls and not outgoing.options.disable_tls


def _listen_address(migrate_uri: str) -> str:
    """The address in it: only the migration network may reach a QEMU that waits. Empty: it names a host."""
    try:
        host = urlsplit(migrate_uri).hostname or ""
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def resume_params(outgoing: Outgoing, reply: PrepareReply) -> MigrateParams:
    """Arguments that resume this attempt's post-copy: as it began, without disks, which are there by then."""
    params = migrate_params(msgspec.structs.replace(outgoing, migrate_disks=()), reply)
    return dataclasses.replace(params, flags=params.flags | {MigrateFlag.POSTCOPY_RESUME})
