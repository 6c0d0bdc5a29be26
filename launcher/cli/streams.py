# SPDX-License-Identifier: Apache-2.0
"""The client's side of StreamService: connections to guests as iterators of bytes. Raises launcher.errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from launcher.rpc.channel import METADATA
from launcher.rpc.failure import error_of
from launcher.v1 import streams_pb2 as pb
from launcher.v1.streams_pb2_grpc import StreamServiceStub


class Stream:
    """An open connection: iterate over what the guest sends; None: it sends no more, and still may read.

    The first item is empty: the connection is open. The iteration ends when both sides have said all.
    """

    def __init__(self, responses: Any, target: str) -> None:
        self._responses, self._target = responses, target

    def __iter__(self) -> Iterator[bytes | None]:
        try:
            for response in self._responses:
                yield None if response.end else response.data
        except grpc.RpcError as failure:
            if failure.code() != grpc.StatusCode.CANCELLED:
                raise error_of(failure, self._target) from failure

    def close(self) -> None:
        """End the connection; an iteration under way ends, too."""
        self._responses.cancel()


class Streams:
    """Calls of StreamService. ``outgoing`` is consumed in a thread of gRPC's, at the guest's pace; its end is
    told to the guest. ``namespace`` empty: "default"."""

    def __init__(self, channel: grpc.Channel, target: str) -> None:
        self._stub = StreamServiceStub(channel)
        self._target = target

    def port_forward(self, name: str, port: int, outgoing: Iterable[bytes], *, namespace: str = "") -> Stream:
        """A TCP connection to a port of the guest."""

        def requests() -> Iterator[pb.PortForwardRequest]:
            yield pb.PortForwardRequest(open=pb.PortForwardOpen(namespace=namespace, name=name, port=port))
            for data in outgoing:
                yield pb.PortForwardRequest(data=data)

        return self._stream(self._stub.PortForward, requests())

    def vnc(self, name: str, outgoing: Iterable[bytes], *, namespace: str = "") -> Stream:
        """The guest's screen."""

        def requests() -> Iterator[pb.VncRequest]:
            yield pb.VncRequest(open=pb.VncOpen(namespace=namespace, name=name))
            for data in outgoing:
                yield pb.VncRequest(data=data)

        return self._stream(self._stub.Vnc, requests())

    def usb_redirect(self, name: str, outgoing: Iterable[bytes], *, namespace: str = "") -> Stream:
        """A slot for a USB device."""

        def requests() -> Iterator[pb.UsbRedirectRequest]:
            yield pb.UsbRedirectRequest(open=pb.UsbRedirectOpen(namespace=namespace, name=name))
            for data in outgoing:
                yield pb.UsbRedirectRequest(data=data)

        return self._stream(self._stub.UsbRedirect, requests())

    def _stream(self, method: Any, requests: Iterator[Any]) -> Stream:
        return Stream(method(requests, metadata=METADATA), self._target)
