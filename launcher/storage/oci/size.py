# SPDX-License-Identifier: Apache-2.0
"""What an image will take, by its manifest, before anything of it is pulled. Asks no registry."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.errors import StorageError
from launcher.storage.oci.layout import Descriptor, descriptor, for_this_machine, json_object
from launcher.units import human_bytes


def nested(manifest: bytes, name: str) -> Descriptor | None:
    """The image for this machine, when ``manifest`` is an index of several; raises StorageError."""
    found = json_object(manifest, name).get("manifests")
    if not isinstance(found, list):
        return None
    return descriptor(for_this_machine([entry for entry in found if isinstance(entry, dict)], name), name)


def image_bytes(manifest: bytes, name: str) -> int:
    """Bytes of the image's layers, packed; raises StorageError."""
    layers = json_object(manifest, name).get("layers")
    if not isinstance(layers, list) or not layers:
        raise StorageError("", f"{name} has no layers")
    return sum(max(0, layer.size) for layer in {descriptor(layer, name) for layer in layers})


def require_room(folder: Path, size: int, *, limit: int) -> None:
    """Check that an image of ``size`` bytes fits into ``folder``, beside what is there of it already.

    Raises:
        StorageError: it has more than ``limit`` bytes, or there is no room for it.
    """
    if size > limit:
        raise StorageError("", f"the image has {human_bytes(size)}; at most {human_bytes(limit)} are taken")
    system = os.statvfs(folder)
    present = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    left = system.f_bavail * system.f_frsize
    if size - present > left:
        raise StorageError(
            "",
            f"{folder} has {human_bytes(left)} left, and the image has {human_bytes(size)}",
            hint="give the cache of images more room",
        )
