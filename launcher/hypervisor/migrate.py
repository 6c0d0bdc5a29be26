# SPDX-License-Identifier: Apache-2.0
"""Migration and job calls: run, watch, steer and abort. No policy; the engine decides, this performs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import libvirt

from launcher.errors import Bug
from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import JobStats, MigrateFlag, MigrateParams
from launcher.hypervisor.stats import job_stats

_FLAGS: Final[dict[MigrateFlag, int]] = {
    flag: getattr(libvirt, f"VIR_MIGRATE_{flag.name}") for flag in MigrateFlag
}

# VIR_MIGRATE_PARAM_MIGRATE_DISKS_DETECT_ZEROES, which bindings older than 10.9 do not have.
_DETECT_ZEROES: Final = "migrate_disks_detect_zeroes"

_COMPLETED: Final = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED | libvirt.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED


def migrate_flags(params: MigrateParams) -> int:
    """The flags as libvirt's bits; peer-to-peer always, for nothing else is spoken here."""
    bits: int = libvirt.VIR_MIGRATE_PEER2PEER
    for flag in params.flags:
        bits |= _FLAGS[flag]
    return bits


def typed_params(params: MigrateParams) -> dict[str, str | int | list[str]]:
    """The typed parameters of virDomainMigrateToURI3; what is not set is left to libvirt.

    Raises:
        Bug: block migration without a list of disks. libvirt would take that for *all* writable disks,
            shared ones included, and overwrite them with themselves.
    """
    if MigrateFlag.NON_SHARED_INC in params.flags and not params.migrate_disks:
        raise Bug("a block migration must name its disks")
    given: tuple[tuple[str, str | int | list[str]], ...] = (
        (libvirt.VIR_MIGRATE_PARAM_URI, params.migrate_uri),
        (libvirt.VIR_MIGRATE_PARAM_DEST_XML, params.destination_xml),
        (libvirt.VIR_MIGRATE_PARAM_PERSIST_XML, params.persistent_xml),
        (libvirt.VIR_MIGRATE_PARAM_BANDWIDTH, params.bandwidth_mib),
        (libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS, params.parallel_connections),
        (libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS, list(params.migrate_disks)),  # a tuple is not accepted
        (_DETECT_ZEROES, list(params.detect_zeroes)),
        (libvirt.VIR_MIGRATE_PARAM_DISKS_URI, params.disks_uri),
        (libvirt.VIR_MIGRATE_PARAM_COMPRESSION, params.compression),
        (libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION, params.tls_destination),
        (libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS, params.listen_address),
    )
    return {name: value for name, value in given if value}


class JobCalls:
    """The part of port.Hypervisor about jobs of running domains."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def job_stats(self, uuid: str) -> JobStats:
        """Statistics of the job in progress; ``kind`` is ``none`` without one. WrongPhase if shut off."""
        return await self._calls.on_domain(
            uuid, lambda domain: _job_stats(domain, 0), what="read job statistics", lane=LaneName.CONTROL
        )

    async def completed_job_stats(self, uuid: str) -> JobStats:
        """Statistics of the last job that ended; libvirt keeps them for later reads until the next job.

        NotFound once the domain has left this host for good: JobCompletedEvent carried them before.
        """
        return await self._calls.on_domain(
            uuid,
            lambda domain: _job_stats(domain, _COMPLETED),
            what="read completed job statistics",
            lane=LaneName.CONTROL,
        )

    async def migrate(self, uuid: str, params: MigrateParams) -> None:
        """Run a peer-to-peer migration to its end, however long it takes.

        Cancelling the awaiting task does not stop the migration, nor does the end of this process;
        ``abort_job`` does.

        Raises:
            Conflict: a migration of this domain is in progress, or too many of others.
            MigrationAborted, MigrationFailed: how it ended; the domain's state says where the guest is.
            HypervisorUnavailable: the connection broke; the migration may go on.
        """
        bits, values = migrate_flags(params), typed_params(params)

        def call(domain: libvirt.virDomain) -> None:
            # the binding's annotation says "str" for what is a dict of typed parameters
            domain.migrateToURI3(params.destination_uri, cast("Any", values), bits)

        await self._calls.migrate(uuid, call)

    async def set_max_downtime(self, uuid: str, milliseconds: int) -> None:
        """Let the switchover take up to ``milliseconds``."""
        await self._control(
            uuid, lambda domain: domain.migrateSetMaxDowntime(milliseconds), "set max downtime"
        )

    async def set_max_speed(self, uuid: str, mib_per_s: int) -> None:
        """Limit the pre-copy bandwidth to ``mib_per_s`` MiB/s; 0 lifts the limit."""
        await self._control(uuid, lambda domain: domain.migrateSetMaxSpeed(mib_per_s), "set migration speed")

    async def start_postcopy(self, uuid: str) -> None:
        """Switch a pre-copy migration to post-copy. WrongPhase before its first iteration."""
        await self._control(uuid, lambda domain: domain.migrateStartPostCopy(), "start post-copy")

    async def abort_job(self, uuid: str) -> None:
        """Abort the job in progress. WrongPhase without one."""
        await self._control(uuid, lambda domain: domain.abortJob(), "abort job")

    async def pause_post_copy(self, uuid: str) -> None:
        """Interrupt a migration in post-copy: both halves of the guest wait. WrongPhase in pre-copy."""
        flag = libvirt.VIR_DOMAIN_ABORT_JOB_POSTCOPY
        await self._control(uuid, lambda domain: domain.abortJobFlags(flag), "interrupt post-copy")

    async def _control(self, uuid: str, call: Callable[[libvirt.virDomain], object], what: str) -> None:
        await self._calls.on_domain(uuid, call, what=what, lane=LaneName.CONTROL)


def _job_stats(domain: libvirt.virDomain, flags: int) -> JobStats:
    # the binding's annotation says "str" for what is a dict of typed parameters
    return job_stats(cast("Any", domain.jobStats(flags)))
