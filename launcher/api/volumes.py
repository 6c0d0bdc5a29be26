# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""VolumeService: volumes of instances that run. Reads the options; decides nothing itself."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec

from launcher.agent.port import AddedVolume, AgentPort
from launcher.api import convert
from launcher.errors import InvalidRequest, Violation
from launcher.rpc.struct import to_plain
from launcher.spec.codec import dec_hook
from launcher.spec.model import Disk, Volume
from launcher.v1 import volumes_pb2 as pb
from launcher.v1.volumes_pb2_grpc import VolumeServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Volumes(VolumeServiceServicer):
    """Volumes on this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def AddVolume(self, request: pb.AddVolumeRequest, context: Context) -> pb.AddVolumeResponse:
        """Plug a volume."""
        options = added_volume(to_plain(request.options))
        beside = convert.companions(request.companions)
        vmi = await self._agent.volumes.add_volume(
            *convert.key(request), options, beside, dry_run=request.dry_run
        )
        return pb.AddVolumeResponse(instance=convert.struct(vmi))

    async def RemoveVolume(
        self, request: pb.RemoveVolumeRequest, context: Context
    ) -> pb.RemoveVolumeResponse:
        """Unplug a volume."""
        if not request.volume:
            raise _invalid("volume", "FieldValueRequired", "must name the volume")
        vmi = await self._agent.volumes.remove_volume(
            *convert.key(request), request.volume, dry_run=request.dry_run
        )
        return pb.RemoveVolumeResponse(instance=convert.struct(vmi))


def added_volume(options: dict[str, Any]) -> AddedVolume:
    """KubeVirt's AddVolumeOptions: name, volumeSource, disk.

    Raises:
        InvalidRequest: something is missing, unknown or of another type.
    """
    unknown = sorted(options.keys() - {"name", "volumeSource", "disk", "dryRun"})
    if unknown:
        raise _invalid(f"options.{unknown[0]}", "FieldUnknown", "accepted are name, volumeSource and disk")
    name, source, disk = options.get("name"), options.get("volumeSource"), options.get("disk")
    if not isinstance(name, str) or not name:
        raise _invalid("options.name", "FieldValueRequired", "must name the volume")
    if not isinstance(source, dict) or not source:
        raise _invalid("options.volumeSource", "FieldValueRequired", "must say what the volume is made of")
    volume = _read("options.volumeSource", {**source, "name": name}, Volume)
    if disk is None:
        return AddedVolume(volume=volume)
    if not isinstance(disk, dict):
        raise _invalid("options.disk", "FieldTypeInvalid", "must be an object")
    return AddedVolume(volume=volume, disk=_read("options.disk", {"name": name, **disk}, Disk))


def _read(field: str, value: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
    except (msgspec.ValidationError, ValueError) as error:
        raise _invalid(field, "FieldTypeInvalid", str(error)) from error


def _invalid(field: str, kind: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type=kind, message=message)])
