# SPDX-License-Identifier: Apache-2.0
"""How one call of the client is made: deadline, metadata, errors."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

import grpc

from launcher.rpc.channel import METADATA
from launcher.rpc.failure import error_of

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)


class _Stream(Protocol[Reply_co]):
    def __iter__(self) -> Iterator[Reply_co]: ...
    def cancel(self) -> bool: ...


class _Call(Protocol[Reply_co]):
    def __call__(
        self, request: Any, /, *, timeout: float | None = None, metadata: Any = None
    ) -> Reply_co: ...


class Transport:
    """How one call is made: deadline, metadata, errors."""

    def __init__(self, target: str, timeout_s: float) -> None:
        self.target, self.timeout_s = target, timeout_s

    def call(self, method: _Call[Reply], request: object) -> Reply:
        try:
            return method(request, timeout=self.timeout_s, metadata=METADATA)
        except grpc.RpcError as failure:
            raise error_of(failure, self.target) from failure

    def stream(
        self, method: _Call[_Stream[Reply]], request: object, timeout_s: float | None = None
    ) -> Generator[Reply, None, None]:
        """Iterate over a stream, by default without deadline; closing the iterator cancels the call."""
        responses = method(request, timeout=timeout_s, metadata=METADATA)
        try:
            yield from responses
        except grpc.RpcError as failure:
            raise error_of(failure, self.target) from failure
        finally:
            responses.cancel()
