# SPDX-License-Identifier: Apache-2.0
"""Rules of liveness and readiness probes: one way to ask, at times that make sense."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import Probe
from launcher.spec.rules.checks import in_range, printable
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required
from launcher.spec.rules.ports import LARGEST_PORT, is_service_name

LONGEST_TEXT: Final = 2048
MOST_ARGUMENTS: Final = 1024

_HANDLERS: Final = (
    ("exec", "exec"),
    ("guest_agent_ping", "guestAgentPing"),
    ("http_get", "httpGet"),
    ("tcp_socket", "tcpSocket"),
)
_TIMES: Final = (
    ("failure_threshold", "failureThreshold", 1),
    ("initial_delay_seconds", "initialDelaySeconds", 0),
    ("period_seconds", "periodSeconds", 1),
    ("success_threshold", "successThreshold", 1),
    ("timeout_seconds", "timeoutSeconds", 1),
)
# The name of a header field (RFC 9110).
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")


def probes(ctx: Context) -> Iterator[Violation]:
    """A probe has one handler that can reach the guest, and positive periods and thresholds."""
    for path, probe in (
        ("spec.livenessProbe", ctx.spec.liveness_probe),
        ("spec.readinessProbe", ctx.spec.readiness_probe),
    ):
        if probe is not None:
            yield from _handlers(ctx, path, probe)
            for name, written, least in _TIMES:
                yield from in_range(f"{path}.{written}", getattr(probe, name), least)
    liveness = ctx.spec.liveness_probe
    if liveness is not None and (liveness.success_threshold or 0) > 1:
        field = "spec.livenessProbe.successThreshold"
        yield invalid(field, liveness.success_threshold, "a guest is alive after one success; accepted: 1")


def _handlers(ctx: Context, path: str, probe: Probe) -> Iterator[Violation]:
    given = [written for name, written in _HANDLERS if getattr(probe, name) is not None]
    if not given:
        yield required(path, f"needs one of {', '.join(written for _, written in _HANDLERS)}")
    elif len(given) > 1:
        yield invalid(f"{path}.{given[1]}", None, f"a probe has one handler, not {', '.join(given)}")
    if probe.exec is not None:
        command = probe.exec.command
        if not command or not command[0]:
            yield required(f"{path}.exec.command", "needs a command and its arguments")
        if len(command) > MOST_ARGUMENTS:
            yield invalid(
                f"{path}.exec.command", len(command), f"accepted are at most {MOST_ARGUMENTS} arguments"
            )
    networks = ctx.full.spec.networks
    for written, action in (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket)):
        if action is None:
            continue
        if all(network.pod is None for network in networks):
            yield invalid(f"{path}.{written}", None, "needs the pod network to reach the guest")
        yield from _port(f"{path}.{written}.port", action.port)
        yield from printable(f"{path}.{written}.host", action.host, LONGEST_TEXT)
    yield from _http(path, probe)


def _http(path: str, probe: Probe) -> Iterator[Violation]:
    if probe.http_get is None:
        return
    yield from printable(f"{path}.httpGet.path", probe.http_get.path, LONGEST_TEXT)
    for index, header in enumerate(probe.http_get.http_headers):
        field = f"{path}.httpGet.httpHeaders[{index}]"
        if _HEADER.fullmatch(header.name) is None:
            yield invalid(f"{field}.name", header.name, "not the name of an HTTP header, such as Accept")
        yield from printable(f"{field}.value", header.value, LONGEST_TEXT)


def _port(field: str, port: int | str) -> Iterator[Violation]:
    number = (
        int(port) if isinstance(port, str) and port.isascii() and port.isdigit() and len(port) < 10 else port
    )
    if isinstance(number, int):
        yield from in_range(field, number, 1, LARGEST_PORT)
    elif not is_service_name(number):
        yield invalid(field, port, f"accepted are 1 to {LARGEST_PORT} and names of ports")


RULES: tuple[Rule, ...] = (probes,)
