# SPDX-License-Identifier: Apache-2.0
"""Commands of the QEMU guest agent: typed questions and answers over ``Hypervisor.agent_command``.

What a guest answers is bounded and never trusted: a wrong shape is an error like silence.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from launcher.errors import GuestAgentError
from launcher.hypervisor.port import Hypervisor

T = TypeVar("T")

POLLS: Final = 10
"""How often the end of a command is asked for within its time."""
MAX_OUTPUT: Final = 64 * 1024
MIN_TIMEOUT_S: Final = 1
MOST_INTERFACES: Final = 64
MOST_ADDRESSES: Final = 32
LONGEST_NAME: Final = 64
"""What is taken of the interfaces that a guest tells."""
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended in the guest: its exit code (negative: the signal) and what it printed."""

    exit_code: int
    output: str = ""


class _Command(msgspec.Struct, frozen=True):
    name: str
    enabled: bool = True


class _Info(msgspec.Struct, frozen=True):
    supported_commands: tuple[_Command, ...] = ()


class GuestInterface(msgspec.Struct, frozen=True, kw_only=True):
    """An interface as the guest sees it. ``mac`` is in lower case, empty where there is none."""

    name: str
    mac: str = ""
    addresses: tuple[str, ...] = ()


class _Address(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    ip_address: str = ""


class _Interface(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    name: str
    hardware_address: str = ""
    ip_addresses: tuple[_Address, ...] = ()


class _Started(msgspec.Struct, frozen=True):
    pid: int


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    exited: bool
    exitcode: int | None = None
    signal: int | None = None
    out_data: str = ""


class GuestAgent:
    """The agent in the domain ``uuid``. All calls raise GuestAgentError when it does not answer well."""

    def __init__(self, hypervisor: Hypervisor, uuid: str) -> None:
        self._hypervisor = hypervisor
        self._uuid = uuid

    async def ping(self, *, timeout_s: float) -> None:
        """See whether it answers."""
        await self._ask("guest-ping", None, timeout_s)

    async def interfaces(self, *, timeout_s: float) -> tuple[GuestInterface, ...]:
        """The guest's interfaces, as many as are taken; what is no address is left out."""
        answer = _read(
            await self._ask("guest-network-get-interfaces", None, timeout_s), tuple[_Interface, ...]
        )
        return tuple(
            GuestInterface(
                name=nic.name[:LONGEST_NAME],
                mac=mac if _MAC.fullmatch(mac := nic.hardware_address.lower()) else "",
                addresses=tuple(_addresses(nic.ip_addresses[:MOST_ADDRESSES])),
            )
            for nic in answer[:MOST_INTERFACES]
        )

    async def commands(self, *, timeout_s: float) -> frozenset[str]:
        """The commands that it knows and may carry out."""
        info = _read(await self._ask("guest-info", None, timeout_s), _Info)
        return frozenset(command.name for command in info.supported_commands if command.enabled)

    async def command(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> None:
        """Have it carry out a command that answers nothing."""
        await self._ask(name, arguments, timeout_s)

    async def execute(
        self, command: tuple[str, ...], *, timeout_s: float, stdin: bytes | None = None
    ) -> Executed:
        """Run a program in the guest and wait for its end.

        Raises:
            GuestAgentError: it cannot be started, or did not end in time; it goes on then.
        """
        arguments: dict[str, Any] = {"path": command[0], "arg": command[1:], "capture-output": True}
        if stdin is not None:
            arguments["input-data"] = base64.b64encode(stdin).decode()
        started = _read(await self._ask("guest-exec", arguments, timeout_s), _Started)
        for _ in range(POLLS):
            answer = await self._ask("guest-exec-status", {"pid": started.pid}, timeout_s)
            status = _read(answer, _Status)
            if status.exited:
                code = -(status.signal or 0) if status.exitcode is None else status.exitcode
                return Executed(exit_code=code, output=_text(status.out_data))
            await asyncio.sleep(timeout_s / POLLS)
        raise GuestAgentError(f"{command[0]} did not end within {timeout_s:g} s")

    async def frozen(self, *, timeout_s: float) -> bool:
        """Whether its file systems are frozen."""
        answer = await self._ask("guest-fsfreeze-status", None, timeout_s)
        if answer not in ("frozen", "thawed"):
            raise GuestAgentError("the guest agent says neither frozen nor thawed")
        return bool(answer == "frozen")

    async def freeze(self, *, timeout_s: float) -> None:
        """Freeze all its file systems. When this raises, they may be frozen all the same: thaw them."""
        await self._ask("guest-fsfreeze-freeze", None, timeout_s)

    async def thaw(self, *, timeout_s: float) -> None:
        """Thaw them; none that is frozen is a success."""
        await self._ask("guest-fsfreeze-thaw", None, timeout_s)

    async def _ask(self, name: str, arguments: dict[str, Any] | None, timeout_s: float) -> Any:
        command: dict[str, Any] = {"execute": name}
        if arguments is not None:
            command["arguments"] = arguments
        text = await self._hypervisor.agent_command(
            self._uuid,
            msgspec.json.encode(command).decode(),
            timeout_s=max(MIN_TIMEOUT_S, round(timeout_s)),
        )
        try:
            return msgspec.json.decode(text)["return"]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise GuestAgentError(f"the guest agent's answer to {name} cannot be read") from error


def _read(answer: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise GuestAgentError(f"the guest agent's answer cannot be read: {error}") from error


def _addresses(found: Iterable[_Address]) -> Iterator[str]:
    for one in found:
        try:
            yield str(ipaddress.ip_address(one.ip_address.partition("%")[0]))
        except ValueError:
            continue


def _text(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True)[:MAX_OUTPUT].decode(errors="replace")
    except ValueError as error:
        raise GuestAgentError("the guest agent's output is no base64") from error
