# SPDX-License-Identifier: Apache-2.0
"""``<domainbackup>`` and ``<domaincheckpoint>``: what is copied of a running domain, and how. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.domain.element import E, Element, to_text


class CopiedDisk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The disk ``target`` (``vda``) and the qcow2 file that gets its content or, when somebody pulls, what
    the guest overwrites meanwhile. It is exported as ``export``, what changed as the bitmap ``bitmap``."""

    target: str
    file: str
    export: str = ""
    bitmap: str = ""


class BackupServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where QEMU serves what is pulled, by NBD: a unix socket, or ``address`` and ``port`` with TLS."""

    socket: str = ""
    address: str = ""
    port: int = 0


class BackupJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One backup job. ``others`` are the disks that are not copied; ``incremental`` is the checkpoint since
    which changes are copied (empty: everything)."""

    mode: Literal["push", "pull"] = "push"
    disks: tuple[CopiedDisk, ...]
    others: tuple[str, ...] = ()
    incremental: str = ""
    server: BackupServer | None = None


def backup_xml(job: BackupJob) -> str:
    """The document that virDomainBackupBegin takes."""
    root = E(
        "domainbackup",
        E("incremental", job.incremental) if job.incremental else None,
        _server(job.server) if job.server is not None else None,
        E(
            "disks",
            *(_disk(job, disk) for disk in job.disks),
            *(E("disk", name=target, backup="no") for target in job.others),
        ),
        mode=job.mode,
    )
    return to_text(root)


def checkpoint_xml(name: str, job: BackupJob) -> str:
    """The checkpoint ``name`` of the moment at which ``job`` begins."""
    root = E(
        "domaincheckpoint",
        E("name", name),
        E(
            "disks",
            *(E("disk", name=disk.target, checkpoint="bitmap") for disk in job.disks),
            *(E("disk", name=target, checkpoint="no") for target in job.others),
        ),
    )
    return to_text(root)


def _server(server: BackupServer) -> Element:
    if server.socket:
        return E("server", transport="unix", socket=server.socket)
    return E("server", transport="tcp", tls="yes", name=server.address, port=server.port)


def _disk(job: BackupJob, disk: CopiedDisk) -> Element:
    return E(
        "disk",
        E("driver", type="qcow2"),
        E("target" if job.mode == "push" else "scratch", file=disk.file),
        name=disk.target,
        backup="yes",
        type="file",
        exportname=disk.export or None,
        exportbitmap=disk.bitmap or None,
    )
