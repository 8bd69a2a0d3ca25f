"""The protocol over gRPC: KServe's messages and service, with boltgen's inference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
from kserve.protocol.grpc.servicer import InferenceServicer
from kserve.protocol.model_repository_extension import ModelRepositoryExtension

from boltgen.errors import InputError
from boltgen.serve.answering import answered, outcome_of, said_of
from boltgen.serve.grpc_index import index_handler
from boltgen.serve.model import metadata_of
from boltgen.serve.repository import Repository
from boltgen.serve.rest import UNCHANGED, InferRequest, refuse_untaken, timeout_of
from boltgen.serve.tensors import Array, datatype_of, from_bytes, from_numbers

Answer = TypeVar("Answer")

# Fields of Triton's RepositoryModelLoadRequest. Source: its grpc_service.proto.
_TRITONS_NAME, _TRITONS_PARAMETERS = 2, 3

# The field of a message that has the numbers of a datatype, unless they come as bytes. FP16 and
# BF16 have no field. Source: the protocol's InferTensorContents.
_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


def decoded(message: Any, time_left_s: float | None) -> InferRequest:
    """Return the request in a ModelInferRequest; its client waits at most `time_left_s`.

    Raises:
        InputError: the message is not a valid request; the error names the field.
    """
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise InputError(
            f"raw_input_contents has {len(raw)} tensors, inputs has {len(message.inputs)}"
        )
    inputs: dict[str, Array] = {}
    for position, each in enumerate(message.inputs):
        if each.name in inputs:
            raise InputError(f"input {each.name!r} is given twice")
        refuse_untaken(each.parameters, f"input {each.name!r}")
        shape = list(each.shape)
        if raw:
            if each.HasField("contents"):
                raise InputError(f"input {each.name!r} has contents and raw_input_contents")
            tensor = from_bytes(each.name, each.datatype, shape, raw[position])
        else:
            tensor = from_numbers(each.name, each.datatype, shape, _contents(each))
        inputs[each.name] = tensor
    outputs: dict[str, bool] = {}
    for each in message.outputs:
        if each.name in outputs:
            raise InputError(f"output {each.name!r} is asked for twice")
        refuse_untaken(each.parameters, f"output {each.name!r}")
        outputs[each.name] = True
    asked_us = _timeout_of(message.parameters.get("timeout"))
    left_us = None if time_left_s is None else max(int(time_left_s * 1e6), 1)
    return InferRequest(
        request_id=message.id,
        inputs=inputs,
        outputs=outputs or None,
        binary=bool(raw),
        timeout_us=min((each for each in (asked_us, left_us) if each is not None), default=None),
    )


def _timeout_of(parameter: Any) -> int | None:
    if parameter is None:
        return None
    # KServe's message has no field for Triton's unsigned parameters.
    kind = parameter.WhichOneof("parameter_choice")
    return timeout_of("" if kind is None else getattr(parameter, kind))


def _contents(message: Any) -> list[Any]:
    field = _FIELDS.get(message.datatype)
    if field is None:
        raise InputError(
            f"input {message.name!r}: numbers of datatype {message.datatype!r} come as "
            "raw_input_contents only"
        )
    others = [each.name for each, _ in message.contents.ListFields() if each.name != field]
    if others:
        raise InputError(f"input {message.name!r}: {message.datatype} has no {others[0]}")
    return list(getattr(message.contents, field))


def encoded(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Array]
) -> pb.ModelInferResponse:
    """Return the ModelInferResponse; tensors are bytes if the request's were, or must be."""
    response = pb.ModelInferResponse(
        model_name=model, model_version=version, id=request.request_id or ""
    )
    asked = {name: outputs[name] for name in request.outputs or outputs}
    datatypes = {name: datatype_of(array.dtype) for name, array in asked.items()}
    as_bytes = request.binary or any(each not in _FIELDS for each in datatypes.values())
    for name, array in asked.items():
        told = response.outputs.add(name=name, datatype=datatypes[name], shape=array.shape)
        if as_bytes:
            response.raw_output_contents.append(array.tobytes())
        else:
            getattr(told.contents, _FIELDS[datatypes[name]]).extend(array.ravel().tolist())
    return response


