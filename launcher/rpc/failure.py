# SPDX-License-Identifier: Apache-2.0
"""A failed call -> the launcher.errors class it stands for. For clients of either kind, sync or asyncio."""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from launcher.errors import LauncherError
from launcher.rpc import status as rpc_status

_DETAILS_KEY = "grpc-status-details-bin"


def error_of(failure: grpc.RpcError, target: str) -> LauncherError:
    """The error that the server at ``target`` raised, or the class for what the transport reports."""
    code = (
        failure.code() if isinstance(failure, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    )
    text = failure.details() if isinstance(failure, grpc.Call | grpc.aio.AioRpcError) else str(failure)
    for key, value in _trailers(failure):
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return rpc_status.decode(Status.FromString(value))
            except DecodeError:
                break  # somebody else's idea of details: the code is still good
    if code == grpc.StatusCode.UNAVAILABLE:
        text = f"cannot reach launcherd at {target}: {text}"
    if code == grpc.StatusCode.CANCELLED:
        text = f"launcherd at {target} was ended before it answered"
    return rpc_status.by_code(code.name, text or code.name)


def _trailers(failure: grpc.RpcError) -> list[tuple[str, str | bytes]]:
    if not isinstance(failure, grpc.Call | grpc.aio.AioRpcError):
        return []
    return [(key, value) for key, value in failure.trailing_metadata() or ()]
