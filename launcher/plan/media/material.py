# SPDX-License-Identifier: Apache-2.0
"""What content is made from, and what it is made into. Records only; their values never reach a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.errors import InvalidRequest, Violation
from launcher.plan.devices.model import DevicesPlan
from launcher.spec.model import VirtualMachineInstance

Keyed = Mapping[str, bytes]
"""The data of a Secret or ConfigMap."""
_NONE: Keyed = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFile:
    """A file of a volume; ``path`` is relative, with ``/`` between folders. ``mode`` are permission bits."""

    path: str
    data: bytes = field(repr=False)
    mode: int = 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """An instance with all that came beside it.

    ``vmi`` is defaulted and has its names and uid; ``uuid`` is the domain's. ``devices`` are what this node
    planned: the config drive tells their addresses. ``service_accounts`` are token directories by name.
    """

    vmi: VirtualMachineInstance = field(repr=False)
    uuid: str
    devices: DevicesPlan = field(default=DevicesPlan(), repr=False)
    secrets: Mapping[str, Keyed] = field(default_factory=dict, repr=False)
    config_maps: Mapping[str, Keyed] = field(default_factory=dict, repr=False)
    service_accounts: Mapping[str, Keyed] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return (self.vmi.metadata.name if self.vmi.metadata else None) or ""

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return (self.vmi.metadata.namespace if self.vmi.metadata else None) or "default"

    def secret(self, name: str, *, field: str, optional: bool = False) -> Keyed:
        """The data of a Secret, nothing when it is missing and ``optional``.

        Raises:
            InvalidRequest: it did not come with the instance; ``field`` is who wants it.
        """
        return _found(self.secrets, "Secret", "secrets", name, field, optional=optional)

    def config_map(self, name: str, *, field: str, optional: bool = False) -> Keyed:
        """The data of a ConfigMap; as ``secret``."""
        return _found(self.config_maps, "ConfigMap", "configMaps", name, field, optional=optional)

    def service_account(self, name: str, *, field: str) -> Keyed:
        """The files of a service account; as ``secret``."""
        return _found(
            self.service_accounts, "service account", "serviceAccounts", name, field, optional=False
        )


def missing(place: str, message: str) -> InvalidRequest:
    """Something that a volume needs and that was not handed in with the instance."""
    return InvalidRequest(
        [Violation(field=place, type="FieldValueNotFound", message=message)],
        hint="hand it in when creating the instance",
    )


def _found(
    there: Mapping[str, Keyed], kind: str, section: str, name: str, wanted_by: str, *, optional: bool
) -> Keyed:
    data = there.get(name)
    if data is not None:
        return data
    if optional:
        return _NONE
    raise missing(f"companions.{section}[{name}]", f"{wanted_by} needs the {kind} {name!r}")
