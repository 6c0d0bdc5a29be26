# SPDX-License-Identifier: Apache-2.0
"""What is in a drive is exchanged and nothing else of it."""

from __future__ import annotations

import pytest

from launcher.domain.media import with_media
from launcher.domain.reading import attribute, parse
from launcher.errors import NotFound
from launcher.plan.devices.model import Backing, DiskPlan, DiskSource

LIVE = """<domain type='qemu'><devices>
  <disk type='file' device='disk'><source file='/a'/><target dev='vda'/><alias name='ua-a'/></disk>
  <disk type='file' device='cdrom'>
    <driver name='qemu' type='raw' cache='writethrough' error_policy='stop'/>
    <source file='/old.iso' index='3'/><backingStore/>
    <target dev='sda' bus='scsi' tray='open'/><readonly/><alias name='ua-cd'/>
    <address type='drive' controller='0' bus='0' target='0' unit='0'/>
  </disk>
</devices></domain>"""
DRIVE = DiskPlan(
    name="cd",
    device="cdrom",
    bus="scsi",
    target="sda",
    source=DiskSource(path="/dev/x", block=True),
    cache="none",
)


def test_the_drive_keeps_all_but_its_content() -> None:
    disk = parse(with_media(LIVE, DRIVE), what="disk", tag="disk")
    assert (disk.get("type"), attribute(disk, "source", "dev")) == ("block", "/dev/x")
    assert attribute(disk, "driver", "cache") == "writethrough"
    assert attribute(disk, "target", "tray") == "open"
    assert len(disk.findall("source")) == 1


def test_an_overlay_brings_its_format_and_its_base() -> None:
    base = Backing(source=DiskSource(path="/base"), format="raw")
    overlay = DiskPlan(
        name="cd",
        device="cdrom",
        bus="scsi",
        target="sda",
        source=DiskSource(path="/o.qcow2"),
        format="qcow2",
        backing=base,
    )
    disk = parse(with_media(LIVE, overlay), what="disk", tag="disk")
    assert attribute(disk, "driver", "type") == "qcow2"
    assert attribute(disk, "backingStore/source", "file") == "/base"


def test_an_emptied_drive_has_no_source() -> None:
    disk = parse(with_media(LIVE, DRIVE, empty=True), what="disk", tag="disk")
    assert disk.find("source") is None
    assert attribute(disk, "alias", "name") == "ua-cd"


def test_a_drive_that_is_not_there_is_not_made() -> None:
    with pytest.raises(NotFound, match="'other'"):
        with_media(LIVE, DiskPlan(name="other", device="cdrom", bus="scsi", target="sdb"))
