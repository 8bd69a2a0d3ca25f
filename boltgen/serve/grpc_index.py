"""The repository's index over gRPC, which Triton's service has and KServe's lacks.

Messages and field numbers are as in Triton's grpc_service.proto.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from boltgen.errors import InputError
from boltgen.serve.repository import Repository

_SERVICE, _METHOD = "inference.GRPCInferenceService", "RepositoryIndex"
_Field = descriptor_pb2.FieldDescriptorProto


def _messages() -> tuple[type[Any], type[Any]]:
    """Return the classes of the request and the response."""
    file = descriptor_pb2.FileDescriptorProto(
        name="boltgen/repository_index.proto", package="inference", syntax="proto3"
    )
    request = file.message_type.add(name="RepositoryIndexRequest")
    texts = [("repository_name", 1, _Field.TYPE_STRING), ("ready", 2, _Field.TYPE_BOOL)]
    for name, number, kind in texts:
        request.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    response = file.message_type.add(name="RepositoryIndexResponse")
    model = response.nested_type.add(name="ModelIndex")
    for number, name in enumerate(("name", "version", "state", "reason"), 1):
        model.field.add(
            name=name, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
        )
    response.field.add(
        name="models",
        number=1,
        type=_Field.TYPE_MESSAGE,
        type_name=".inference.RepositoryIndexResponse.ModelIndex",
        label=_Field.LABEL_REPEATED,
    )
    # A pool of its own, because a client's library in this process may define the same messages.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"inference.{each.name}") for each in (request, response))
    asked, told = map(message_factory.GetMessageClass, found)
    return asked, told


def index_handler(
    repository: Repository, told: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]
) -> Any:
    """Return the handler of the call; `told` turns errors into the protocol's statuses."""
    request_class, response_class = _messages()

    async def answer(request: Any, context: Any) -> Any:
        async def index() -> Any:
            if request.repository_name:
                name = request.repository_name
                raise InputError(f"repository_name {name!r} is unknown: the server has one")
            listed = [
                each for each in repository.index() if not request.ready or each["state"] == "READY"
            ]
            return response_class(models=listed)

        return await told(context, index)

    method = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request_class.FromString,
        response_serializer=response_class.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method})
