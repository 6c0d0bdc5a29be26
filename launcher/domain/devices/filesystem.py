# SPDX-License-Identifier: Apache-2.0
"""``<filesystem>``, served by a virtiofsd that is not libvirt's. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import pci
from launcher.domain.element import E, Element
from launcher.plan.devices.model import FilesystemPlan
from launcher.plan.model import VMPlan


def filesystems(plan: VMPlan) -> Iterator[Element]:
    """All shared directories."""
    return map(_filesystem, plan.devices.filesystems)


def _filesystem(filesystem: FilesystemPlan) -> Element:
    return E(
        "filesystem",
        E("driver", type="virtiofs", queue=filesystem.queue),
        E("source", socket=filesystem.socket),
        E("target", dir=filesystem.name),
        pci(filesystem.address),
        type="mount",
        # libvirt's spelling; the reference's accessMode is in no schema and is not read.
        accessmode="passthrough",
    )
