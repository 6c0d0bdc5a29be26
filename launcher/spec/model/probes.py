# SPDX-License-Identifier: Apache-2.0
"""Liveness and readiness probes."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32, IntOrString


class ExecAction(Model, frozen=True, kw_only=True):
    """API type ``ExecAction``.

    A command.

    command: program and arguments
    """

    command: tuple[str, ...] = ()


class GuestAgentPing(Model, frozen=True, kw_only=True):
    """API type ``GuestAgentPing``."""


class HTTPHeader(Model, frozen=True, kw_only=True):
    """API type ``HTTPHeader``.

    A header.

    name: name of the header
    value: value of the header
    """

    name: str
    value: str


class HTTPGetAction(Model, frozen=True, kw_only=True):
    """API type ``HTTPGetAction``.

    An HTTP request; 200 to 399 are successes.

    port: port, by number
    host: address; absent, the guest's
    http_headers: headers of the request
    path: path of the request
    scheme: HTTP or HTTPS
    """

    port: IntOrString
    host: str | None = None
    http_headers: tuple[HTTPHeader, ...] = ()
    path: str | None = None
    scheme: Literal["HTTP", "HTTPS"] | None = None


class TCPSocketAction(Model, frozen=True, kw_only=True):
    """API type ``TCPSocketAction``.

    A TCP connection.

    port: port, by number
    host: address; absent, the guest's
    """

    port: IntOrString
    host: str | None = None


class Probe(Model, frozen=True, kw_only=True):
    """API type ``Probe``.

    A repeated check: exactly one of exec, guestAgentPing, httpGet and tcpSocket.

    exec: a command run in the guest by its agent
    failure_threshold: failures in a row that count
    guest_agent_ping: a ping of the guest agent
    http_get: an HTTP request
    initial_delay_seconds: seconds from the start to the first check
    period_seconds: seconds between checks
    success_threshold: successes in a row that count
    tcp_socket: a TCP connection
    timeout_seconds: seconds to wait for an answer
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
