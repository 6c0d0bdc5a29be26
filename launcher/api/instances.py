# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""InstanceService: each method turns a request into one call of the agent. Decides nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from launcher.agent.port import AgentPort, ConsoleSession
from launcher.api import convert, manifest
from launcher.api.stream import closing
from launcher.errors import InvalidRequest, InvalidSpec, LauncherError, Violation
from launcher.units import KIB, MIB
from launcher.v1 import instances_pb2 as pb
from launcher.v1.instances_pb2_grpc import InstanceServiceServicer

TAIL_BYTES = 64 * KIB
MAX_TAIL_BYTES = MIB

Context = grpc.aio.ServicerContext[Any, Any]


class Instances(InstanceServiceServicer):
    """The instances of this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def CreateInstance(
        self, request: pb.CreateInstanceRequest, context: Context
    ) -> pb.CreateInstanceResponse:
        """Read the manifest, hand it over, say where in it the agent found something wrong."""
        given = request.WhichOneof("manifest")
        vmi, positions = await asyncio.to_thread(manifest.instance, request, given)
        beside = convert.companions(request.companions)
        try:
            created = await self._agent.create_instance(vmi, beside, dry_run=request.dry_run)
        except InvalidSpec as error:
            raise await asyncio.to_thread(manifest.placed, error, positions) from error
        return pb.CreateInstanceResponse(instance=convert.struct(created))

    async def UpdateInstance(
        self, request: pb.UpdateInstanceRequest, context: Context
    ) -> pb.UpdateInstanceResponse:
        """Read the manifest, hand it over, say where in it the agent found something wrong."""
        given = request.WhichOneof("manifest")
        vmi, positions, written = await asyncio.to_thread(manifest.change, request, given)
        try:
            beside = convert.companions(request.companions)
            strategy = request.update_volumes_strategy or written
            changed = await self._agent.update_instance(
                vmi, beside, dry_run=request.dry_run, strategy=strategy
            )
        except InvalidSpec as error:
            raise await asyncio.to_thread(manifest.placed, error, positions) from error
        return pb.UpdateInstanceResponse(instance=convert.struct(changed))

    async def GetInstance(self, request: pb.GetInstanceRequest, context: Context) -> pb.GetInstanceResponse:
        """One instance."""
        vmi = await self._agent.get_instance(*convert.key(request))
        return pb.GetInstanceResponse(instance=convert.struct(vmi))

    async def ListInstances(
        self, request: pb.ListInstancesRequest, context: Context
    ) -> pb.ListInstancesResponse:
        """All instances, or those of one namespace."""
        found = await self._agent.list_instances(request.namespace or None)
        return pb.ListInstancesResponse(instances=[convert.struct(vmi) for vmi in found])

    async def WatchInstances(
        self, request: pb.WatchInstancesRequest, context: Context
    ) -> AsyncIterator[pb.WatchInstancesResponse]:
        """What there is, a bookmark, then every change."""
        namespace, name = request.namespace or None, request.name or None
        if name is not None:
            namespace = namespace or convert.DEFAULT_NAMESPACE
        async with closing(self._agent.watch_instances(namespace, name)) as events:
            async for event in events:
                yield pb.WatchInstancesResponse(
                    type=convert.EVENT_TYPES[event.type],
                    version=event.version,
                    instance=None if event.object is None else convert.struct(event.object),
                )

    async def DeleteInstance(
        self, request: pb.DeleteInstanceRequest, context: Context
    ) -> pb.DeleteInstanceResponse:
        """Begin to stop and remove."""
        grace_s = request.grace_period_seconds if request.HasField("grace_period_seconds") else None
        if grace_s is not None and grace_s < 0:
            raise _invalid("grace_period_seconds", str(grace_s), "must not be negative")
        vmi = await self._agent.delete_instance(
            *convert.key(request), grace_period_s=grace_s, discard_state=request.remove_persistent_state
        )
        return pb.DeleteInstanceResponse(instance=None if vmi is None else convert.struct(vmi))

    async def PauseInstance(
        self, request: pb.PauseInstanceRequest, context: Context
    ) -> pb.PauseInstanceResponse:
        """Freeze the guest."""
        vmi = await self._agent.pause_instance(*convert.key(request))
        return pb.PauseInstanceResponse(instance=convert.struct(vmi))

    async def UnpauseInstance(
        self, request: pb.UnpauseInstanceRequest, context: Context
    ) -> pb.UnpauseInstanceResponse:
        """Let the guest go on."""
        vmi = await self._agent.unpause_instance(*convert.key(request))
        return pb.UnpauseInstanceResponse(instance=convert.struct(vmi))

    async def GetDomainXml(
        self, request: pb.GetDomainXmlRequest, context: Context
    ) -> pb.GetDomainXmlResponse:
        """The live XML."""
        return pb.GetDomainXmlResponse(xml=await self._agent.instance_xml(*convert.key(request)))

    async def GetConsoleLog(
        self, request: pb.GetConsoleLogRequest, context: Context
    ) -> pb.GetConsoleLogResponse:
        """The end of the console log."""
        if request.tail_bytes < 0:
            raise _invalid("tail_bytes", str(request.tail_bytes), "must not be negative")
        tail_bytes = min(request.tail_bytes or TAIL_BYTES, MAX_TAIL_BYTES)
        data = await self._agent.console_log(*convert.key(request), tail_bytes=tail_bytes)
        return pb.GetConsoleLogResponse(data=data)

    async def GetTraffic(self, request: pb.GetTrafficRequest, context: Context) -> pb.GetTrafficResponse:
        """Counters of a guest's interfaces."""
        found = await self._agent.traffic(*convert.key(request))
        return pb.GetTrafficResponse(
            interfaces=[
                pb.InterfaceTraffic(
                    interface=one.interface,
                    rx_bytes=one.rx_bytes,
                    rx_packets=one.rx_packets,
                    rx_errors=one.rx_errors,
                    rx_dropped=one.rx_dropped,
                    tx_bytes=one.tx_bytes,
                    tx_packets=one.tx_packets,
                    tx_errors=one.tx_errors,
                    tx_dropped=one.tx_dropped,
                )
                for one in found
            ]
        )

    async def Console(
        self, request_iterator: AsyncIterator[pb.ConsoleRequest], context: Context
    ) -> AsyncIterator[pb.ConsoleResponse]:
        """Bytes both ways until the console ends or the caller leaves."""
        first = await anext(request_iterator, pb.ConsoleRequest())
        if first.WhichOneof("step") != "open":
            raise _invalid("open", "", "the first message of a console must open it")
        session = await self._agent.console(*convert.key(first.open))
        feeder = asyncio.create_task(_feed(request_iterator, session))
        try:
            yield pb.ConsoleResponse()
            while data := await session.read():
                yield pb.ConsoleResponse(data=data)
            if feeder.done():
                feeder.result()
        finally:
            feeder.cancel()
            await session.close()
            await asyncio.gather(feeder, return_exceptions=True)


async def _feed(requests: AsyncIterator[pb.ConsoleRequest], session: ConsoleSession) -> None:
    """Pass the caller's input on. A failure closes the session: the reading side ends and raises it."""
    try:
        async for request in requests:
            if request.WhichOneof("step") != "data":
                raise _invalid("open", "", "the console is open already")
            await session.write(request.data)
    except LauncherError:
        await session.close()
        raise


def _invalid(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type="FieldValueInvalid", value=value, message=message)])
