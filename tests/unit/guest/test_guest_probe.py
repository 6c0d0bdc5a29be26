# SPDX-License-Identifier: Apache-2.0
"""Looks at a guest that answers, answers wrongly, or does not answer at all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import GuestAgentError
from launcher.guest.agent import GuestAgent, GuestInterface
from launcher.guest.probe import Look, Tally, Target, look
from launcher.hypervisor.port import Hypervisor
from launcher.spec.model import (
    ExecAction,
    GuestAgentPing,
    HTTPGetAction,
    HTTPHeader,
    Probe,
    TCPSocketAction,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answers:
    """libvirt's side of a guest agent that says what it is told to."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, object]] = []

    async def agent_command(self, uuid: str, command: str, *, timeout_s: int) -> str:
        self.asked.append(json.loads(command))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else json.dumps({"return": answer})


def target(answers: Answers | None = None, *, address: str = "127.0.0.1", **ports: int) -> Target:
    hypervisor = cast("Hypervisor", answers or Answers({}))
    return Target(agent=GuestAgent(hypervisor, "uuid"), address=address, ports=ports)


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A port on which ``serve`` talks; nothing of it is left at the end."""
    served: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


def answering(text: bytes, seen: list[bytes] | None = None) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(request)
        writer.write(text)

    return serve


async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


# --- the network ------------------------------------------------------------------------------------------


async def test_a_port_that_is_open_and_one_that_is_not() -> None:
    async with server(answering(b"")) as port:
        assert await look(Probe(tcp_socket=TCPSocketAction(port=port)), target()) == Look(True)
        assert await look(Probe(tcp_socket=TCPSocketAction(port=str(port))), target()) == Look(True)
        named = Probe(tcp_socket=TCPSocketAction(port="web"))
        assert await look(named, target(web=port)) == Look(True)
        assert "'web'" in (await look(named, target())).why
    closed = await look(Probe(tcp_socket=TCPSocketAction(port=port)), target())
    assert not closed.passed
    assert "refused" in closed.why.lower() or "Connect" in closed.why
    unknown = await look(Probe(tcp_socket=TCPSocketAction(port=port)), target(address=""))
    assert unknown == Look(False, "no address of the guest is known")


@pytest.mark.parametrize(
    ("answer", "passed", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True, "200"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", True, "302"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", False, "404"),
        (b"HTTP/1.1 503\r\n\r\n", False, "503"),
        (b"SSH-2.0-OpenSSH\r\n", False, "does not speak HTTP"),
        (b"HTTP/1.1 \xff\xff\r\n", False, "does not speak HTTP"),
        (b"", False, ""),
        (b"A" * 100_000, False, ""),
    ],
)
async def test_what_answers_an_http_request(answer: bytes, passed: bool, why: str) -> None:
    async with server(answering(answer)) as port:
        seen = await look(Probe(http_get=HTTPGetAction(port=port)), target())
    assert seen.passed is passed
    assert why in seen.why


async def test_a_request_is_made_of_what_was_asked_for() -> None:
    seen: list[bytes] = []
    action_headers = (HTTPHeader(name="Host", value="web.example"), HTTPHeader(name="X-A", value="1"))
    async with server(answering(b"HTTP/1.1 204 No Content\r\n\r\n", seen)) as port:
        action = HTTPGetAction(port=port, path="healthz?full=1", http_headers=action_headers)
        assert (await look(Probe(http_get=action), target())).passed
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "GET /healthz?full=1 HTTP/1.1"
    assert {"Host: web.example", "X-A: 1", "Connection: close"} <= set(lines)


async def test_a_server_that_says_nothing_fails_in_time() -> None:
    async with server(silent) as port:
        probe = Probe(http_get=HTTPGetAction(port=port), timeout_seconds=1)
        async with asyncio.timeout(10):
            assert await look(probe, target()) == Look(False, "no answer within 1 s")


# --- the agent --------------------------------------------------------------------------------------------


async def test_a_ping() -> None:
    ping = Probe(guest_agent_ping=GuestAgentPing())
    answers = Answers({})
    assert await look(ping, target(answers)) == Look(True)
    assert answers.asked == [{"execute": "guest-ping"}]
    silence = Answers(GuestAgentError("ask the guest agent: it does not answer"))
    assert await look(ping, target(silence)) == Look(False, "ask the guest agent: it does not answer")


async def test_a_command_ends() -> None:
    running, output = {"exited": False}, base64.b64encode(b"fine").decode()
    answers = Answers({"pid": 7}, running, {"exited": True, "exitcode": 0, "out-data": output})
    probe = Probe(exec=ExecAction(command=("/bin/check", 'a"b', "$(c)")))
    assert (await look(probe, target(answers))).passed
    assert answers.asked[0] == {
        "execute": "guest-exec",
        "arguments": {"path": "/bin/check", "arg": ['a"b', "$(c)"], "capture-output": True},
    }
    assert [asked["execute"] for asked in answers.asked[1:]] == ["guest-exec-status"] * 2


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"exited": True, "exitcode": 3}, "exit code is 3"),
        ({"exited": True, "signal": 9}, "exit code is -9"),
        ({"exited": False}, "did not end within 1 s"),
        ({"exited": "yes"}, "cannot be read"),
        ({"exited": True, "exitcode": 0, "out-data": "no base64!"}, "no base64"),
        ("this is no JSON", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
async def test_a_command_that_fails_or_whose_end_makes_no_sense(status: object, why: str) -> None:
    seen = await look(Probe(exec=ExecAction(command=("x",))), target(Answers({"pid": 7}, status)))
    assert not seen.passed
    assert why in seen.why


# --- the tally --------------------------------------------------------------------------------------------


def tally(looks: str, *, successes: int = 1, failures: int = 3, start: bool | None = None) -> bool | None:
    found = Tally(start)
    for mark in looks:
        found = found.after(mark == "+", successes=successes, failures=failures)
    return found.good


@pytest.mark.parametrize(
    ("looks", "good"),
    [
        ("", None),
        ("+", True),
        ("--", None),
        ("---", False),
        ("+--", True),
        ("+---", False),
        ("+--+--", True),
        ("---+", True),
        ("--+--", True),
    ],
)
def test_three_failures_or_one_success_decide(looks: str, good: bool | None) -> None:
    assert tally(looks) is good


@pytest.mark.parametrize(("looks", "good"), [("++", None), ("+-++", None), ("+++", True), ("+++-+", True)])
def test_successes_in_a_row(looks: str, good: bool | None) -> None:
    assert tally(looks, successes=3, failures=2) is good


@given(st.text("+-", max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_the_tally_is_what_the_last_long_run_says(looks: str, successes: int, failures: int) -> None:
    expected = None
    for end in range(1, len(looks) + 1):
        if looks[:end].endswith("+" * successes):
            expected = True
        elif looks[:end].endswith("-" * failures):
            expected = False
    assert tally(looks, successes=successes, failures=failures) is expected


async def test_interfaces_are_taken_as_far_as_they_make_sense() -> None:
    told = [
        {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8}]},
        {
            "name": "eth0",
            "hardware-address": "02:00:00:00:00:0A",
            "ip-addresses": [
                {"ip-address": "fe80::1%eth0"},
                {"ip-address": "x"},
                {"ip-address": "192.0.2.1"},
            ],
            "statistics": {"rx-bytes": 1},
        },
        {"name": "n" * 100, "hardware-address": "nonsense"},
    ]
    answers = Answers(told)
    found = await target(answers).agent.interfaces(timeout_s=1)
    assert answers.asked == [{"execute": "guest-network-get-interfaces"}]
    assert found == (
        GuestInterface(name="lo", addresses=("127.0.0.1",)),
        GuestInterface(name="eth0", mac="02:00:00:00:00:0a", addresses=("fe80::1", "192.0.2.1")),
        GuestInterface(name="n" * 64),
    )
    many = [{"name": str(n), "ip-addresses": [{"ip-address": "192.0.2.1"}] * 100} for n in range(100)]
    bounded = await target(Answers(many)).agent.interfaces(timeout_s=1)
    assert (len(bounded), len(bounded[0].addresses)) == (64, 32)
    with pytest.raises(GuestAgentError, match="cannot be read"):
        await target(Answers({"name": "eth0"})).agent.interfaces(timeout_s=1)
