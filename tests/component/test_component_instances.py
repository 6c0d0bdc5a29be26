# SPDX-License-Identifier: Apache-2.0
"""InstanceService over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import msgspec
import pytest
import yaml
from component_parts import VMI_YAML
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from standin_agent import StandInAgent

from launcher.api.server import ApiServer
from launcher.errors import Bug, HypervisorUnavailable
from launcher.rpc.struct import to_plain
from launcher.v1 import instances_pb2 as pb
from launcher.v1 import types_pb2
from launcher.v1.instances_pb2_grpc import InstanceServiceStub

Metadata = tuple[tuple[str, str | bytes], ...]

WRONG_YAML = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: wrong}
spec:
  domain:
    cpus: {}
    devices:
      disks:
      - name: root
        disk: {speed: fast}
    memory: {guest: lots}
"""
WRONG_FIELDS = {
    "spec.domain.cpus",
    "spec.domain.devices.disks[0].disk.speed",
    "spec.domain.devices.disks[0].name",
    "spec.domain.memory.guest",
}


async def failure_of(call: grpc.aio.UnaryUnaryCall[Any, Any]) -> tuple[grpc.StatusCode, Status]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = await rpc_status.aio.from_call(call)
    assert status is not None
    return caught.value.code(), status


def details(status: Status) -> tuple[ErrorInfo, BadRequest]:
    info, bad = ErrorInfo(), BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return info, bad


async def test_create_get_list_pause_delete(channel: grpc.aio.Channel, agent: StandInAgent) -> None:
    stub = InstanceServiceStub(channel)
    companions = types_pb2.Companions(
        secrets={"key": types_pb2.KeyedData(data={"password": b"\x00\xff"})},
        claims=[types_pb2.ClaimBinding(claim="data", path="/dev/vg/data", block=True, capacity=2**40)],
    )
    created = await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML, companions=companions))
    vmi = to_plain(created.instance)
    assert vmi["metadata"] == {"name": "demo", "namespace": "default"}
    assert vmi["spec"]["domain"]["cpu"] == {"cores": 2}
    assert vmi["spec"]["domain"]["memory"] == {"guest": "256Mi"}
    assert vmi["status"] == {"phase": "Pending", "nodeName": "here"}
    kept = agent.companions["default", "demo"]
    assert kept.secrets == {"key": {"password": b"\x00\xff"}}
    assert (kept.claims[0].block, kept.claims[0].capacity, kept.claims[0].shared) == (True, 2**40, False)

    assert to_plain((await stub.GetInstance(pb.GetInstanceRequest(name="demo"))).instance) == vmi
    assert len((await stub.ListInstances(pb.ListInstancesRequest())).instances) == 1
    assert len((await stub.ListInstances(pb.ListInstancesRequest(namespace="other"))).instances) == 0
    paused = await stub.PauseInstance(pb.PauseInstanceRequest(name="demo"))
    assert to_plain(paused.instance)["status"]["conditions"] == [{"status": "True", "type": "Paused"}]
    xml = await stub.GetDomainXml(pb.GetDomainXmlRequest(name="demo"))
    assert xml.xml == "<domain><name>default_demo</name></domain>"
    log = await stub.GetConsoleLog(pb.GetConsoleLogRequest(name="demo", tail_bytes=8))
    assert log.data == b"tick 2\r\n"
    await stub.DeleteInstance(pb.DeleteInstanceRequest(name="demo", grace_period_seconds=0))
    code, _ = await failure_of(stub.GetInstance(pb.GetInstanceRequest(name="demo")))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_text_and_struct_give_the_same(channel: grpc.aio.Channel, agent: StandInAgent) -> None:
    stub = InstanceServiceStub(channel)
    as_object = yaml.safe_load(VMI_YAML)
    as_object["metadata"]["name"] = "object"
    wire = ParseDict(as_object, Struct())
    await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML))
    await stub.CreateInstance(pb.CreateInstanceRequest(object=wire))
    assert agent.instances["default", "object"].spec == agent.instances["default", "demo"].spec
    cpu = agent.instances["default", "object"].spec.domain.cpu
    assert cpu is not None
    assert type(cpu.cores) is int


