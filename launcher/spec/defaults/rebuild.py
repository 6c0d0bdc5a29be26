# SPDX-License-Identifier: Apache-2.0
"""Ways to change one part of an immutable instance. Decides nothing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from launcher.spec.model import VirtualMachineInstance


def with_spec(vmi: VirtualMachineInstance, **changes: Any) -> VirtualMachineInstance:
    """The instance with other fields in ``spec``."""
    return replace(vmi, spec=replace(vmi.spec, **changes))


def with_domain(vmi: VirtualMachineInstance, **changes: Any) -> VirtualMachineInstance:
    """The instance with other fields in ``spec.domain``."""
    return with_spec(vmi, domain=replace(vmi.spec.domain, **changes))


def with_devices(vmi: VirtualMachineInstance, **changes: Any) -> VirtualMachineInstance:
    """The instance with other fields in ``spec.domain.devices``."""
    return with_domain(vmi, devices=replace(vmi.spec.domain.devices, **changes))
