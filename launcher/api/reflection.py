# SPDX-License-Identifier: Apache-2.0
"""Server reflection under both of its names: the library knows only v1alpha, new clients ask for v1.

The messages of the two are the same on the wire (grpc/reflection/v1/reflection.proto), so one servicer
serves both; v1's own description is made from v1alpha's.
"""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"
V1_FILE = "grpc/reflection/v1/reflection.proto"


def add_reflection(server: grpc.aio.Server, services: Iterable[str]) -> None:
    """Serve the descriptions of ``services`` and of reflection itself."""
    _describe_v1()
    names = (*services, reflection.SERVICE_NAME, V1)
    reflection.enable_server_reflection(names, server)
    servicer = reflection.aio.ReflectionServicer(names)
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method})
    server.add_generic_rpc_handlers((handler,))


def _describe_v1() -> None:
    """Put v1's description into the pool that reflection reads."""
    alpha = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    text = text_format.MessageToString(alpha).replace("reflection.v1alpha", "reflection.v1")
    beta = text_format.Parse(text, FileDescriptorProto())
    beta.name = V1_FILE
    Default().Add(beta)  # adding the same again is no error
