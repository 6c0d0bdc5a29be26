# SPDX-License-Identifier: Apache-2.0
"""Where storage lies on the node and how much strangers' images may cost. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launcher.host.run import Limits
from launcher.units import GIB, TIB

PROBE_LIMITS = Limits(address_space_bytes=GIB, cpu_s=10)
"""Of qemu-img when it reads a stranger's image: KubeVirt's 10 s, and a multiple of what a sane one needs."""
PROBE_TIMEOUT_S = 20.0
ROOM_BYTES = GIB
"""What else an image may hold beside the one file of ``max_image`` bytes: other files, and its metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """``state_dir`` holds the cache of images; ``run_dir`` what must not last, such as logins.

    ``cache_limit`` is what images may take in the cache (0: no limit), ``max_image`` the largest file that is
    taken out of a container image, ``max_virtual_size`` the largest disk that an image may describe; all in
    bytes. ``insecure_registries`` (``HOST[:PORT]``) are spoken to without TLS or with any certificate.
    """

    state_dir: Path
    run_dir: Path
    cache_limit: int = 0
    max_image: int = 128 * GIB
    max_virtual_size: int = 16 * TIB
    insecure_registries: tuple[str, ...] = ()

    @property
    def images(self) -> Path:
        """Files taken out of container images."""
        return self.state_dir / "cache" / "images"

    @property
    def access(self) -> Path:
        """Who may have which of them."""
        return self.state_dir / "cache" / "access"

    @property
    def pulls(self) -> Path:
        """What registries sent, until the files are taken out of it."""
        return self.state_dir / "cache" / "pulls"

    @property
    def logins(self) -> Path:
        """Credentials for the time of a pull."""
        return self.run_dir / "logins"
