# SPDX-License-Identifier: Apache-2.0
"""What happens around every call: a request id, one line of log, errors turned into statuses.

One of the two places that may catch everything: what a servicer did not expect must not reach the caller.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from launcher.errors import LauncherError, Unavailable
from launcher.host.logging import Log, fields, get
from launcher.rpc.status import DETAILS_LIMIT, DOMAIN, LIMIT_KEY, encode

log = get(__name__)

REQUEST_ID_KEY = "x-request-id"
_PREFIX = "/launcher.v1."
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LARGEST_LIMIT = 1024 * 1024
# Reads say nothing new about the node; they are logged at debug level.
_READS = ("Get", "List", "Watch")

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of our services; health and reflection pass untouched."""

    def __init__(self) -> None:
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def end_streams(self) -> None:
        """End all open streams with UNAVAILABLE: the agent is stopping and a watch would never end."""
        self._stopping = True
        for task in tuple(self._streams):
            task.cancel()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wrap the handler according to its kind."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_PREFIX):
            return handler
        coding: dict[str, Any] = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.response_streaming:
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            return make(self._stream(method, inner), **coding)
        return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **coding)

    def _unary(self, method: str, inner: Any) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> Any:
            record = await _begin(method, context)
            try:
                with fields(request_id=record.ident):
                    response = await inner(request, context)
            except asyncio.CancelledError:
                record.end("CANCELLED")
                raise
            except Exception as error:  # noqa: BLE001 - the RPC boundary
                await context.abort_with_status(rpc_status.to_status(record.failed(error)))
            record.end("OK")
            return response

        return call

    def _stream(self, method: str, inner: Any) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            record = await _begin(method, context)
            task = asyncio.current_task()
            assert task is not None  # a coroutine of grpc.aio always runs in a task
            self._streams.add(task)
            try:
                if self._stopping:
                    raise Unavailable("launcherd is stopping", retry_after_s=2.0)
                async with aclosing(inner(request, context)) as responses:
                    async for response in responses:
                        yield response
            except GeneratorExit:  # gRPC was sending when the caller left
                record.end("CANCELLED")
                raise
            except asyncio.CancelledError:
                if not self._stopping:
                    record.end("CANCELLED")
                    raise
                gone = Unavailable("launcherd is stopping", retry_after_s=2.0)
                await context.abort_with_status(rpc_status.to_status(record.failed(gone)))
            except Exception as error:  # noqa: BLE001 - the RPC boundary
                await context.abort_with_status(rpc_status.to_status(record.failed(error)))
            finally:
                self._streams.discard(task)
            record.end("OK")

        return call


class _Call:
    """One call: what its log line and its status need."""

    def __init__(self, method: str, peer: str, ident: str, limit: int) -> None:
        self._method = method.removeprefix(_PREFIX)
        self.ident, self._limit = ident, limit
        self._log: Log = log.bind(rpc=self._method, peer=peer, request_id=ident)
        self._began = time.monotonic()

    def end(self, code: str, error: str = "") -> None:
        """Log the call once."""
        read = self._method.partition("/")[2].startswith(_READS)
        known = self._log.bind(error=error) if error else self._log
        write = known.debug if code == "OK" and read else known.info
        write("call ended", code=code, took_ms=self._took_ms())

    def failed(self, error: Exception) -> Status:
        """Log the failure once, with a stack trace when nobody expected it, and give its status."""
        if not isinstance(error, LauncherError):
            self._log.error("call failed unexpectedly", exc_info=error, took_ms=self._took_ms())
            return self._unexpected()
        if error.expected:
            self.end(error.code, str(error))
        else:
            self._log.error("call failed", exc_info=error, code=error.code, took_ms=self._took_ms())
        return encode(error, request_id=self.ident, limit=self._limit)

    def _unexpected(self) -> Status:
        """Nothing of the exception leaves the node: nobody wrote its text for callers."""
        message = f"internal error; the log of launcherd has it under request id {self.ident}"
        status = Status(code=Code.INTERNAL, message=message)
        info = ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata={"requestId": self.ident})
        status.details.add().Pack(info)
        return status

    def _took_ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 1)


async def _begin(method: str, context: Context) -> _Call:
    """Take the caller's request id or make one, and tell it before anything else can fail."""
    sent = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    ident = sent.get(REQUEST_ID_KEY, "")
    if not _ACCEPTED_ID.fullmatch(ident):
        ident = uuid.uuid4().hex
    await context.send_initial_metadata(((REQUEST_ID_KEY, ident),))
    limit = sent.get(LIMIT_KEY, "")
    wanted = int(limit) if limit.isascii() and limit.isdigit() else DETAILS_LIMIT
    return _Call(method, context.peer(), ident, min(wanted, _LARGEST_LIMIT))
