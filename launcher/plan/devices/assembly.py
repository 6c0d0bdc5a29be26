# SPDX-License-Identifier: Apache-2.0
"""A manifest's devices -> DevicesPlan: everything inside <devices>. Pure; one module for each kind."""

from __future__ import annotations

from msgspec.structs import replace

from launcher.plan.context import PlanContext
from launcher.plan.devices.balloon import plan_balloon
from launcher.plan.devices.channel import plan_channels
from launcher.plan.devices.console import plan_serial
from launcher.plan.devices.controller import plan_controllers
from launcher.plan.devices.disk import plan_disks, unbound_claims
from launcher.plan.devices.filesystem import plan_filesystems
from launcher.plan.devices.graphics import plan_graphics
from launcher.plan.devices.hostdev import plan_hostdevs
from launcher.plan.devices.input import plan_inputs
from launcher.plan.devices.interface import plan_interfaces, plan_plugins, unbound_bindings, unbound_networks
from launcher.plan.devices.model import DevicesPlan
from launcher.plan.devices.panic import plan_panics
from launcher.plan.devices.pci import place_on_pci
from launcher.plan.devices.redirdev import plan_redirdevs
from launcher.plan.devices.rng import plan_rng
from launcher.plan.devices.sound import plan_sound
from launcher.plan.devices.teaming import with_teams
from launcher.plan.devices.tpm import plan_tpm
from launcher.plan.devices.video import plan_video
from launcher.plan.devices.vsock import plan_vsock
from launcher.plan.devices.watchdog import plan_watchdog


def plan_devices(context: PlanContext) -> DevicesPlan:
    """Plan all devices: first what they are, then the controllers they need, then where they sit.

    Raises:
        HostUnsupported: the node's libvirt or board has no such device.
        InvalidSpec: a disk without a volume, or an address or annotation that cannot be read.
        InvalidRequest: an address of a host device that cannot be read.
    """
    hostdevs, unbound_devices = plan_hostdevs(context)
    devices = DevicesPlan(
        disks=plan_disks(context),
        filesystems=plan_filesystems(context),
        interfaces=plan_interfaces(context),
        serial=plan_serial(context),
        channels=plan_channels(context),
        tpm=plan_tpm(context),
        inputs=plan_inputs(context),
        graphics=plan_graphics(context),
        sound=plan_sound(context),
        video=plan_video(context),
        hostdevs=hostdevs,
        redirdevs=plan_redirdevs(context),
        watchdog=plan_watchdog(context),
        balloon=plan_balloon(context),
        rng=plan_rng(context),
        panics=plan_panics(context),
        vsock=plan_vsock(context),
        plugins=plan_plugins(context),
        unbound=(
            *unbound_claims(context),
            *unbound_devices,
            *unbound_bindings(context),
            *unbound_networks(context),
        ),
    )
    teamed = with_teams(context, devices)
    return place_on_pci(context, replace(teamed, controllers=plan_controllers(context, teamed)))
