# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""LaunchSecurityService: attestation of SEV guests. Decides nothing itself, and logs nothing of a request."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec

from launcher.agent.port import AgentPort
from launcher.api import convert
from launcher.v1 import launch_security_pb2 as pb
from launcher.v1.launch_security_pb2_grpc import LaunchSecurityServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class LaunchSecurity(LaunchSecurityServiceServicer):
    """Attestation on this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def GetSevPlatform(
        self, request: pb.GetSevPlatformRequest, context: Context
    ) -> pb.GetSevPlatformResponse:
        """What identifies the host's firmware."""
        return pb.GetSevPlatformResponse(**msgspec.structs.asdict(await self._agent.sev_platform()))

    async def SetUpSevSession(
        self, request: pb.SetUpSevSessionRequest, context: Context
    ) -> pb.SetUpSevSessionResponse:
        """The session of a waiting guest."""
        vmi = await self._agent.set_up_sev(
            *convert.key(request), session=request.session, dh_cert=request.dh_cert
        )
        return pb.SetUpSevSessionResponse(instance=convert.struct(vmi))

    async def GetSevMeasurement(
        self, request: pb.GetSevMeasurementRequest, context: Context
    ) -> pb.GetSevMeasurementResponse:
        """What was measured of a guest."""
        found = await self._agent.sev_measurement(*convert.key(request))
        return pb.GetSevMeasurementResponse(**msgspec.structs.asdict(found))

    async def InjectSevSecret(
        self, request: pb.InjectSevSecretRequest, context: Context
    ) -> pb.InjectSevSecretResponse:
        """A secret for a guest."""
        await self._agent.inject_sev_secret(
            *convert.key(request), header=request.header, secret=request.secret
        )
        return pb.InjectSevSecretResponse()
