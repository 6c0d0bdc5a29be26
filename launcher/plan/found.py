# SPDX-License-Identifier: Apache-2.0
"""A plan corrected by what storage found when it made the steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from launcher.plan.devices.model import DiskPlan
from launcher.plan.model import VMPlan


def with_base_formats(plan: VMPlan, formats: Mapping[str, Literal["raw", "qcow2"]]) -> VMPlan:
    """The plan with the true formats of the images under overlays, by their paths.

    A containerDisk is planned as qcow2; whether it is one is known only when the image was read.
    """
    disks = tuple(_corrected(disk, formats) for disk in plan.devices.disks)
    if disks == plan.devices.disks:
        return plan
    return msgspec.structs.replace(plan, devices=msgspec.structs.replace(plan.devices, disks=disks))


def _corrected(disk: DiskPlan, formats: Mapping[str, Literal["raw", "qcow2"]]) -> DiskPlan:
    backing = disk.backing
    if backing is None:
        return disk
    found = formats.get(backing.source.path, backing.format)
    if found == backing.format:
        return disk
    return msgspec.structs.replace(disk, backing=msgspec.structs.replace(backing, format=found))
