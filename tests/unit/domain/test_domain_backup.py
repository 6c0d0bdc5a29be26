# SPDX-License-Identifier: Apache-2.0
"""Backup jobs and checkpoints against the schemas of the installed libvirt."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from launcher.domain.backup import BackupJob, BackupServer, CopiedDisk, backup_xml, checkpoint_xml

SCHEMAS = Path("/usr/share/libvirt/schemas")
DISKS = (
    CopiedDisk(target="vda", file="/s/a & b.qcow2"),
    CopiedDisk(target="sdb", file="/s/c.qcow2", export="data", bitmap="data-since"),
)
JOBS = (
    BackupJob(disks=DISKS[:1], others=("vdb", "sda")),
    BackupJob(disks=DISKS[:1], incremental="before"),
    BackupJob(mode="pull", disks=DISKS, server=BackupServer(socket="/run/b.sock")),
    BackupJob(
        mode="pull",
        disks=DISKS,
        others=("vdc",),
        incremental="before",
        server=BackupServer(address="192.0.2.1", port=10809),
    ),
)


def require_valid(xml: str, schema: str) -> None:
    if not (SCHEMAS / schema).exists():
        pytest.skip("libvirt's schemas are not installed")
    etree.RelaxNG(etree.parse(SCHEMAS / schema)).assertValid(etree.fromstring(xml))


@pytest.mark.parametrize("job", JOBS)
def test_documents_are_valid(job: BackupJob) -> None:
    require_valid(backup_xml(job), "domainbackup.rng")
    require_valid(checkpoint_xml("now", job), "domaincheckpoint.rng")


def test_each_disk_is_copied_or_said_not_to_be() -> None:
    job = JOBS[3]
    backup = etree.fromstring(backup_xml(job))
    assert {d.get("name"): d.get("backup") for d in backup.iter("disk")} == {
        "vda": "yes",
        "sdb": "yes",
        "vdc": "no",
    }
    assert [d.findtext("target") for d in backup.iter("disk")] == [None, None, None]
    assert [d.get("file") for d in backup.iter("scratch")] == ["/s/a & b.qcow2", "/s/c.qcow2"]
    assert backup.findtext("incremental") == "before"
    # What leaves the host is never in the clear.
    server = backup.find("server")
    assert server is not None
    assert (server.get("transport"), server.get("tls")) == ("tcp", "yes")
    checkpoint = etree.fromstring(checkpoint_xml("now", job))
    assert {d.get("name"): d.get("checkpoint") for d in checkpoint.iter("disk")} == {
        "vda": "bitmap",
        "sdb": "bitmap",
        "vdc": "no",
    }
