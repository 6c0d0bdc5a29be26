# SPDX-License-Identifier: Apache-2.0
"""Rules of volumes made of other objects: configMap, secret, downwardAPI, serviceAccount, sysprep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import DownwardAPIVolumeFile
from launcher.spec.rules.checks import dns_subdomain, in_range, unique
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required, unsupported

# Fields of an instance that a file can show, as for pods.
FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)
RESOURCES: Final = tuple(
    f"{group}.{name}" for group in ("limits", "requests") for name in ("cpu", "memory", "ephemeral-storage")
)

# Linux' NAME_MAX, in bytes.
LONGEST_NAME: Final = 255
# A volume identifier of ISO 9660 has 32 characters.
_LABEL: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_KEYED: Final = re.compile(r"(metadata\.(?:labels|annotations))\['[^']+'\]")


def objects(ctx: Context) -> Iterator[Violation]:
    """What a volume is made of is named, and a label fits into an ISO image."""
    for path, volume in ctx.volumes:
        if volume.config_map is not None:
            yield from dns_subdomain(
                f"{path}.configMap.name", volume.config_map.name, "the name of a config map"
            )
            yield from _label(f"{path}.configMap", volume.config_map.volume_label)
        if volume.secret is not None:
            yield from dns_subdomain(
                f"{path}.secret.secretName", volume.secret.secret_name, "the name of a secret"
            )
            yield from _label(f"{path}.secret", volume.secret.volume_label)
        if volume.service_account is not None:
            yield from dns_subdomain(
                f"{path}.serviceAccount.serviceAccountName",
                volume.service_account.service_account_name,
                "the name of a service account",
            )


def sysprep(ctx: Context) -> Iterator[Violation]:
    """An answer file comes from a secret or from a config map."""
    for path, volume in ctx.volumes:
        source = volume.sysprep
        if source is None:
            continue
        path += ".sysprep"
        if source.config_map is None and source.secret is None:
            yield required(path, "needs configMap or secret")
        if source.config_map is not None and source.secret is not None:
            yield invalid(f"{path}.secret", None, "configMap and secret exclude each other")
        if source.config_map is not None:
            yield from dns_subdomain(
                f"{path}.configMap.name", source.config_map.name, "the name of a config map"
            )
        if source.secret is not None:
            yield from dns_subdomain(f"{path}.secret.name", source.secret.name, "the name of a secret")


def downward_api(ctx: Context) -> Iterator[Violation]:
    """Each file has a relative path of its own and shows one field or one resource."""
    for path, volume in ctx.volumes:
        source = volume.downward_api
        if source is None:
            continue
        path += ".downwardAPI"
        yield from _label(path, source.volume_label)
        yield from unique((f"{path}.fields[{i}].path", item.path) for i, item in enumerate(source.fields))
        for number, item in enumerate(source.fields):
            yield from _file(f"{path}.fields[{number}]", item)
        yield from _one_tree(f"{path}.fields", [item.path for item in source.fields])


def _one_tree(path: str, names: list[str]) -> Iterator[Violation]:
    """No file is written twice, however it is spelt, nor is the folder of another."""
    parts = [tuple(part for part in name.split("/") if part not in ("", ".")) for name in names]
    for number, own in enumerate(parts):
        clash = next((i for i, other in enumerate(parts[:number]) if own[: len(other)] == other), None)
        if clash is None:
            clash = next((i for i, other in enumerate(parts[:number]) if other[: len(own)] == own), None)
        if clash is not None and own and parts[clash] and names[number] != names[clash]:
            yield invalid(
                f"{path}[{number}].path", names[number], f"there is a file {names[clash][:80]!r} already"
            )


def _file(path: str, item: DownwardAPIVolumeFile) -> Iterator[Violation]:
    if not item.path:
        yield required(f"{path}.path", "needs the relative path of a file")
    elif item.path.startswith("/") or not item.path.isprintable() or ".." in item.path.split("/"):
        yield invalid(f"{path}.path", item.path, "must be a relative path without '..'")
    elif not item.path.strip("./"):
        yield invalid(f"{path}.path", item.path, "must name a file")
    elif any(len(part.encode(errors="replace")) > LONGEST_NAME for part in item.path.split("/")):
        yield invalid(
            f"{path}.path", item.path, f"accepted are names of at most {LONGEST_NAME} bytes between '/'"
        )
    yield from in_range(f"{path}.mode", item.mode, 0, 0o777)
    field, resource = item.field_ref, item.resource_field_ref
    if (field is None) == (resource is None):
        yield required(path, "needs exactly one of fieldRef and resourceFieldRef")
    if field is not None:
        keyed = _KEYED.fullmatch(field.field_path)
        if field.field_path not in FIELD_PATHS and keyed is None:
            yield unsupported(f"{path}.fieldRef.fieldPath", field.field_path, FIELD_PATHS)
    if resource is not None:
        if resource.resource not in RESOURCES and ".hugepages-" not in resource.resource:
            yield unsupported(f"{path}.resourceFieldRef.resource", resource.resource, RESOURCES)
        if resource.divisor is not None and resource.divisor < 0:
            yield invalid(f"{path}.resourceFieldRef.divisor", resource.divisor, "must not be negative")


def _label(path: str, label: str | None) -> Iterator[Violation]:
    if label and _LABEL.fullmatch(label) is None:
        yield invalid(
            f"{path}.volumeLabel",
            label,
            "accepted are letters, digits, '_', '.' and '-', at most 32 characters",
        )


RULES: tuple[Rule, ...] = (objects, sysprep, downward_api)
