# SPDX-License-Identifier: Apache-2.0
"""One look at a guest, as a probe asks for it: agent, command, HTTP request or TCP connection.

A look never raises what a guest can cause; it passes, or fails with the reason. It is bounded in time and in
what it reads.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from launcher.errors import LauncherError
from launcher.guest.agent import GuestAgent
from launcher.spec.model import HTTPGetAction, Probe

LONGEST_STATUS_LINE: Final = 8 * 1024
DEFAULT_TIMEOUT_S: Final = 1
USER_AGENT: Final = "launcher-probe"


@dataclass(frozen=True, slots=True)
class Look:
    """Whether the guest passed and, if not, why."""

    passed: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How the guest is reached: its agent, its address (empty: unknown), its ports by name."""

    agent: GuestAgent
    address: str
    ports: Mapping[str, int]


async def look(probe: Probe, target: Target) -> Look:
    """Do what ``probe`` asks, once."""
    timeout_s = float(probe.timeout_seconds or DEFAULT_TIMEOUT_S)
    try:
        if probe.guest_agent_ping is not None:
            await target.agent.ping(timeout_s=timeout_s)
            return Look(True)
        if probe.exec is not None:
            ended = await target.agent.execute(probe.exec.command, timeout_s=timeout_s)
            return Look(ended.exit_code == 0, f"the command's exit code is {ended.exit_code}")
        async with asyncio.timeout(timeout_s):
            if probe.http_get is not None:
                return await _http(probe.http_get, target)
            if probe.tcp_socket is not None:
                return await _tcp(target, probe.tcp_socket.host, probe.tcp_socket.port)
    except TimeoutError:
        return Look(False, f"no answer within {timeout_s:g} s")
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        return Look(False, str(error) or type(error).__name__)
    except LauncherError as error:
        return Look(False, error.message)
    return Look(False, "the probe asks for nothing")


async def _tcp(target: Target, host: str | None, port: int | str) -> Look:
    where = _where(target, host, port)
    if isinstance(where, Look):
        return where
    _, writer = await asyncio.open_connection(*where)
    writer.transport.abort()
    return Look(True)


async def _http(action: HTTPGetAction, target: Target) -> Look:
    where = _where(target, action.host, action.port)
    if isinstance(where, Look):
        return where
    secure = _unverified() if action.scheme == "HTTPS" else None
    reader, writer = await asyncio.open_connection(*where, ssl=secure, limit=LONGEST_STATUS_LINE)
    try:
        writer.write(_request(action, where[0]))
        line = (await reader.readuntil(b"\n")).decode("ascii", "replace").strip()
    finally:
        writer.transport.abort()
    status = line.split(" ")[1:2]
    if not line.startswith("HTTP/") or not status or not status[0].isdigit():
        return Look(False, "what answers does not speak HTTP")
    return Look(200 <= int(status[0]) < 400, f"the status is {status[0]}")


def _request(action: HTTPGetAction, host: str) -> bytes:
    path = action.path or "/"
    headers = {"Host": f"[{host}]" if ":" in host else host, "User-Agent": USER_AGENT, "Accept": "*/*"}
    headers |= {header.name: header.value for header in action.http_headers}
    headers["Connection"] = "close"
    lines = [f"GET {path if path.startswith('/') else f'/{path}'} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8")


def _where(target: Target, host: str | None, port: int | str) -> tuple[str, int] | Look:
    address = host or target.address
    if not address:
        return Look(False, "no address of the guest is known")
    number = port if isinstance(port, int) else int(port) if port.isdigit() else target.ports.get(port)
    if number is None:
        return Look(False, f"no interface of the guest has a port called {port!r}")
    return address, number


def _unverified() -> ssl.SSLContext:
    """As Kubernetes' probes do it: whether the guest answers, not who it is."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True, slots=True)
class Tally:
    """What the looks so far amount to. Pure. ``good`` None: undecided; ``run`` looks in a row say otherwise,
    counted up for passes and down for failures."""

    good: bool | None = None
    run: int = 0

    def after(self, passed: bool, *, successes: int, failures: int) -> Tally:
        """The tally after one more look; so many successes or failures in a row change it."""
        if passed is self.good:
            return Tally(self.good)
        run = (
            self.run + 1 if self.run >= 0 and passed else self.run - 1 if self.run <= 0 and not passed else 0
        )
        run = run or (1 if passed else -1)
        needed = successes if passed else failures
        return Tally(passed) if abs(run) >= needed else Tally(self.good, run)
