# SPDX-License-Identifier: Apache-2.0
"""Where the files of one instance lie. The only place that spells these paths; nothing is touched here.

All that an instance owns is under directories named by its uid: one that lasts (disks, NVRAM, logs), one for
sockets, one for its network. Volume names are unique only within an instance, so they never stand alone.
A unix socket's path holds 107 bytes: ``run_dir`` must stay short.
"""

from __future__ import annotations

from dataclasses import dataclass

from launcher.plan.settings import PlanSettings


@dataclass(frozen=True, slots=True)
class InstancePaths:
    """Paths of the instance ``uid`` under the two roots. ``network`` is the agent's; QEMU owns ``run``."""

    state: str
    run: str
    network: str

    @property
    def network_namespace(self) -> str:
        """Where the network namespace of a masqueraded interface is mounted."""
        return f"{self.network}/ns"

    @property
    def serial_socket(self) -> str:
        """The first serial port, a listening unix socket of QEMU."""
        return f"{self.run}/serial0.sock"

    @property
    def serial_log(self) -> str:
        """What the first serial port printed."""
        return f"{self.state}/serial0.log"

    @property
    def rescue_monitor(self) -> str:
        """QEMU's second monitor, by which an interrupted post-copy is put together where libvirt fails."""
        return f"{self.run}/rescue.sock"

    @property
    def vnc_socket(self) -> str:
        """VNC on a unix socket."""
        return f"{self.run}/vnc.sock"

    @property
    def downward_metrics_socket(self) -> str:
        """The virtio-serial channel of downward metrics."""
        return f"{self.run}/downwardmetrics.sock"

    def usbredir_socket(self, index: int) -> str:
        """USB redirection slot ``index``."""
        return f"{self.run}/usbredir{index}.sock"

    def virtiofs_socket(self, index: int) -> str:
        """virtiofsd of the filesystem number ``index``; names may be too long for a socket's path."""
        return f"{self.run}/virtiofs{index}.sock"

    def virtiofsd_log(self, index: int) -> str:
        """What the virtiofsd of the filesystem number ``index`` says."""
        return f"{self.state}/virtiofs{index}.log"

    def share(self, volume: str) -> str:
        """A directory with the files of a generated volume that is shared."""
        return f"{self.state}/shares/{volume}"

    def passt_log(self, interface: str) -> str:
        """What passt says about the interface."""
        return f"{self.run}/passt-{interface}.log"

    @property
    def nvram(self) -> str:
        """UEFI variables."""
        return f"{self.state}/nvram.fd"

    @property
    def kernel(self) -> str:
        """Kernel of a direct boot."""
        return f"{self.state}/boot/kernel"

    @property
    def initrd(self) -> str:
        """Initrd of a direct boot."""
        return f"{self.state}/boot/initrd"

    @property
    def boot(self) -> str:
        """Directory of the two above."""
        return f"{self.state}/boot"

    @property
    def disks(self) -> str:
        """Directory of all images that belong to the instance."""
        return f"{self.state}/disks"

    def overlay(self, volume: str) -> str:
        """The qcow2 file a guest writes to: an emptyDisk, or an overlay on a read-only base."""
        return f"{self.disks}/{volume}.qcow2"

    def base(self, volume: str) -> str:
        """The read-only base image of a containerDisk."""
        return f"{self.disks}/{volume}.base"

    def tracking(self, volume: str) -> str:
        """The qcow2 file that remembers which blocks of a user's raw image changed."""
        return f"{self.disks}/{volume}.changes.qcow2"

    def scratch(self, volume: str, backup: str) -> str:
        """What a guest overwrites of a volume while a backup of it is pulled."""
        return f"{self.disks}/{volume}.{backup}.scratch"

    @property
    def backup_socket(self) -> str:
        """Where QEMU serves a backup that is pulled."""
        return f"{self.run}/backup.sock"

    def iso(self, volume: str) -> str:
        """A generated image: cloud-init, configMap, secret, sysprep …"""
        return f"{self.disks}/{volume}.iso"

    @property
    def ignition(self) -> str:
        """Ignition's configuration for the first boot."""
        return f"{self.state}/config.ign"

    @property
    def acpi(self) -> str:
        """Directory of ACPI tables."""
        return f"{self.state}/acpi"

    def acpi_table(self, kind: str) -> str:
        """A SLIC or MSDM table."""
        return f"{self.acpi}/{kind}.bin"


@dataclass(frozen=True, slots=True)
class KeptPaths:
    """Where state lies that outlives the instances ``namespace/name``, while there is none."""

    directory: str

    @property
    def nvram(self) -> str:
        """UEFI variables."""
        return f"{self.directory}/nvram.fd"

    @property
    def tpm(self) -> str:
        """The directory of the TPM's state."""
        return f"{self.directory}/tpm"


def kept_paths(state_dir: str, namespace: str, name: str) -> KeptPaths:
    """Paths of what is kept of the instances ``namespace/name``; both are names that the API accepts."""
    return KeptPaths(directory=f"{state_dir}/kept/{namespace}/{name}")


def instance_paths(settings: PlanSettings, uid: str) -> InstancePaths:
    """Paths of the instance ``uid``."""
    return InstancePaths(
        state=f"{settings.state_dir}/instances/{uid}",
        run=f"{settings.run_dir}/i/{uid}",
        network=f"{settings.run_dir}/n/{uid}",
    )