class Servicer(InferenceServicer):  # type: ignore[misc]
    """The service's calls; KServe's class implements the others."""

    def __init__(
        self, repository: Repository, dataplane: DataPlane, extension: ModelRepositoryExtension
    ) -> None:
        super().__init__(dataplane, extension)
        self.repository = repository
        self._extension = extension

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's)
        """Run a model."""
        name = request.model_name
        return await _told(
            context,
            lambda: answered(
                self.repository,
                "grpc",
                name,
                request.model_version,
                carrier=lambda: dict(_texts(context.invocation_metadata())),
                decode=lambda: decoded(request, context.time_remaining()),
                encode=lambda version, asked, outputs: encoded(name, version, asked, outputs),
            ),
        )

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's)
        """Return whether a model answers requests."""

        async def ready() -> Any:
            model = self.repository.model(request.name, request.version)
            return pb.ModelReadyResponse(ready=model.is_ready)

        return await _told(context, ready)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's)
        """Return a model's inputs and outputs; gRPC's message cannot have ranges."""

        async def metadata() -> Any:
            model = self.repository.model(request.name, request.version)
            told = metadata_of(model, self.repository.versions(request.name))
            tensors = {
                key: [
                    {each: tensor[each] for each in ("name", "datatype", "shape")}
                    for tensor in told[key]
                ]
                for key in ("inputs", "outputs")
            }
            return pb.ModelMetadataResponse(
                name=told["name"], versions=told["versions"], platform=told["platform"], **tensors
            )

        return await _told(context, metadata)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's)
        """Load a model."""

        async def load() -> Any:
            name = _named(request)
            if _TRITONS_PARAMETERS in _unknown_fields(request):
                raise InputError(f"model {name!r} is loaded as its folder has it, {UNCHANGED}")
            await self._extension.load(name)
            return pb.RepositoryModelLoadResponse(model_name=name, isLoaded=True)

        return await _told(context, load)

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Unload a model."""

        async def unload() -> Any:
            name = _named(request)
            await self._extension.unload(name)
            return pb.RepositoryModelUnloadResponse(model_name=name, isUnloaded=True)

        return await _told(context, unload)


def _unknown_fields(message: Any) -> dict[int, Any]:
    """Return the fields of a message, by number, that KServe's definition lacks."""
    return {each.field_number: each.data for each in UnknownFieldSet(message)}


def _named(request: Any) -> str:
    """Return the name of the model to load or unload.

    It is field 1 of KServe's message; Triton's message of the same name has the repository's name
    there, and the model's in field 2.

    Raises:
        InputError: the message names a repository.
    """
    name = _unknown_fields(request).get(_TRITONS_NAME)
    if not isinstance(name, bytes):
        return str(request.model_name)
    if request.model_name:
        raise InputError(f"repository_name {request.model_name!r} is unknown: the server has one")
    return name.decode(errors="replace")


def _texts(metadata: Iterable[tuple[str, str | bytes]] | None) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a call that is text."""
    for name, value in metadata or ():
        if isinstance(value, str):
            yield name, value


async def _told(context: Any, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the result of `call`, or abort the call with its error as the protocol's status."""
    try:
        return await call()
    except Exception as error:
        code = getattr(grpc.StatusCode, outcome_of(error).grpc)
        await context.abort(code, said_of(error))
        raise  # never reached: abort raises


class GrpcServer:
    """A server on one port, which answers until `stop`."""

    def __init__(self, servicer: Servicer, *, host: str, port: int, most_body_bytes: int) -> None:
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most_body_bytes),
                ("grpc.max_send_message_length", -1),
                # Otherwise a second server could bind the same port and get half of the requests.
                ("grpc.so_reuseport", 0),
            ]
        )
        grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, self._server)
        self._server.add_generic_rpc_handlers((index_handler(servicer.repository, _told),))
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> int:
        """Bind the port (any free port for 0), start to answer, and return the port.

        Raises:
            OSError: the port is in use, or this machine does not have the host address.
        """
        try:
            port: int = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise OSError(f"{self._address} cannot be bound: {error}") from error
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """Reject new requests, and answer pending ones for at most `grace_s` seconds."""
        await self._server.stop(grace_s)
