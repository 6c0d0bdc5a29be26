# SPDX-License-Identifier: Apache-2.0
"""The server's outside: socket, TLS, health, reflection."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from component_parts import issue
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest as Request
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionResponse as Response
from standin_agent import StandInAgent

from launcher.agent.peers import peer_of
from launcher.api.server import SERVICES, ApiServer
from launcher.errors import Conflict, InvalidRequest, LauncherError
from launcher.host.config import Listen, Tls
from launcher.rpc.channel import TlsFiles, credentials
from launcher.v1 import node_pb2
from launcher.v1.node_pb2_grpc import NodeServiceStub

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def tls(pki: Path, name: str) -> Tls:
    return Tls(certificate=f"{pki}/{name}.pem", key=f"{pki}/{name}.key", ca=f"{pki}/ca.pem")


async def reflect(channel: grpc.aio.Channel, version: str, request: Request) -> Response:
    method = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    answers = [response async for response in method(iter([request]))]
    assert len(answers) == 1
    answer = answers[0]
    assert isinstance(answer, Response)
    return answer


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_all_services(channel: grpc.aio.Channel, version: str) -> None:
    listed = await reflect(channel, version, Request(list_services=""))
    names = {service.name for service in listed.list_services_response.service}
    assert names >= {
        "launcher.v1.InstanceService",
        "launcher.v1.LaunchSecurityService",
        "launcher.v1.MigrationService",
        "launcher.v1.NodeService",
        "launcher.v1.PeerService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for name in names:
        answer = await reflect(channel, version, Request(file_containing_symbol=name))
        assert answer.WhichOneof("message_response") == "file_descriptor_response", name
        files = [
            FileDescriptorProto.FromString(f) for f in answer.file_descriptor_response.file_descriptor_proto
        ]
        services = {f"{file.package}.{service.name}" for file in files for service in file.service}
        assert name in services


async def test_health_per_service_and_not_serving_on_stop(
    server: ApiServer, channel: grpc.aio.Channel
) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)  # its annotations lack the methods

    async def status(service: str) -> int:
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        return int(answer.status)

    assert [await status(name) for name in ("", *SERVICES)] == [SERVING] * (1 + len(SERVICES))
    await server.set_ready(ready=False)
    assert await status("launcher.v1.InstanceService") == NOT_SERVING
    assert [await status(name) for name in ("", "launcher.v1.NodeService")] == [SERVING, SERVING]
    await server.set_ready(ready=True)
    assert await status("launcher.v1.InstanceService") == SERVING
    with pytest.raises(grpc.aio.AioRpcError):
        await status("launcher.v1.Nothing")
    changes = aiter(health.Watch(health_pb2.HealthCheckRequest()))
    assert (await anext(changes)).status == SERVING
    stopping = asyncio.create_task(server.stop(grace_s=2.0))
    assert (await anext(changes)).status == NOT_SERVING
    del changes
    await stopping


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o022)
    yield 0o022
    os.umask(before)


async def test_socket_mode_and_removal(umask: int, server: ApiServer, run_dir: Path) -> None:
    status = (run_dir / "s").stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o660
    with (run_dir / "file").open("w"):
        assert stat.S_IMODE((run_dir / "file").stat().st_mode) == 0o666 & ~umask  # it was set back
    await server.stop(grace_s=0)
    assert not (run_dir / "s").exists()
    await server.stop(grace_s=0)


async def test_socket_group(agent: StandInAgent, run_dir: Path) -> None:
    listen = Listen(socket=str(run_dir / "s"), socket_group="no-such-group")
    with pytest.raises(InvalidRequest, match="no such group"):
        await ApiServer(agent, listen, Tls()).start()
    assert not (run_dir / "s").exists()


async def test_stale_socket_is_replaced_and_a_living_one_is_not(agent: StandInAgent, run_dir: Path) -> None:
    listen = Listen(socket=str(run_dir / "sub" / "s"))
    (run_dir / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(listen.socket)  # closed without unlink: what a killed process leaves
    first = ApiServer(agent, listen, Tls())
    await first.start()
    with pytest.raises(Conflict):
        await ApiServer(agent, listen, Tls()).start()
    async with grpc.aio.insecure_channel(f"unix:{listen.socket}") as channel:
        assert (await NodeServiceStub(channel).GetNode(node_pb2.GetNodeRequest())).node.name == "here"
    await first.stop(grace_s=0)


async def test_what_is_no_socket_is_left_alone(agent: StandInAgent, run_dir: Path) -> None:
    path = run_dir / "precious"
    path.write_text("data")
    with pytest.raises(InvalidRequest, match="no socket"):
        await ApiServer(agent, Listen(socket=str(path)), Tls()).start()
    assert path.read_text() == "data"
    with pytest.raises(InvalidRequest, match="107 bytes"):
        await ApiServer(agent, Listen(socket=f"{run_dir}/{'x' * 120}"), Tls()).start()


@pytest.mark.parametrize("missing", ["certificate", "key", "ca", "all"])
async def test_tcp_needs_mutual_tls(agent: StandInAgent, run_dir: Path, pki: Path, missing: str) -> None:
    whole = {"certificate": f"{pki}/server.pem", "key": f"{pki}/server.key", "ca": f"{pki}/ca.pem"}
    given = {} if missing == "all" else {name: path for name, path in whole.items() if name != missing}
    server = ApiServer(agent, Listen(socket=str(run_dir / "s"), tcp="127.0.0.1:0"), Tls(**given))
    with pytest.raises(InvalidRequest) as caught:
        await server.start()
    fields = {violation.field for violation in caught.value.violations}
    assert fields == ({f"tls.{missing}"} if missing != "all" else {"tls.certificate", "tls.key", "tls.ca"})
    assert not (run_dir / "s").exists()


async def test_wrong_tls_files_are_named(agent: StandInAgent, run_dir: Path, pki: Path) -> None:
    listen = Listen(socket=str(run_dir / "s"), tcp="127.0.0.1:0")
    mixed = Tls(certificate=f"{pki}/server.pem", key=f"{pki}/client.key", ca=f"{pki}/ca.pem")
    with pytest.raises(InvalidRequest, match=r"tls\.certificate"):
        await ApiServer(agent, listen, mixed).start()
    (run_dir / "empty").write_text("")
    empty = Tls(certificate=f"{pki}/server.pem", key=f"{pki}/server.key", ca=str(run_dir / "empty"))
    with pytest.raises(InvalidRequest, match=r"tls\.ca"):
        await ApiServer(agent, listen, empty).start()


@pytest.fixture
async def tcp(agent: StandInAgent, pki: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer(agent, Listen(socket="", tcp="127.0.0.1:0"), tls(pki, "server"))
    await server.start()
    yield server
    await server.stop(grace_s=0)


async def node_name(channel: grpc.aio.Channel) -> str:
    async with channel:
        answer = await NodeServiceStub(channel).GetNode(node_pb2.GetNodeRequest(), timeout=5)
    return answer.node.name


async def test_tcp_serves_those_with_a_certificate(tcp: ApiServer, pki: Path) -> None:
    address = f"127.0.0.1:{tcp.tcp_port}"
    files = TlsFiles(certificate=f"{pki}/client.pem", key=f"{pki}/client.key", ca=f"{pki}/ca.pem")
    secure = credentials(address, files)
    assert secure is not None
    assert await node_name(grpc.aio.secure_channel(address, secure)) == "here"
    peer = peer_of(address, tls(pki, "client"))
    assert not (await peer.state("u-1")).known
    await peer.close()


async def test_tcp_refuses_everybody_else(tcp: ApiServer, pki: Path) -> None:
    address = f"127.0.0.1:{tcp.tcp_port}"
    ca = (pki / "ca.pem").read_bytes()
    stranger = grpc.ssl_channel_credentials(
        ca, (pki / "stranger.key").read_bytes(), (pki / "stranger.pem").read_bytes()
    )
    for channel in (
        grpc.aio.insecure_channel(address),
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca)),
        grpc.aio.secure_channel(address, stranger),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node_name(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_renewed_certificates_are_used_without_a_restart(
    agent: StandInAgent, pki: Path, run_dir: Path
) -> None:
    for name in ("ca.pem", "ca.key", "server.pem", "server.key", "client.pem", "client.key"):
        (run_dir / name).write_bytes((pki / name).read_bytes())
    server = ApiServer(agent, Listen(socket="", tcp="127.0.0.1:0"), tls(run_dir, "server"))
    await server.start()
    address = f"127.0.0.1:{server.tcp_port}"
    peer = peer_of(address, tls(run_dir, "client"))
    await peer.state("u")
    for name in ("server", "client"):
        issue(run_dir, name, "ca")
    certificate = await asyncio.to_thread(_served_certificate, server.tcp_port, run_dir)
    new = "".join((run_dir / "server.pem").read_text().split())
    assert "".join(certificate.split()) == new
    await peer.state("u")
    async with asyncio.timeout(10):
        while _connections(server.tcp_port) > 1:  # that of the old certificate is closed
            await asyncio.sleep(0.01)
    await peer.close()
    await server.stop(grace_s=0)


def _connections(port: int) -> int:
    """How many connections to the port this process has."""
    found = psutil.Process().net_connections("tcp")
    return sum(1 for one in found if one.raddr and one.raddr.port == port and one.status == "ESTABLISHED")


def _served_certificate(port: int, pki: Path) -> str:
    import ssl

    context = ssl.create_default_context(cafile=f"{pki}/ca.pem")
    context.load_cert_chain(f"{pki}/client.pem", f"{pki}/client.key")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


async def test_a_taken_port_is_a_conflict(agent: StandInAgent, tcp: ApiServer, pki: Path) -> None:
    listen = Listen(socket="", tcp=f"127.0.0.1:{tcp.tcp_port}")
    with pytest.raises(LauncherError, match="cannot listen"):
        await ApiServer(agent, listen, tls(pki, "server")).start()
