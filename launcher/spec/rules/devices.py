# SPDX-License-Identifier: Apache-2.0
"""Rules of the small devices: video, inputs, sound, watchdog, panic, USB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.rules.checks import one_of, unique
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.finding import invalid, required, unsupported

INPUT_BUSES: Final = ("virtio", "usb")
INPUT_TYPES: Final = ("tablet",)
SOUND_MODELS: Final = ("ich9", "ac97")
WATCHDOG_ACTIONS: Final = ("poweroff", "reset", "shutdown")
PANIC_MODELS: Final = ("hyperv", "isa", "pvpanic")

# What libvirt accepts in an alias given by the user, after its prefix; the length keeps QEMU's ids short.
_ALIAS: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def device_name(field: str, name: str) -> Iterator[Violation]:
    """The name of a device becomes its alias in libvirt."""
    if not name:
        yield required(field, "needs a name")
    elif _ALIAS.fullmatch(name) is None:
        yield invalid(field, name, "accepted are letters, digits, '-', '_' and '.', at most 128")


def video(ctx: Context) -> Iterator[Violation]:
    """A video device belongs to graphics, and the architecture has it."""
    device = ctx.devices.video
    if device is None:
        return
    if ctx.devices.autoattach_graphics_device is False:
        yield invalid(f"{DEVICES}.video", None, "needs graphics: autoattachGraphicsDevice must not be false")
    if device.type not in ctx.arch.videos:
        yield unsupported(f"{DEVICES}.video.type", device.type, ctx.arch.videos, f" on {ctx.arch.name}")


def inputs(ctx: Context) -> Iterator[Violation]:
    """Inputs are tablets with names, on a bus that there is."""
    for index, item in enumerate(ctx.devices.inputs):
        path = f"{DEVICES}.inputs[{index}]"
        yield from device_name(f"{path}.name", item.name)
        if item.type not in INPUT_TYPES:
            yield unsupported(f"{path}.type", item.type, INPUT_TYPES)
        yield from one_of(f"{path}.bus", item.bus, INPUT_BUSES)
        if item.bus == "usb" and not ctx.arch.usb:
            yield unsupported(f"{path}.bus", item.bus, ("virtio",), f" on {ctx.arch.name}")
    yield from unique((f"{DEVICES}.inputs[{i}].name", item.name) for i, item in enumerate(ctx.devices.inputs))


def sound(ctx: Context) -> Iterator[Violation]:
    """A sound device has a name and a known model."""
    device = ctx.devices.sound
    if device is None:
        return
    path = f"{DEVICES}.sound"
    if not ctx.arch.sound:
        yield unsupported(path, None, (), f" on {ctx.arch.name}")
    yield from device_name(f"{path}.name", device.name)
    yield from one_of(f"{path}.model", device.model, SOUND_MODELS)


def watchdog(ctx: Context) -> Iterator[Violation]:
    """A watchdog has a name, the model of the architecture, and does something known."""
    dog = ctx.devices.watchdog
    if dog is None:
        return
    path = f"{DEVICES}.watchdog"
    yield from device_name(f"{path}.name", dog.name)
    if not ctx.arch.watchdog:
        yield unsupported(path, None, (), f" on {ctx.arch.name}")
    for model, device in (("i6300esb", dog.i6300esb), ("diag288", dog.diag288)):
        if device is None:
            continue
        if ctx.arch.watchdog and model != ctx.arch.watchdog:
            yield unsupported(f"{path}.{model}", None, (ctx.arch.watchdog,), f" on {ctx.arch.name}")
        yield from one_of(f"{path}.{model}.action", device.action, WATCHDOG_ACTIONS)


def panic(ctx: Context) -> Iterator[Violation]:
    """Panic devices have known models, each at most once."""
    devices = ctx.devices.panic_devices
    if devices and not ctx.arch.panic:
        yield unsupported(f"{DEVICES}.panicDevices", None, (), f" on {ctx.arch.name}")
    for index, device in enumerate(devices):
        yield from one_of(f"{DEVICES}.panicDevices[{index}].model", device.model, PANIC_MODELS)
    # A device without a model is an isa one on amd64: two of them are one too many as well.
    yield from unique(
        (f"{DEVICES}.panicDevices[{index}].model", device.model or "isa")
        for index, device in enumerate(devices)
    )


def usb_redirection(ctx: Context) -> Iterator[Violation]:
    """USB devices of a client need a USB controller."""
    if ctx.devices.client_passthrough is not None and not ctx.arch.usb:
        yield unsupported(f"{DEVICES}.clientPassthrough", None, (), f" on {ctx.arch.name}")


def downward_metrics(ctx: Context) -> Iterator[Violation]:
    """The disk of metrics is on virtio, where the guest's reader looks for it."""
    for entry in ctx.disks:
        volume = ctx.volume_named.get(entry.written.name)
        if volume is None or volume.downward_metrics is None:
            continue
        target = entry.written.disk
        if target is not None and target.bus and target.bus != "virtio":
            yield invalid(f"{entry.path}.disk.bus", target.bus, "downwardMetrics needs bus virtio")
        elif entry.full.disk is None:
            kind = "lun" if entry.full.lun is not None else "cdrom"
            yield invalid(f"{entry.path}.{kind}", None, "downwardMetrics needs a disk on bus virtio")


RULES: tuple[Rule, ...] = (video, inputs, sound, watchdog, panic, usb_redirection, downward_metrics)
