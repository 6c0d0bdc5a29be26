# SPDX-License-Identifier: Apache-2.0
"""The client's calls of VolumeService: volumes of instances that run. Objects are plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from launcher.cli.transport import Transport
from launcher.rpc.struct import from_plain, to_plain
from launcher.v1 import types_pb2, volumes_pb2
from launcher.v1.volumes_pb2_grpc import VolumeServiceStub


class Volumes:
    """Calls of VolumeService. ``namespace`` empty: "default"."""

    def __init__(self, channel: grpc.Channel, transport: Transport) -> None:
        self._stub = VolumeServiceStub(channel)
        self._transport = transport

    def add(
        self,
        name: str,
        options: Mapping[str, Any],
        companions: types_pb2.Companions | None = None,
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Plug a volume into the instance ``name``; ``options`` are KubeVirt's AddVolumeOptions."""
        request = volumes_pb2.AddVolumeRequest(
            namespace=namespace,
            name=name,
            options=from_plain(dict(options)),
            companions=companions,
            dry_run=dry_run,
        )
        return to_plain(self._transport.call(self._stub.AddVolume, request).instance)

    def remove(self, name: str, volume: str, *, namespace: str = "", dry_run: bool = False) -> dict[str, Any]:
        """Unplug ``volume`` from the instance ``name``."""
        request = volumes_pb2.RemoveVolumeRequest(
            namespace=namespace, name=name, volume=volume, dry_run=dry_run
        )
        return to_plain(self._transport.call(self._stub.RemoveVolume, request).instance)
