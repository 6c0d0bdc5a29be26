# SPDX-License-Identifier: Apache-2.0
"""A Debian with the real cloud-init, built by debootstrap once and kept in the playground's cache of images.

For tests marked slow only: building takes minutes and hundreds of megabytes of packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from launcher.lab import capabilities_cache, command, oci
from launcher.lab.image import INITRD_PATH, KERNEL_PATH, Image
from launcher.lab.oci import LayerFile

MEMORY = "512Mi"
ROOT_DEVICE = "/dev/vda"
_BUILD_TIMEOUT_S = 3000.0
_DISK_SIZE = "1500M"
_PACKAGES = "systemd-sysv udev kmod iproute2 dbus cloud-init initramfs-tools zstd linux-image-cloud-amd64"
# Debian's own configuration stays as it is; this only spares an emulated guest what no test looks at.
_CLOUD_CONFIG = """\
datasource_list: [NoCloud, ConfigDrive, None]
ssh_genkeytypes: [ed25519]
apt_preserve_sources_list: true
"""
_SETUP = f"""\
set -eu
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get install -q -y --no-install-recommends {_PACKAGES}
apt-get clean
rm -rf /var/lib/apt/lists/*
systemctl enable systemd-networkd
systemctl disable systemd-networkd-wait-online
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
: >/etc/fstab
: >/etc/machine-id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianGuest:
    """``boot`` holds kernel and initial root for ``kernelBoot``; ``disk`` is a raw root file system."""

    boot: Image
    disk: Path


def debian_guest() -> DebianGuest:
    """The guest, built when it is not in the cache.

    Raises:
        HostUnsupported, CommandFailed, TimedOut: debootstrap or the packages cannot be had.
    """
    images = capabilities_cache.default_folder() / "images"
    images.mkdir(parents=True, exist_ok=True)
    suite = _suite()
    recipe = "\n".join((suite, _PACKAGES, _CLOUD_CONFIG, _SETUP, _DISK_SIZE))
    finished = images / f"debian-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    with (images / ".debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            scratch = Path(tempfile.mkdtemp(dir=images, prefix=".new-"))
            try:
                _build(suite, scratch)
                for old in images.glob("debian-*"):
                    shutil.rmtree(old)
                (scratch / "guest").rename(finished)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return DebianGuest(boot=Image(folder=finished / "boot"), disk=finished / "root.img")


def _build(suite: str, scratch: Path) -> None:
    root, guest = scratch / "root", scratch / "guest"
    (guest / "boot").mkdir(parents=True)
    command.run(["debootstrap", "--variant=minbase", suite, root], timeout_s=_BUILD_TIMEOUT_S)
    (root / "etc" / "cloud" / "cloud.cfg.d").mkdir(parents=True)
    (root / "etc" / "cloud" / "cloud.cfg.d" / "90-tests.cfg").write_text(_CLOUD_CONFIG)
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    # Mounts in a namespace of their own: nothing is left of them, however this ends.
    inside = f"mount -t proc proc {root}/proc && exec chroot {root} /bin/sh -c '{_quoted(_SETUP)}'"
    command.run(["unshare", "--mount", "/bin/sh", "-c", inside], timeout_s=_BUILD_TIMEOUT_S)
    kernel = max((root / "boot").glob("vmlinuz-*"))
    initrd = max((root / "boot").glob("initrd.img-*"))
    files = [
        LayerFile(path=KERNEL_PATH, data=kernel.read_bytes()),
        LayerFile(path=INITRD_PATH, data=initrd.read_bytes()),
    ]
    oci.write_layout(guest / "boot", files)
    disk = guest / "root.img"
    command.run(["mke2fs", "-q", "-t", "ext4", "-d", root, disk, _DISK_SIZE], timeout_s=_BUILD_TIMEOUT_S)
    os.chmod(disk, 0o444)  # noqa: PTH101 - guests write to overlays


def _quoted(script: str) -> str:
    return script.replace("'", "'\\''")


def _suite() -> str:
    """The release of this machine: its keys are here."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise AssertionError("/etc/os-release names no release")
