# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""NodeService: what this node is. Decides nothing itself."""

from __future__ import annotations

from typing import Any

import grpc

from launcher.agent.port import AgentPort
from launcher.api import convert
from launcher.v1 import node_pb2 as pb
from launcher.v1.node_pb2_grpc import NodeServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Node(NodeServiceServicer):
    """This node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        """The node as it is now."""
        return pb.GetNodeResponse(node=convert.node(await self._agent.node()))
