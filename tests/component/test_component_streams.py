# SPDX-License-Identifier: Apache-2.0
"""StreamService, and launcherctl's port-forward, ssh, vnc and usbredir, against the real API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from component_parts import VMI_YAML
from standin_agent import StandInAgent

from launcher.cli.client import Client
from launcher.v1 import instances_pb2, streams_pb2
from launcher.v1.instances_pb2_grpc import InstanceServiceStub
from launcher.v1.streams_pb2_grpc import StreamServiceStub

if TYPE_CHECKING:
    from launcher.v1.streams_pb2_grpc import StreamServiceAsyncStub

OPEN = streams_pb2.PortForwardRequest(open=streams_pb2.PortForwardOpen(name="demo", port=22))


@pytest.fixture
async def demo(channel: grpc.aio.Channel) -> StreamServiceAsyncStub:
    """The service on a server that has the instance ``demo``."""
    await InstanceServiceStub(channel).CreateInstance(instances_pb2.CreateInstanceRequest(text=VMI_YAML))
    return StreamServiceStub(channel)


async def test_both_ways_and_both_ends(demo: StreamServiceAsyncStub, agent: StandInAgent) -> None:
    async def requests() -> AsyncIterator[streams_pb2.PortForwardRequest]:
        yield OPEN
        yield streams_pb2.PortForwardRequest(data=b"hello")
        yield streams_pb2.PortForwardRequest(data=b"world")

    heard = [response async for response in demo.PortForward(requests())]
    assert [response.data for response in heard if not response.end] == [b"", b"hello", b"world"]
    assert agent.streams[0].ended
    assert agent.streams[0].closed


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([streams_pb2.PortForwardRequest(data=b"x")], grpc.StatusCode.INVALID_ARGUMENT),
        (
            [streams_pb2.PortForwardRequest(open=streams_pb2.PortForwardOpen(name="demo", port=65536))],
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            [streams_pb2.PortForwardRequest(open=streams_pb2.PortForwardOpen(name="demo", port=23))],
            grpc.StatusCode.UNAVAILABLE,
        ),
        (
            [streams_pb2.PortForwardRequest(open=streams_pb2.PortForwardOpen(name="no", port=22))],
            grpc.StatusCode.NOT_FOUND,
        ),
        ([OPEN, OPEN], grpc.StatusCode.INVALID_ARGUMENT),
        ([OPEN, streams_pb2.PortForwardRequest(data=b"break")], grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_refusals(
    demo: StreamServiceAsyncStub,
    agent: StandInAgent,
    steps: list[streams_pb2.PortForwardRequest],
    code: grpc.StatusCode,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in demo.PortForward(iter(steps)):
            pass
    assert caught.value.code() is code
    assert all(stream.closed for stream in agent.streams)


async def test_a_caller_that_leaves_ends_the_connection(
    demo: StreamServiceAsyncStub, agent: StandInAgent
) -> None:
    left = asyncio.Event()

    async def requests() -> AsyncIterator[streams_pb2.VncRequest]:
        yield streams_pb2.VncRequest(open=streams_pb2.VncOpen(name="demo"))
        await left.wait()

    call = demo.Vnc(requests())
    responses = aiter(call)
    assert (await anext(responses)).data == b""
    assert (await anext(responses)).data == b"RFB 003.008\n"
    call.cancel()
    async with asyncio.timeout(10):
        while not agent.streams[0].closed:
            await asyncio.sleep(0.01)


def launcherctl(address: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "launcher.cli.main", "--server", address, *arguments]


@pytest.fixture
def instance(address: str) -> str:
    """An agent with the instance ``demo``."""
    with Client(address) as client:
        client.instances.create(VMI_YAML)
    return address


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A command that listens, and the first line that it prints for each port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, [process.stdout.readline()]
        finally:
            process.kill()


def say_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def port_of(line: str) -> int:
    return int(line.partition(" -> ")[0].rpartition(":")[2])


def test_ports_forward_until_ctrl_c(instance: str, agent: StandInAgent) -> None:
    command = launcherctl(instance, "port-forward", "vmi/demo", ":22", "--address", "127.0.0.1")
    with serving(command) as (process, lines):
        assert lines[0].startswith("Forwarding from 127.0.0.1:")
        port = port_of(lines[0])
        sent = os.urandom(3_000_000)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as two:
                two.sendall(b"second")
                assert two.recv(100) == b"second"
            writer = threading.Thread(target=say_all, args=(one, sent))
            writer.start()
            heard = b"".join(iter(lambda: one.recv(65536), b""))
            writer.join()
        assert heard == sent
        with socket.create_connection(("127.0.0.1", port), timeout=30) as three:
            three.sendall(b"kept")
            assert three.recv(100) == b"kept"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert three.recv(100) == b""
    while not all(stream.closed for stream in agent.streams):
        threading.Event().wait(0.01)


def test_a_broken_connection_is_no_end_of_a_transfer(instance: str) -> None:
    command = launcherctl(instance, "port-forward", "demo", ":22", ":23", "--address", "127.0.0.1")
    with serving(command) as (process, lines):
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", port_of(lines[0])), timeout=30) as broken:
            broken.sendall(b"break")
            with pytest.raises(ConnectionResetError):
                broken.recv(100)
        second = port_of(process.stdout.readline())
        with (
            socket.create_connection(("127.0.0.1", second), timeout=30) as other,
            pytest.raises(ConnectionResetError),
        ):
            other.recv(100)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert "-> 22: the guest broke the connection\nhint: ask it why\n" in errors
    assert "-> 23: the guest refuses connections to port 23\n" in errors


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("demo", "0:22"), 2, "is no port"),
        (("demo", "udp/22"), 2, "only tcp"),
        (("vm/demo", "22"), 2, "names no instance"),
        (("nobody", ":22"), 3, "nobody"),
        (("demo", "22", "23", "--stdio"), 2, "--stdio"),
        (("demo", "23", "--stdio"), 5, "refuses"),
    ],
)
def test_refused_arguments(instance: str, arguments: tuple[str, ...], status: int, words: str) -> None:
    done = subprocess.run(
        launcherctl(instance, "port-forward", *arguments),
        input="",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr


def test_a_port_that_is_taken_is_named(instance: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            launcherctl(instance, "port-forward", "demo", f"{port}:22"),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, f"cannot listen on 127.0.0.1 port {port}" in done.stderr) == (4, True)


def test_one_connection_over_standard_input_and_output(instance: str, agent: StandInAgent) -> None:
    sent = os.urandom(1_000_000)
    done = subprocess.run(
        launcherctl(instance, "port-forward", "--stdio", "vmi/demo/default", "22"),
        input=sent,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout == sent, done.stderr) == (0, True, b"")
    assert agent.streams[-1].ended


# Says how it was called, and talks through the command that leads to the guest.
_SSH = """#!/bin/sh
for word in "$@"; do echo "<$word>"; done >&2
case $2 in ProxyCommand=*) printf 'SSH-2.0-test' | sh -c "${2#ProxyCommand=}" ;; esac
"""


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_ssh_is_led_to_the_guest(instance: str, fake_ssh: None) -> None:
    command = launcherctl(
        instance, "ssh", "joe@vmi/demo", "-i", "/my key", "-t", "-oBatchMode=yes", "--", "uname", "-a"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "SSH-2.0-test")
    words = done.stderr.splitlines()
    assert words[0] == "<-o>"
    assert words[2:] == [
        *("<-l>", "<joe>", "<-i>", "</my key>", "<-oBatchMode=yes>", "<vmi.demo.default>", "<uname>", "<-a>")
    ]


def test_a_screen_on_a_local_port(instance: str) -> None:
    with (
        serving(launcherctl(instance, "vnc", "vmi/demo", "--proxy-only")) as (_, lines),
        socket.create_connection(("127.0.0.1", json.loads(lines[0])["port"]), timeout=30) as screen,
    ):
        assert screen.recv(12) == b"RFB 003.008\n"


def test_programs_that_are_missing_are_named(
    instance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for arguments, words in (
        (("ssh", "demo"), "no ssh client"),
        (("vnc", "demo"), "remote-viewer"),
        (("usbredir", "1234:abcd", "demo"), "usbredirect"),
    ):
        done = subprocess.run(launcherctl(instance, *arguments), capture_output=True, text=True, timeout=60)
        assert (done.returncode, words in done.stderr) == (4, True), done.stderr


def test_a_usb_device_is_lent_by_usbredirect(
    instance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: StandInAgent
) -> None:
    program = tmp_path / "usbredirect"
    program.write_text(
        f"#!{sys.executable}\n"
        "import socket, sys\n"
        "assert sys.argv[1:3] == ['--device', '1234:abcd']\n"
        "host, port = sys.argv[4].split(':')\n"
        "with socket.create_connection((host, int(port)), timeout=30) as slot:\n"
        "    slot.sendall(b'hello')\n"
        "    print(slot.recv(5).decode(), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(
        launcherctl(instance, "usbredir", "1234:abcd", "vmi/demo"), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
