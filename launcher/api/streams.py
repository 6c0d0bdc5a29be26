# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""StreamService: bytes between a caller and a guest, at the pace of the slower one. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from launcher.agent.port import AgentPort, ByteStream
from launcher.api import convert
from launcher.errors import InvalidRequest, LauncherError, Violation
from launcher.v1 import streams_pb2 as pb
from launcher.v1.streams_pb2_grpc import StreamServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]
Response = TypeVar("Response", pb.PortForwardResponse, pb.VncResponse, pb.UsbRedirectResponse)

LAST_PORT = 65535


class Streams(StreamServiceServicer):
    """Connections to guests of this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def PortForward(
        self, request_iterator: AsyncIterator[pb.PortForwardRequest], context: Context
    ) -> AsyncIterator[pb.PortForwardResponse]:
        """A port of the guest."""
        first = await _opened(request_iterator, pb.PortForwardRequest())
        if not 1 <= first.open.port <= LAST_PORT:
            raise _invalid("open.port", str(first.open.port), f"accepted are 1 to {LAST_PORT}")
        stream = await self._agent.port_forward(*convert.key(first.open), first.open.port)
        async with aclosing(_relay(request_iterator, stream, pb.PortForwardResponse)) as responses:
            async for response in responses:
                yield response

    async def Vnc(
        self, request_iterator: AsyncIterator[pb.VncRequest], context: Context
    ) -> AsyncIterator[pb.VncResponse]:
        """The guest's screen."""
        first = await _opened(request_iterator, pb.VncRequest())
        stream = await self._agent.vnc(*convert.key(first.open))
        async with aclosing(_relay(request_iterator, stream, pb.VncResponse)) as responses:
            async for response in responses:
                yield response

    async def UsbRedirect(
        self, request_iterator: AsyncIterator[pb.UsbRedirectRequest], context: Context
    ) -> AsyncIterator[pb.UsbRedirectResponse]:
        """A slot for a USB device."""
        first = await _opened(request_iterator, pb.UsbRedirectRequest())
        stream = await self._agent.usb_redirect(*convert.key(first.open))
        async with aclosing(_relay(request_iterator, stream, pb.UsbRedirectResponse)) as responses:
            async for response in responses:
                yield response


Request = TypeVar("Request", pb.PortForwardRequest, pb.VncRequest, pb.UsbRedirectRequest)


async def _opened(requests: AsyncIterator[Request], nothing: Request) -> Request:
    """The first request."""
    first = await anext(requests, nothing)
    if first.WhichOneof("step") != "open":
        raise _invalid("open", "", "the first message of a stream must open it")
    return first


async def _relay(
    requests: AsyncIterator[Any], stream: ByteStream, response: type[Response]
) -> AsyncGenerator[Response, None]:
    """Until both sides have said all, one of them breaks the connection, or the caller leaves.

    gRPC's flow control does the rest: nothing is read from the guest before the caller took what was read
    before, and nothing from the caller before the guest did.
    """
    feeder = asyncio.create_task(_feed(requests, stream))
    try:
        yield response()
        while data := await stream.read():
            yield response(data=data)
        if not feeder.done():
            yield response(end=True)
        await feeder
    finally:
        feeder.cancel()
        await stream.close()
        await asyncio.gather(feeder, return_exceptions=True)


async def _feed(requests: AsyncIterator[Any], stream: ByteStream) -> None:
    """Pass the caller's bytes on. A failure closes the stream: the reading side ends and raises it."""
    try:
        async for request in requests:
            if request.WhichOneof("step") != "data":
                raise _invalid("open", "", "the stream is open already")
            await stream.write(request.data)
        await stream.end()
    except LauncherError:
        await stream.close()
        raise


def _invalid(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type="FieldValueInvalid", value=value, message=message)])
