# SPDX-License-Identifier: Apache-2.0
"""What a target has not got is told before anything moves; what it loses later does not matter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from migration_matrix import FIRST_PORT, LAST_PORT, Subject, cause
from migration_rows import World

from launcher.lab.node import Node
from launcher.lab.pki import qemu_folder

pytestmark = [pytest.mark.node, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(needs_nodes: None) -> Iterator[World]:
    with World() as made:
        yield made


@pytest.fixture
def subject(world: World, request: pytest.FixtureRequest) -> Iterator[Subject]:
    with world.row(request.node) as made:
        yield made


LISTENERS = """
import socket, time
held = [socket.create_server(("{ip}", port)) for port in range({first}, {last} + 1)]
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def taken(node: Node, first: int, last: int) -> Iterator[None]:
    """Somebody else listens on these ports."""
    code = LISTENERS.format(ip=node.ip, first=first, last=last)
    words = [*node.namespaces.prefix(), sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            node.run("pkill", "-f", "socket.create_server")


@contextmanager
def ended_certificate(subject: Subject, node: Node) -> Iterator[None]:
    """QEMU's certificate on the node is one that ended yesterday."""
    pki = node.layout.root.parent / "pki"
    own = qemu_folder(pki, node.name)
    server, key = own / "server-cert.pem", own / "server-key.pem"
    good = server.read_bytes()
    request = command_run("openssl", "req", "-new", "-key", str(key), "-subj", f"/CN={node.name}")
    old = command_run(
        "openssl",
        "x509",
        "-req",
        "-CA",
        f"{pki}/ca.crt",
        "-CAkey",
        f"{pki}/ca.key",
        "-days",
        "-1",
        given=request,
    )
    server.write_bytes(old)
    try:
        yield
    finally:
        server.write_bytes(good)


def command_run(*words: str, given: bytes = b"") -> bytes:
    return subprocess.run(words, input=given, check=True, capture_output=True).stdout


def test_ports_that_are_taken_are_passed_over_or_told(subject: Subject) -> None:
    with taken(subject.target, FIRST_PORT, LAST_PORT):
        name = subject.begin()
        end = subject.settled(name)
        assert cause(end) == "refused"
        assert "port" in end.report.reason
    with taken(subject.target, FIRST_PORT, FIRST_PORT + 2):
        name = subject.begin()
        subject.target.rate(None)
        assert subject.settled(name).report.succeeded


def test_a_certificate_that_ended_is_told_before_and_does_not_matter_during(subject: Subject) -> None:
    with ended_certificate(subject, subject.target):
        end = subject.settled(subject.begin())
        assert cause(end) == "refused"
        assert "certificate has expired" in end.report.reason
    name = subject.begin()
    subject.until_data(name)
    with ended_certificate(subject, subject.target):
        subject.target.rate(None)
        assert subject.settled(name).report.succeeded


def test_huge_pages_that_are_gone_are_told_before(subject: Subject) -> None:
    pages = 80
    pool = Path("/proc/sys/vm/nr_hugepages")
    before = pool.read_text()
    pool.write_text(f"{pages}\n")
    try:
        if int(pool.read_text()) < pages:
            pytest.skip("the kernel gives no huge pages: its memory is in use or in pieces")
        subject.ready(memory="memory: {guest: 160Mi, hugepages: {pageSize: 2Mi}}")
        end = subject.settled(subject.begin())
        assert cause(end) == "refused"
        assert "huge" in end.report.reason
        subject.forget()
    finally:
        pool.write_text(before)
