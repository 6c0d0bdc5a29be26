# SPDX-License-Identifier: Apache-2.0
"""Liveness and readiness probes."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32, IntOrString


class ExecAction(Model, frozen=True, kw_only=True):
    """API type ``ExecAction``."""

    command: tuple[str, ...] = ()


class GuestAgentPing(Model, frozen=True, kw_only=True):
    """API type ``GuestAgentPing``."""


class HTTPHeader(Model, frozen=True, kw_only=True):
    """API type ``HTTPHeader``."""

    name: str
    value: str


class HTTPGetAction(Model, frozen=True, kw_only=True):
    """API type ``HTTPGetAction``."""

    port: IntOrString
    host: str | None = None
    http_headers: tuple[HTTPHeader, ...] = ()
    path: str | None = None
    scheme: Literal["HTTP", "HTTPS"] | None = None


class TCPSocketAction(Model, frozen=True, kw_only=True):
    """API type ``TCPSocketAction``."""

    port: IntOrString
    host: str | None = None


class Probe(Model, frozen=True, kw_only=True):
    """API type ``Probe``.

    Exactly one of exec, guest agent ping, HTTP and TCP. Times are in seconds, thresholds count results
    in a row.
    """

    exec: ExecAction | None = None
    failure_threshold: Int32 | None = None
    guest_agent_ping: GuestAgentPing | None = None
    http_get: HTTPGetAction | None = None
    initial_delay_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    tcp_socket: TCPSocketAction | None = None
    timeout_seconds: Int32 | None = None
