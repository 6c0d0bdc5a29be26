# SPDX-License-Identifier: Apache-2.0
"""Defaults of how an instance is run: image pulls, eviction, probes, the time to shut down."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from launcher.spec.defaults.rebuild import with_domain, with_spec
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.model import Probe, VirtualMachineInstance, Volume

GRACE_PERIOD_SECONDS = 30

# Kubernetes' defaults of a probe.
_PROBE = {"timeout_seconds": 1, "period_seconds": 10, "success_threshold": 1, "failure_threshold": 3}


def pull_policies(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """An image is always looked up when its tag is latest or missing, else only when it is not here."""
    kernel = _kernel_policy(vmi)
    volumes = tuple(_volume_policy(volume) for volume in kernel.spec.volumes)
    return kernel if volumes == kernel.spec.volumes else with_spec(kernel, volumes=volumes)


def eviction(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """The eviction strategy is the node's, if it has one."""
    if vmi.spec.eviction_strategy or not settings.eviction_strategy:
        return vmi
    return with_spec(vmi, eviction_strategy=settings.eviction_strategy)


def grace_period(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A guest has 30 seconds to shut down."""
    if vmi.spec.termination_grace_period_seconds is not None:
        return vmi
    return with_spec(vmi, termination_grace_period_seconds=GRACE_PERIOD_SECONDS)


def probes(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A probe runs every 10 s with 1 s to answer; three failures or one success decide."""
    changes: dict[str, Any] = {}
    for name in ("liveness_probe", "readiness_probe"):
        before = getattr(vmi.spec, name)
        after = _probe(before)
        if after is not before:
            changes[name] = after
    return with_spec(vmi, **changes) if changes else vmi


def pull_policy(image: str) -> Literal["Always", "IfNotPresent"]:
    """The policy of an image that names none: ``pull_policy("quay.io/x/y:1") == "IfNotPresent"``."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _kernel_policy(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    firmware = vmi.spec.domain.firmware
    boot = firmware.kernel_boot if firmware is not None else None
    if firmware is None or boot is None or boot.container is None or boot.container.image_pull_policy:
        return vmi
    container = replace(boot.container, image_pull_policy=pull_policy(boot.container.image))
    return with_domain(vmi, firmware=replace(firmware, kernel_boot=replace(boot, container=container)))


def _volume_policy(volume: Volume) -> Volume:
    disk = volume.container_disk
    if disk is None or disk.image_pull_policy is not None:
        return volume
    return replace(volume, container_disk=replace(disk, image_pull_policy=pull_policy(disk.image)))


def _probe(probe: Probe | None) -> Probe | None:
    if probe is None:
        return None
    changes = {name: value for name, value in _PROBE.items() if getattr(probe, name) is None}
    return replace(probe, **changes) if changes else probe
