# SPDX-License-Identifier: Apache-2.0
"""The drive of a running domain with something else in it, for libvirt's update of a device. Pure."""

from __future__ import annotations

from launcher.domain.devices.disk import disk_element
from launcher.domain.read import alias_of
from launcher.domain.reading import Parsed, grafted, parse, printed
from launcher.errors import NotFound
from launcher.plan.devices.model import DiskPlan

_CONTENT = ("source", "backingStore", "mirror")


def with_media(xml: str, disk: DiskPlan, *, empty: bool = False) -> str:
    """The element of the drive ``disk`` out of the live ``xml``, holding what ``disk`` says, or nothing.

    Only what it holds may differ from what libvirt has: it refuses every other change, such as of the cache
    mode, even where the drive's default was never written.

    Raises:
        NotFound: the domain has no such drive.
    """
    root = parse(xml, what="domain XML", tag="domain")
    found = next((node for node in root.iterfind("devices/disk") if alias_of(node) == disk.name), None)
    if found is None:
        raise NotFound("CD-ROM drive", disk.name)
    for name in _CONTENT:
        for node in found.findall(name):
            found.remove(node)
    if not empty:
        _fill(found, grafted(disk_element(disk)))
    found.tail = None
    return printed(found)


def _fill(drive: Parsed, planned: Parsed) -> None:
    drive.set("type", planned.get("type", "file"))
    driver, wanted = drive.find("driver"), planned.find("driver")
    if driver is not None and wanted is not None:
        driver.set("type", wanted.get("type", "raw"))
    for name in _CONTENT:
        node = planned.find(name)
        if node is not None:
            drive.append(node)