@pytest.mark.parametrize("form", ["text", "object"])
async def test_wrong_manifest_gives_all_violations(channel: grpc.aio.Channel, form: str) -> None:
    wire = pb.CreateInstanceRequest(text=WRONG_YAML)
    if form == "object":
        wire = pb.CreateInstanceRequest(object=ParseDict(yaml.safe_load(WRONG_YAML), Struct()))
    code, status = await failure_of(InstanceServiceStub(channel).CreateInstance(wire))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    info, bad = details(status)
    assert (info.reason, info.domain) == ("INVALID_SPEC", "launcher")
    assert {violation.field for violation in bad.field_violations} == WRONG_FIELDS
    by_field = {violation.field: violation for violation in bad.field_violations}
    assert by_field["spec.domain.cpus"].reason == "FieldUnknown"
    assert ("line 6, column" in by_field["spec.domain.cpus"].description) == (form == "text")


@pytest.mark.parametrize("kind", ["VirtualMachineInstance", "VirtualMachine"])
async def test_findings_of_the_rules_have_their_place(channel: grpc.aio.Channel, kind: str) -> None:
    text = VMI_YAML.replace("bus: virtio", "bus: fast")
    path, line = "spec.domain.devices.disks[0].disk.bus", 13
    if kind == "VirtualMachine":
        head, _, spec = text.partition("spec:\n")
        indented = "".join(f"    {row}" for row in spec.splitlines(keepends=True))
        text = head.replace("VirtualMachineInstance", kind) + f"spec:\n  template:\n    spec:\n{indented}"
        path, line = f"spec.template.{path}", line + 2
    code, status = await failure_of(
        InstanceServiceStub(channel).CreateInstance(pb.CreateInstanceRequest(text=text))
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    (found,) = details(status)[1].field_violations
    assert found.field == path
    assert found.description.startswith(f"line {line}, column ")


async def test_many_violations_fit_a_plain_client_and_all_reach_ours(
    server: ApiServer, run_dir: object, metadata: Metadata, channel: grpc.aio.Channel
) -> None:
    disks = [{"name": f"d{n}", "disk": {"a-field-that-nobody-has": n}} for n in range(300)]
    manifest = yaml.safe_load(VMI_YAML)
    manifest["spec"]["domain"]["devices"]["disks"] = disks
    request = pb.CreateInstanceRequest(text=msgspec.json.encode(manifest).decode())
    async with grpc.aio.insecure_channel(f"unix:{run_dir}/s") as plain:
        code, status = await failure_of(InstanceServiceStub(plain).CreateInstance(request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        info, bad = details(status)
        assert 10 < len(bad.field_violations) < 300
        assert int(info.metadata["violations"]) >= 300
    code, status = await failure_of(InstanceServiceStub(channel).CreateInstance(request, metadata=metadata))
    info, bad = details(status)
    assert len(bad.field_violations) >= 300
    assert "violations" not in info.metadata


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.CreateInstanceRequest(), "manifest"),
        (pb.CreateInstanceRequest(text=VMI_YAML + "---\n" + VMI_YAML), "manifest"),
        (
            pb.CreateInstanceRequest(
                text=VMI_YAML.replace("name: demo", "name: demo\n  namespace: a"), namespace="b"
            ),
            "metadata.namespace",
        ),
        (
            pb.CreateInstanceRequest(
                text="apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceMigration\n"
                "metadata: {name: m}\nspec: {vmiName: a}"
            ),
            "kind",
        ),
    ],
)
async def test_requests_that_hold_no_one_instance(
    channel: grpc.aio.Channel, request_: pb.CreateInstanceRequest, field: str
) -> None:
    code, status = await failure_of(InstanceServiceStub(channel).CreateInstance(request_))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in details(status)[1].field_violations] == [field]


