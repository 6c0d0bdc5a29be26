# SPDX-License-Identifier: Apache-2.0
"""The device inventory of a domain and its small devices."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.disks import Disk, Filesystem
from launcher.spec.model.features import FeatureState
from launcher.spec.model.interfaces import Interface


class ClientPassthroughDevices(Model, frozen=True, kw_only=True):
    """API type ``ClientPassthroughDevices``."""


class DownwardMetrics(Model, frozen=True, kw_only=True):
    """API type ``DownwardMetrics``."""


class VGPUDisplayOptions(Model, frozen=True, kw_only=True):
    """API type ``VGPUDisplayOptions``."""

    enabled: bool | None = None
    ramfb: FeatureState | None = field(name="ramFB", default=None)


class VGPUOptions(Model, frozen=True, kw_only=True):
    """API type ``VGPUOptions``."""

    display: VGPUDisplayOptions | None = None


class GPU(Model, frozen=True, kw_only=True):
    """API type ``GPU``."""

    name: str
    claim_name: str | None = None
    device_name: str | None = None
    request_name: str | None = None
    tag: str | None = None
    virtual_gpu_options: VGPUOptions | None = field(name="virtualGPUOptions", default=None)


class HostDevice(Model, frozen=True, kw_only=True):
    """API type ``HostDevice``."""

    name: str
    claim_name: str | None = None
    device_name: str | None = None
    request_name: str | None = None
    tag: str | None = None


class Input(Model, frozen=True, kw_only=True):
    """API type ``Input``."""

    name: str
    type: str
    bus: str | None = None


class PanicDevice(Model, frozen=True, kw_only=True):
    """API type ``PanicDevice``."""

    model: str | None = None


class Rng(Model, frozen=True, kw_only=True):
    """API type ``Rng``."""


class SoundDevice(Model, frozen=True, kw_only=True):
    """API type ``SoundDevice``."""

    name: str
    model: str | None = None


class TPMDevice(Model, frozen=True, kw_only=True):
    """API type ``TPMDevice``."""

    enabled: bool | None = None
    persistent: bool | None = None


class VideoDevice(Model, frozen=True, kw_only=True):
    """API type ``VideoDevice``."""

    type: str | None = None


class Diag288Watchdog(Model, frozen=True, kw_only=True):
    """API type ``Diag288Watchdog``."""

    action: str | None = None


class I6300ESBWatchdog(Model, frozen=True, kw_only=True):
    """API type ``I6300ESBWatchdog``."""

    action: str | None = None


class Watchdog(Model, frozen=True, kw_only=True):
    """API type ``Watchdog``."""

    name: str
    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None


class Devices(Model, frozen=True, kw_only=True):
    """API type ``Devices``."""

    autoattach_graphics_device: bool | None = None
    autoattach_input_device: bool | None = None
    autoattach_mem_balloon: bool | None = None
    autoattach_pod_interface: bool | None = None
    autoattach_serial_console: bool | None = None
    autoattach_vsock: bool | None = field(name="autoattachVSOCK", default=None)
    block_multi_queue: bool | None = None
    client_passthrough: ClientPassthroughDevices | None = None
    disable_hotplug: bool | None = None
    disks: tuple[Disk, ...] = ()
    downward_metrics: DownwardMetrics | None = None
    filesystems: tuple[Filesystem, ...] = ()
    gpus: tuple[GPU, ...] = ()
    host_devices: tuple[HostDevice, ...] = ()
    inputs: tuple[Input, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    log_serial_console: bool | None = None
    network_interface_multiqueue: bool | None = None
    panic_devices: tuple[PanicDevice, ...] = ()
    rng: Rng | None = None
    sound: SoundDevice | None = None
    tpm: TPMDevice | None = None
    use_virtio_transitional: bool | None = None
    video: VideoDevice | None = None
    watchdog: Watchdog | None = None
