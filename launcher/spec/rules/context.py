# SPDX-License-Identifier: Apache-2.0
"""What every rule looks at: the manifest as written, the same with defaults, and look-ups. Checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from launcher.errors import Violation
from launcher.spec.defaults import Architecture, DefaultsSettings, architecture
from launcher.spec.model import (
    CPU,
    Devices,
    Disk,
    DomainSpec,
    Features,
    Firmware,
    Interface,
    Memory,
    Network,
    ResourceRequirements,
    VirtualMachineInstance,
    VirtualMachineInstanceSpec,
    Volume,
)

DOMAIN = "spec.domain"
DEVICES = "spec.domain.devices"
RESOURCES = "spec.domain.resources"


class DiskEntry(msgspec.Struct, frozen=True):
    """One disk of the manifest: its path, what the user wrote, the same with defaults."""

    path: str
    written: Disk
    full: Disk


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One instance under examination.

    ``vmi``, ``spec``, ``domain`` and ``devices`` are what the user wrote, and findings name places in
    them; ``full`` is the instance with its defaults, whose lists start with the items of the former.
    ``disks``, ``interfaces`` and ``volumes`` are what was written, each item with its path. Of several
    volumes or networks with one name the look-ups have the first. ``claims`` are the names of resource
    claims. ``creating`` is false for an instance that runs already.
    """

    vmi: VirtualMachineInstance
    full: VirtualMachineInstance
    settings: DefaultsSettings
    creating: bool
    arch: Architecture
    spec: VirtualMachineInstanceSpec
    domain: DomainSpec
    devices: Devices
    cpu: CPU
    memory: Memory
    features: Features
    firmware: Firmware
    resources: ResourceRequirements
    disks: tuple[DiskEntry, ...]
    interfaces: tuple[tuple[str, Interface], ...]
    volumes: tuple[tuple[str, Volume], ...]
    volume_named: dict[str, Volume]
    network_named: dict[str, Network]
    claims: frozenset[str]

    @property
    def full_domain(self) -> DomainSpec:
        """``spec.domain`` with defaults."""
        return self.full.spec.domain

    @property
    def full_devices(self) -> Devices:
        """``spec.domain.devices`` with defaults."""
        return self.full.spec.domain.devices

    @property
    def secure_execution(self) -> bool:
        """Whether the guest asks for the protected virtualization of s390x."""
        return self.domain.launch_security is not None and self.arch.name == "s390x"

    @property
    def vcpus(self) -> int:
        """vCPUs that the guest starts with: absent members of the topology count as one."""
        cpu = self.full_domain.cpu or CPU()
        return (cpu.cores or 1) * (cpu.sockets or 1) * (cpu.threads or 1)


Rule: TypeAlias = Callable[[Context], Iterator[Violation]]


def context(
    vmi: VirtualMachineInstance, full: VirtualMachineInstance, settings: DefaultsSettings, *, creating: bool
) -> Context:
    """Collect what the rules look at."""
    domain = vmi.spec.domain
    devices = domain.devices
    # Reversed, so that the first of several with one name stays.
    volumes = {volume.name: volume for volume in reversed(vmi.spec.volumes)}
    networks = {network.name: network for network in reversed(vmi.spec.networks)}
    pairs = zip(devices.disks, full.spec.domain.devices.disks, strict=False)
    return Context(
        vmi=vmi,
        full=full,
        settings=settings,
        creating=creating,
        arch=architecture(full.spec.architecture),
        spec=vmi.spec,
        domain=domain,
        devices=devices,
        cpu=domain.cpu or CPU(),
        memory=domain.memory or Memory(),
        features=domain.features or Features(),
        firmware=domain.firmware or Firmware(),
        resources=domain.resources or ResourceRequirements(),
        disks=tuple(
            DiskEntry(f"{DEVICES}.disks[{index}]", written, complete)
            for index, (written, complete) in enumerate(pairs)
        ),
        interfaces=tuple((f"{DEVICES}.interfaces[{i}]", item) for i, item in enumerate(devices.interfaces)),
        volumes=tuple((f"spec.volumes[{i}]", item) for i, item in enumerate(vmi.spec.volumes)),
        volume_named=volumes,
        network_named=networks,
        claims=frozenset(claim.name for claim in vmi.spec.resource_claims),
    )
