# SPDX-License-Identifier: Apache-2.0
"""What happens around every call: a request id, one line of log, errors turned into statuses.

One of the two places that may catch everything: what a servicer did not expect must not reach the caller.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import grpc
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from launcher.errors import LauncherError, Unavailable
from launcher.rpc.status import DETAILS_LIMIT, DOMAIN, LIMIT_KEY, encode

log = logging.getLogger(__name__)

REQUEST_ID_KEY = "x-request-id"
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the call that runs now, for log lines further down."""

_PREFIX = "/launcher.v1."
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LARGEST_LIMIT = 1024 * 1024
# Reads say nothing new about the node; they are logged at debug level.
_READS = ("Get", "List", "Watch")

Context = grpc.aio.ServicerContext[Any, Any]
Handler = grpc.RpcMethodHandler[Any, Any]


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
        self._peer, self._ident, self._limit = peer, ident, limit
        self._began = time.monotonic()

    def end(self, code: str, **fields: str) -> None:
        """Log the call once."""
        read = self._method.partition("/")[2].startswith(_READS)
        level = logging.DEBUG if code == "OK" and read else logging.INFO
        log.log(level, "%s %s", self._method, code, extra=self._fields(fields))

    def failed(self, error: Exception) -> Status:
        """Log the failure once, with a stack trace when nobody expected it, and give its status."""
        if not isinstance(error, LauncherError):
            log.error("%s failed", self._method, exc_info=error, extra=self._fields({}))
            return self._unexpected()
        if error.expected:
            self.end(error.code, error=str(error))
        else:
            log.error("%s %s", self._method, error.code, exc_info=error, extra=self._fields({}))
        return encode(error, request_id=self._ident, limit=self._limit)

    def _unexpected(self) -> Status:
        """Nothing of the exception leaves the node: nobody wrote its text for callers."""
        message = f"internal error; the log of launcherd has it under request id {self._ident}"
        status = Status(code=Code.INTERNAL, message=message)
        info = ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata={"requestId": self._ident})
        status.details.add().Pack(info)
        return status

    def _fields(self, more: Mapping[str, str]) -> dict[str, object]:
        took_ms = round((time.monotonic() - self._began) * 1000, 1)
        return {
            "rpc": self._method,
            "peer": self._peer,
            "request_id": self._ident,
            "took_ms": took_ms,
            **more,
        }


async def _begin(method: str, context: Context) -> _Call:
    """Take the caller's request id or make one, and tell it before anything else can fail."""
    sent = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    ident = sent.get(REQUEST_ID_KEY, "")
    if not _ACCEPTED_ID.fullmatch(ident):
        ident = uuid.uuid4().hex
    request_id.set(ident)
    await context.send_initial_metadata(((REQUEST_ID_KEY, ident),))
    limit = sent.get(LIMIT_KEY, "")
    wanted = int(limit) if limit.isascii() and limit.isdigit() else DETAILS_LIMIT
    return _Call(method, context.peer(), ident, min(wanted, _LARGEST_LIMIT))
