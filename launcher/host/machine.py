# SPDX-License-Identifier: Apache-2.0
"""What this machine is: CPUs, memory, kernel, programs and device files that guests need. Blocking."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

SMT_ACTIVE: Final = Path("/sys/devices/system/cpu/smt/active")
STATUS: Final = Path("/proc/self/status")
CAP_SYS_RESOURCE: Final = 24
"""Linux, include/uapi/linux/capability.h: with it libvirtd raises QEMU's limit on locked memory."""

PROGRAM_DIRECTORIES: Final = ("/usr/bin", "/usr/local/bin", "/usr/libexec", "/usr/lib/qemu")
"""Where distributions put what runs beside QEMU: virtiofsd is on nobody's PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``memory`` in bytes; ``smt`` None: the kernel does not say. Programs are paths, empty when absent;
    devices are True when they open."""

    kernel: str
    cpus: int
    memory: int
    smt: bool | None
    memory_locking: bool
    ipv6: bool
    swtpm: str
    virtiofsd: str
    passt: str
    vhost_vsock: bool
    vhost_net: bool


def look() -> Machine:
    """Look at this machine now."""
    return Machine(
        kernel=platform.release(),
        cpus=psutil.cpu_count() or os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        smt=smt_active(),
        memory_locking=may_lock_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]),
        ipv6=Path("/proc/sys/net/ipv6").is_dir(),
        swtpm=program("swtpm"),
        virtiofsd=program("virtiofsd"),
        passt=program("passt"),
        vhost_vsock=opens(Path("/dev/vhost-vsock")),
        vhost_net=opens(Path("/dev/vhost-net")),
    )


def smt_active(path: Path = SMT_ACTIVE) -> bool | None:
    """Whether cores run more than one thread now."""
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return None


def may_lock_memory(limit: int, status: Path = STATUS) -> bool:
    """Whether a QEMU may be given as much locked memory as it wants: the hard ``limit`` is off, or may be
    raised by who has this process's capabilities."""
    if limit == resource.RLIM_INFINITY:
        return True
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1)


def program(name: str, directories: Iterable[str] = PROGRAM_DIRECTORIES) -> str:
    """The path of the program ``name``, in PATH or ``directories``; empty when there is none."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *directories))
    return shutil.which(name, path=path) or ""


def opens(device: Path) -> bool:
    """Whether a device file is there and its driver, too."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True
