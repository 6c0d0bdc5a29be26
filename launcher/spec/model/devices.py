# SPDX-License-Identifier: Apache-2.0
"""The device inventory of a domain and its small devices."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.disks import Disk, Filesystem
from launcher.spec.model.features import FeatureState
from launcher.spec.model.interfaces import Interface


class ClientPassthroughDevices(Model, frozen=True, kw_only=True):
    """API type ``ClientPassthroughDevices``.

    Present: four USB redirection slots.
    """


class DownwardMetrics(Model, frozen=True, kw_only=True):
    """API type ``DownwardMetrics``.

    Present: the channel is there.
    """


class VGPUDisplayOptions(Model, frozen=True, kw_only=True):
    """API type ``VGPUDisplayOptions``.

    A virtual GPU as display.

    enabled: the guest's display is drawn by it; on when absent
    ramfb: a frame buffer in memory, until the driver takes over
    """

    enabled: bool | None = None
    ramfb: FeatureState | None = field(name="ramFB", default=None)


class VGPUOptions(Model, frozen=True, kw_only=True):
    """API type ``VGPUOptions``.

    Settings of a virtual GPU.

    display: whether it serves as the guest's display
    """

    display: VGPUDisplayOptions | None = None


class GPU(Model, frozen=True, kw_only=True):
    """API type ``GPU``.

    One GPU, whole or virtual.

    name: name of the device; unique among GPUs and host devices
    claim_name: resource claim of the spec that provides it
    device_name: resource name that the node offers it under
    request_name: the request in that claim
    tag: a label for the guest's metadata, not for the hardware
    virtual_gpu_options: settings of a virtual GPU
    """

    name: str
    claim_name: str | None = None
    device_name: str | None = None
    request_name: str | None = None
    tag: str | None = None
    virtual_gpu_options: VGPUOptions | None = field(name="virtualGPUOptions", default=None)


class HostDevice(Model, frozen=True, kw_only=True):
    """API type ``HostDevice``.

    One device of the host.

    name: name of the device; unique among GPUs and host devices
    claim_name: resource claim of the spec that provides it
    device_name: resource name that the node offers it under
    request_name: the request in that claim
    tag: a label for the guest's metadata, not for the hardware
    """

    name: str
    claim_name: str | None = None
    device_name: str | None = None
    request_name: str | None = None
    tag: str | None = None


class Input(Model, frozen=True, kw_only=True):
    """API type ``Input``.

    A tablet or keyboard.

    name: name of the device
    type: what it is
    bus: the bus that it sits on
    """

    name: str
    type: str
    bus: str | None = None


class PanicDevice(Model, frozen=True, kw_only=True):
    """API type ``PanicDevice``.

    A device that tells the host of a guest's panic.

    model: how the panic is reported; absent, as fits the architecture
    """

    model: str | None = None


class Rng(Model, frozen=True, kw_only=True):
    """API type ``Rng``."""


class SoundDevice(Model, frozen=True, kw_only=True):
    """API type ``SoundDevice``.

    A sound card.

    name: name of the device
    model: model of the card
    """

    name: str
    model: str | None = None


class TPMDevice(Model, frozen=True, kw_only=True):
    """API type ``TPMDevice``.

    An emulated TPM 2.0.

    enabled: whether it is there; on when the device is named
    persistent: its content is kept when the instance ends
    """

    enabled: bool | None = None
    persistent: bool | None = None


class VideoDevice(Model, frozen=True, kw_only=True):
    """API type ``VideoDevice``.

    The video card.

    type: model of the card; absent, as fits architecture and firmware
    """

    type: str | None = None


class Diag288Watchdog(Model, frozen=True, kw_only=True):
    """API type ``Diag288Watchdog``.

    The watchdog of s390x.

    action: what happens when it fires
    """

    action: str | None = None


class I6300ESBWatchdog(Model, frozen=True, kw_only=True):
    """API type ``I6300ESBWatchdog``.

    A PCI watchdog.

    action: what happens when it fires
    """

    action: str | None = None


class Watchdog(Model, frozen=True, kw_only=True):
    """API type ``Watchdog``.

    A watchdog timer.

    name: name of the device
    diag288: the watchdog of s390x
    i6300esb: a PCI watchdog, for amd64
    """

    name: str
    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None


class Devices(Model, frozen=True, kw_only=True):
    """API type ``Devices``.

    The device inventory of a domain.

    autoattach_graphics_device: a VNC display and a video card are added unless false
    autoattach_input_device: in a VirtualMachine: a tablet is added as pointer, when it lists no inputs
    autoattach_mem_balloon: a memory balloon is added unless false
    autoattach_pod_interface: an interface on the pod network is added, when no network is listed,
        unless false
    autoattach_serial_console: a serial console is added unless false
    autoattach_vsock: a virtual socket with a context id (CID) of its own is added
    block_multi_queue: virtio disks get a queue for each vCPU
    client_passthrough: slots through which a client can lend its USB devices to the guest
    disable_hotplug: the controllers that are there only for plugging disks later are left out
    disks: disks, CD-ROM drives and LUNs, in the guest's order
    downward_metrics: a virtio channel on which the guest can read figures of its host
    filesystems: host directories shared with the guest
    gpus: whole GPUs and virtual GPUs of the host
    host_devices: other devices of the host: PCI, mediated or USB
    inputs: tablets and keyboards
    interfaces: network interfaces, in the guest's order
    log_serial_console: the serial console's output is kept for reading later; absent, as the node is
        configured
    network_interface_multiqueue: virtio interfaces get a pair of queues for each vCPU
    panic_devices: devices through which a guest's kernel reports its panic
    rng: a random number generator fed by the host
    sound: a sound card
    tpm: an emulated TPM 2.0
    use_virtio_transitional: virtio devices that drivers older than virtio 1.0 can use
    video: the video card's model
    watchdog: a timer that acts when the guest stops resetting it
    """

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
