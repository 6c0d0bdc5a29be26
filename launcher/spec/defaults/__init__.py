# SPDX-License-Identifier: Apache-2.0
"""What an instance gets when its manifest does not say: an ordered list of small steps. Refuses nothing.

``apply_defaults`` is total (it takes every object that decodes, right or wrong) and idempotent, and it never
changes what the user wrote, but for one thing: Hyper-V's evmcs makes the policy of the CPU feature vmx
``require``. Lists are only appended to, so positions in them stay those of the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launcher.spec.defaults import compute, devices, features, identity, lifecycle
from launcher.spec.defaults.architectures import ARCHITECTURES, Architecture, architecture
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.model import VirtualMachineInstance

__all__ = [
    "ARCHITECTURES",
    "STEPS",
    "Architecture",
    "DefaultsSettings",
    "Step",
    "apply_defaults",
    "architecture",
    "trace",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One default: its name, and a function that returns the same object when it has nothing to add."""

    name: str
    apply: Callable[[VirtualMachineInstance, DefaultsSettings], VirtualMachineInstance]

    @property
    def summary(self) -> str:
        """One sentence for people: what the step does."""
        return (self.apply.__doc__ or "").partition("\n")[0]


# The order matters where a step reads what an earlier one wrote: all of them read the architecture; topology
# and requests come before hotplug, disks of volumes before fields of disks, states before dependencies.
STEPS: tuple[Step, ...] = (
    Step("namespace", identity.namespace),
    Step("architecture", identity.guest_architecture),
    Step("machine-type", identity.machine_type),
    Step("cpu-request", compute.cpu_request),
    Step("guest-memory", compute.guest_memory),
    Step("cpu-topology", compute.cpu_topology),
    Step("image-pull-policy", lifecycle.pull_policies),
    Step("eviction-strategy", lifecycle.eviction),
    Step("pod-interface", devices.pod_interface),
    Step("volume-disks", devices.volume_disks),
    Step("acpi", features.acpi),
    Step("feature-states", features.feature_states),
    Step("timers", features.timers),
    Step("hyperv-dependencies", features.hyperv_dependencies),
    Step("disk-fields", devices.disk_fields),
    Step("input-bus", devices.input_bus),
    Step("small-devices", devices.small_devices),
    Step("watchdog", devices.watchdog),
    Step("bootloader", identity.bootloader),
    Step("cpu-model", compute.cpu_model),
    Step("cpu-hotplug", compute.cpu_hotplug),
    Step("memory-hotplug", compute.memory_hotplug),
    Step("probes", lifecycle.probes),
    Step("grace-period", lifecycle.grace_period),
    Step("firmware-uuid", identity.firmware_uuid),
)

_SETTINGS = DefaultsSettings()


def apply_defaults(
    vmi: VirtualMachineInstance, settings: DefaultsSettings = _SETTINGS
) -> VirtualMachineInstance:
    """The instance with all defaults filled in."""
    for step in STEPS:
        vmi = step.apply(vmi, settings)
    return vmi


def trace(
    vmi: VirtualMachineInstance, settings: DefaultsSettings = _SETTINGS
) -> Iterator[tuple[Step, VirtualMachineInstance]]:
    """The steps that have something to add, each with the instance after it: for explanations."""
    for step in STEPS:
        after = step.apply(vmi, settings)
        if after is not vmi:
            yield step, after
            vmi = after
