# SPDX-License-Identifier: Apache-2.0
"""Asks an agent for its health by the standard gRPC health service. Nothing else is called here."""

from __future__ import annotations

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

CALL_TIMEOUT_S = 2.0
_METHOD = "/grpc.health.v1.Health/Check"


def check(target: str) -> str:
    """``SERVING``, ``NOT_SERVING``, … or, when the agent does not answer, an empty string."""
    with grpc.insecure_channel(target) as channel:
        call = channel.unary_unary(
            _METHOD,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        try:
            reply = call(HealthCheckRequest(), timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            return "SERVICE_UNKNOWN" if error.code() is grpc.StatusCode.NOT_FOUND else ""
    return str(HealthCheckResponse.ServingStatus.Name(reply.status))
