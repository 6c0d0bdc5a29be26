# SPDX-License-Identifier: Apache-2.0
"""Rules of ``devices.filesystems``: names that guests can mount, and volumes that are directories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.rules.checks import dns_label, unique
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.finding import invalid, not_found

FILESYSTEMS: Final = f"{DEVICES}.filesystems"
# The virtio specification gives the tag, by which a guest mounts, 36 bytes.
LONGEST_TAG: Final = 36
# The kinds of volume that are a directory on the node.
SOURCES: Final = (
    "persistent_volume_claim",
    "data_volume",
    "config_map",
    "secret",
    "downward_api",
    "service_account",
    "container_path",
)


def names(ctx: Context) -> Iterator[Violation]:
    """Filesystems have unique names, those of volumes, short enough for virtio."""
    yield from unique(
        (f"{FILESYSTEMS}[{i}].name", item.name) for i, item in enumerate(ctx.devices.filesystems)
    )
    for index, filesystem in enumerate(ctx.devices.filesystems):
        field = f"{FILESYSTEMS}[{index}].name"
        name = filesystem.name
        yield from dns_label(field, name)
        if len(name) > LONGEST_TAG:
            yield invalid(
                field, name, f"guests mount by this name; accepted are at most {LONGEST_TAG} characters"
            )
        volume = ctx.volume_named.get(name)
        if volume is None:
            yield not_found(field, name, "there is no volume of this name in spec.volumes")
        elif all(getattr(volume, source) is None for source in SOURCES):
            yield invalid(
                field,
                name,
                "the volume of this name cannot be shared; accepted: persistentVolumeClaim, dataVolume, "
                "configMap, secret, downwardAPI, serviceAccount, containerPath",
            )


def container_paths(ctx: Context) -> Iterator[Violation]:
    """A containerPath is of use to filesystems only."""
    used = {filesystem.name for filesystem in ctx.devices.filesystems}
    for path, volume in ctx.volumes:
        if volume.container_path is not None and volume.name not in used:
            yield not_found(
                f"{path}.containerPath",
                None,
                f"there is no entry named {volume.name[:63]!r} in spec.domain.devices.filesystems",
            )


RULES: tuple[Rule, ...] = (names, container_paths)
