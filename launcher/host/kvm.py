# SPDX-License-Identifier: Apache-2.0
"""Is KVM usable here? Looks at the device and the CPU, and lets the kernel make an empty VM for a moment.

A device file that opens is not enough: in some sandboxes it opens, and guests then hang on it.
"""

from __future__ import annotations

import fcntl
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KVM_GET_API_VERSION: Final = 0xAE00
KVM_CREATE_VM: Final = 0xAE01
KVM_API_VERSION: Final = 12
"""ioctl numbers and the only API version in use: Linux, Documentation/virt/kvm/api.rst."""

X86_FLAGS: Final = ("vmx", "svm")
X86_MACHINES: Final = ("x86_64", "i686", "i586", "i386")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kvm:
    """Whether KVM guests can run; ``reason`` says why not, and is empty if they can."""

    usable: bool
    reason: str = ""


def probe(
    *,
    device: Path = Path("/dev/kvm"),
    cpuinfo: Path = Path("/proc/cpuinfo"),
    machine: str | None = None,
) -> Kvm:
    """Look at this host. ``machine`` is the architecture, by default the kernel's."""
    reason = _flags_missing(cpuinfo, machine or platform.machine()) or _device_unusable(device)
    return Kvm(usable=not reason, reason=reason)


def _flags_missing(cpuinfo: Path, machine: str) -> str:
    if machine not in X86_MACHINES:
        return ""  # other architectures do not show it as a flag; the kernel's answer decides
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"cannot read {cpuinfo}: {error.strerror}"
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    if any(flag in flags for flag in X86_FLAGS):
        return ""
    return "the CPU shows neither vmx nor svm (virtualization is off in the firmware, or this is a guest)"


def _device_unusable(device: Path) -> str:
    try:
        kvm = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"cannot open {device}: {error.strerror}"
    try:
        version = fcntl.ioctl(kvm, KVM_GET_API_VERSION, 0)
        if version != KVM_API_VERSION:
            return f"{device} speaks KVM API version {version}, not {KVM_API_VERSION}"
        os.close(fcntl.ioctl(kvm, KVM_CREATE_VM, 0))
    except OSError as error:
        return f"{device} opens, but makes no VM: {error.strerror}"
    finally:
        os.close(kvm)
    return ""
