# SPDX-License-Identifier: Apache-2.0
"""Builds another Debian release with its libvirt and QEMU, for nodes of another generation than this machine.

The folder is kept in the cache and never written to again: each node lays a file system of its own over it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from launcher.errors import HostUnsupported, InvalidRequest, Violation
from launcher.lab import capabilities_cache, command

BOOTSTRAP_TIMEOUT_S = 1800.0
"""Some 300 MB are fetched and unpacked: four minutes on a slow machine and a near mirror."""
PACKAGES = (
    "qemu-system-x86",
    "qemu-utils",
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "libvirt-daemon-system",
    "libvirt-clients",
    "ovmf",
    "swtpm",
    "swtpm-tools",
    "iproute2",
)
"""What libvirtd needs to run guests. The agent beside it runs from the machine's own files."""
_RELEASE = re.compile(r"[a-z]{3,20}")


def debian(release: str, cache: Path | None = None) -> Path:
    """The root folder of the Debian release with this code name, built when it is not in the cache.

    The mirror is the one that apt uses here, or ``$LAUNCHER_LAB_MIRROR``.

    Raises:
        InvalidRequest: that is no code name.
        HostUnsupported: no debootstrap(8), or apt knows no mirror.
        CommandFailed, TimedOut: a step of the building failed; its last words are told.
    """
    if not _RELEASE.fullmatch(release):
        message = "the code name of a Debian release, such as trixie"
        raise InvalidRequest(
            [Violation(field="release", type="FieldValueInvalid", value=release, message=message)]
        )
    systems = (cache or capabilities_cache.default_folder()) / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    finished = systems / release
    with (systems / f".{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            half = systems / f".new-{release}"  # of a builder that was killed, if it is there
            shutil.rmtree(half, ignore_errors=True)
            _build(release, half)
            half.rename(finished)
    return finished


def _build(release: str, root: Path) -> None:
    first: list[str | Path] = ["debootstrap", "--variant=minbase", release, root, _mirror()]
    command.run(first, timeout_s=BOOTSTRAP_TIMEOUT_S)
    policy = root / "usr/sbin/policy-rc.d"  # no package may start a service
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    words = " ".join(PACKAGES)
    steps = (
        f"DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends {words}",
        "apt-get clean",
        "rm -rf /var/lib/apt/lists/*",
    )
    command.run(["chroot", root, "sh", "-ec", "\n".join(steps)], timeout_s=BOOTSTRAP_TIMEOUT_S)


def _mirror() -> str:
    configured = os.environ.get("LAUNCHER_LAB_MIRROR")
    if configured:
        return configured
    wanted = ["--format", "$(REPO_URI)", "Created-By: Packages", "Component: main", "Label: Debian"]
    found = command.run(["apt-get", "indextargets", *wanted]).decode().split()
    if not found:
        reason = "apt's sources name none"
        raise HostUnsupported("a Debian mirror", reason, hint="set LAUNCHER_LAB_MIRROR to the address of one")
    return found[0]