async def test_name_is_required(channel: grpc.aio.Channel) -> None:
    code, status = await failure_of(InstanceServiceStub(channel).GetInstance(pb.GetInstanceRequest()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in details(status)[1].field_violations] == ["name"]


async def test_watch_starts_with_the_present_and_misses_nothing(
    channel: grpc.aio.Channel, agent: StandInAgent
) -> None:
    stub = InstanceServiceStub(channel)
    await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML))
    watch = stub.WatchInstances(pb.WatchInstancesRequest())
    events = aiter(watch)
    first, bookmark = await anext(events), await anext(events)
    assert (first.type, to_plain(first.instance)["metadata"]["name"]) == (types_pb2.EVENT_TYPE_ADDED, "demo")
    assert bookmark.type == types_pb2.EVENT_TYPE_BOOKMARK
    assert not bookmark.HasField("instance")
    await stub.PauseInstance(pb.PauseInstanceRequest(name="demo"))
    await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML, namespace="other"))
    await stub.DeleteInstance(pb.DeleteInstanceRequest(name="demo"))
    changes = [await anext(events) for _ in range(3)]
    assert [change.type for change in changes] == [
        types_pb2.EVENT_TYPE_MODIFIED,
        types_pb2.EVENT_TYPE_ADDED,
        types_pb2.EVENT_TYPE_DELETED,
    ]
    versions = [first.version, *(change.version for change in changes)]
    assert versions == sorted(set(versions))
    watch.cancel()
    async with asyncio.timeout(5):
        while agent.watchers:  # the agent's side ends when the caller leaves
            await asyncio.sleep(0.01)


async def test_stop_ends_watches_at_once(channel: grpc.aio.Channel, server: ApiServer) -> None:
    events = aiter(InstanceServiceStub(channel).WatchInstances(pb.WatchInstancesRequest()))
    assert (await anext(events)).type == types_pb2.EVENT_TYPE_BOOKMARK
    async with asyncio.timeout(5):
        await server.stop(grace_s=30)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(events)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_console_both_ways(channel: grpc.aio.Channel, agent: StandInAgent) -> None:
    stub = InstanceServiceStub(channel)
    await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML))

    async def keys() -> AsyncIterator[pb.ConsoleRequest]:
        yield pb.ConsoleRequest(open=pb.ConsoleOpen(name="demo"))
        yield pb.ConsoleRequest(data=b"root\n")
        yield pb.ConsoleRequest(data=b"exit\n")

    heard = [response.data async for response in stub.Console(keys())]
    assert heard == [b"", b"login: ", b"ROOT\n"]
    assert agent.consoles[0].closed


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([pb.ConsoleRequest(data=b"x")], grpc.StatusCode.INVALID_ARGUMENT),
        ([], grpc.StatusCode.INVALID_ARGUMENT),
        ([pb.ConsoleRequest(open=pb.ConsoleOpen(name="nobody"))], grpc.StatusCode.NOT_FOUND),
        (
            [pb.ConsoleRequest(open=pb.ConsoleOpen(name="demo")), pb.ConsoleRequest(data=b"refuse")],
            grpc.StatusCode.FAILED_PRECONDITION,
        ),
        ([pb.ConsoleRequest(open=pb.ConsoleOpen(name="demo"))] * 2, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_console_refusals(
    channel: grpc.aio.Channel, steps: list[pb.ConsoleRequest], code: grpc.StatusCode
) -> None:
    stub = InstanceServiceStub(channel)
    await stub.CreateInstance(pb.CreateInstanceRequest(text=VMI_YAML))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.Console(iter(steps)):
            pass
    assert caught.value.code() is code


async def test_unexpected_errors_leave_only_a_request_id(
    channel: grpc.aio.Channel, agent: StandInAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.failure = RuntimeError("password hunter2")
    call = InstanceServiceStub(channel).ListInstances(
        pb.ListInstancesRequest(), metadata=(("x-request-id", "mine-1"),)
    )
    code, status = await failure_of(call)
    assert code is grpc.StatusCode.INTERNAL
    assert "mine-1" in status.message
    assert "hunter2" not in str(status)
    assert details(status)[0].metadata["requestId"] == "mine-1"
    assert dict(await call.initial_metadata())["x-request-id"] == "mine-1"
    stacks = [record for record in caplog.records if record.exc_info]
    assert len(stacks) == 1


async def test_our_errors_keep_their_class(channel: grpc.aio.Channel, agent: StandInAgent) -> None:
    stub = InstanceServiceStub(channel)
    agent.failure = HypervisorUnavailable("no libvirtd", retry_after_s=3)
    code, status = await failure_of(stub.ListInstances(pb.ListInstancesRequest()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details(status)[0].reason == "LIBVIRT_DOWN"
    assert any(detail.TypeName() == "google.rpc.RetryInfo" for detail in status.details)
    agent.failure = Bug("seen by a stream")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(stub.WatchInstances(pb.WatchInstancesRequest())))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "seen by a stream" in str(caught.value.details())
