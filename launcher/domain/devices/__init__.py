# SPDX-License-Identifier: Apache-2.0
"""Everything inside <devices>, one module for each libvirt element. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launcher.domain.devices.balloon import balloon
from launcher.domain.devices.channel import channels
from launcher.domain.devices.console import console
from launcher.domain.devices.controller import controllers
from launcher.domain.devices.disk import disks
from launcher.domain.devices.filesystem import filesystems
from launcher.domain.devices.graphics import graphics
from launcher.domain.devices.hostdev import hostdevs
from launcher.domain.devices.input import inputs
from launcher.domain.devices.interface import interfaces
from launcher.domain.devices.panic import panics
from launcher.domain.devices.redirdev import redirdevs
from launcher.domain.devices.rng import rng
from launcher.domain.devices.sound import sound
from launcher.domain.devices.tpm import tpm
from launcher.domain.devices.video import video
from launcher.domain.devices.vsock import vsock
from launcher.domain.devices.watchdog import watchdog
from launcher.domain.element import Element
from launcher.plan.model import VMPlan

__all__ = ["DEVICES"]

# The order of the document, which is the order in which libvirt prints it.
DEVICES: tuple[Callable[[VMPlan], Iterator[Element]], ...] = (
    disks,
    controllers,
    filesystems,
    interfaces,
    console,
    channels,
    tpm,
    inputs,
    graphics,
    sound,
    video,
    hostdevs,
    redirdevs,
    watchdog,
    balloon,
    rng,
    panics,
    vsock,
)
