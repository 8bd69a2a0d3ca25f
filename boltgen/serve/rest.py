"""Inference requests and responses in the protocol's REST form: JSON, then binary tensors.

KServe's own decoder makes Python lists of binary tensors, does not know BF16, rejects FP16 in JSON,
and answers malformed requests with status 500. This decoder makes arrays that share the body's
memory. Source: Open Inference Protocol v2, "Inference"; Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from boltgen.errors import InputError
from boltgen.serve.tensors import Array, datatype_of, from_bytes, from_numbers, to_numbers


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there; binary data may have it")


# The header with the number of JSON bytes in a body, if tensors follow.
JSON_LENGTH = "inference-header-content-length"
# Ends the message for a request that would load a model with other files or options.
UNCHANGED = "without a configuration or files of a request's"
# Created once: json.dumps and json.loads create new ones for every call with options.
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_no_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A client's request: inputs by name, and the wanted outputs with whether each is binary.

    None means all outputs. `timeout_us` is the longest time that the client waits.
    """

    request_id: str | None = None
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool] | None = None
    binary: bool = False
    timeout_us: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


def decoded(body: bytes, json_length: str | None) -> InferRequest:
    """Return the request in the `body` of a POST, which begins with JSON.

    Raises:
        InputError: the body is not a valid request; the message names the field.
    """
    length = _length(json_length, len(body))
    try:
        values = _DECODER.decode(body[:length].decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError("the body is no JSON object")
    parameters = _object(values, "parameters", "the request")
    rest = memoryview(body)[length:]
    inputs: dict[str, Array] = {}
    for position, each in enumerate(_list(values, "inputs")):
        name, tensor, used = _input(position, each, rest)
        if name in inputs:
            raise InputError(f"input {name!r} is given twice")
        inputs[name] = tensor
        rest = rest[used:]
    if len(rest):
        raise InputError(f"{len(rest)} bytes after the JSON belong to no input")
    request_id = values.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise InputError("id is no text")
    binary = _flag(parameters, "binary_data_output", "the request", default=False)
    return InferRequest(
        request_id=request_id,
        inputs=inputs,
        outputs=_outputs(values, binary) if values.get("outputs") else None,
        binary=binary,
        timeout_us=timeout_of(parameters.get("timeout")),
        parameters=parameters,
    )


def refuse_untaken(parameters: Iterable[str], owner: str) -> None:
    """Reject Triton's extensions that boltgen lacks, because a client would misread the answer.

    Raises:
        InputError: one of the `parameters` is of the shared memory or classification extension.
    """
    for name in parameters:
        if name == "classification" or name.startswith("shared_memory_"):
            raise InputError(f"parameter {name!r} of {owner} is not taken: send and get its data")


def timeout_of(value: object) -> int | None:
    """Return the parameter `timeout` in microseconds, as Triton's clients send it, or None for 0.

    Raises:
        InputError: the value is no number of microseconds.
    """
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise InputError("parameter 'timeout' is no whole number of microseconds")
    return value or None


def encoded(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """Return the body of the response, and the number of JSON bytes in it if tensors follow.

    Raises:
        InputError: JSON cannot represent a wanted output.
    """
    asked = request.outputs or dict.fromkeys(outputs, request.binary)
    told, tensors = [], []
    for name, binary in asked.items():
        array = outputs[name]
        tensor: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of(array.dtype),
            "shape": list(array.shape),
        }
        if binary:
            data = array.tobytes()
            tensor["parameters"] = {"binary_data_size": len(data)}
            tensors.append(data)
        else:
            tensor["data"] = to_numbers(name, array)
        told.append(tensor)
    response: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": told}
    if request.request_id is not None:
        response["id"] = request.request_id
    head = _ENCODER.encode(response).encode()
    return b"".join([head, *tensors]), len(head) if tensors else None


def check_load(name: str, body: bytes, taken: Collection[str] = ()) -> None:
    """Check the `body` of a request to load or unload a model, with parameters only of `taken`.

    Raises:
        InputError: the body is no JSON object, or has other parameters.
    """
    try:
        values = _DECODER.decode(body.decode()) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError("the body is no JSON object")
    for parameter in _object(values, "parameters", "the request"):
        if parameter not in taken:
            raise InputError(
                f"parameter {parameter!r}: model {name!r} is loaded as its folder has it, "
                + UNCHANGED
            )


def _length(text: str | None, size: int) -> int:
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= size):
        raise InputError(f"header {JSON_LENGTH} is no number of bytes from 0 to {size}")
    return int(text)


def _input(position: int, value: object, rest: memoryview) -> tuple[str, Array, int]:
    """Return an input's name and tensor, and the number of bytes that it takes from `rest`."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise InputError(f"inputs[{position}] is no object with a name")
    name = value["name"]
    parameters = _object(value, "parameters", f"input {name!r}")
    refuse_untaken(parameters, f"input {name!r}")
    size = parameters.get("binary_data_size")
    if ("data" in value) == (size is not None):
        raise InputError(f"input {name!r} has not one of data and parameter binary_data_size")
    datatype, shape = value.get("datatype"), value.get("shape")
    if size is None:
        tensor = from_numbers(name, datatype, shape, value["data"])
        # JSON has no infinities: the number, such as 1e999, exceeds FP64.
        if tensor.dtype.kind in "fV" and np.isinf(tensor).any():
            raise InputError(f"input {name!r}: a number is beyond the range of {datatype}")
        return name, tensor, 0
    if type(size) is not int or not 0 <= size <= len(rest):
        raise InputError(
            f"input {name!r}: binary_data_size is no number of bytes from 0 to {len(rest)}, which "
            "follow the JSON"
        )
    return name, from_bytes(name, datatype, shape, rest[:size]), size


def _outputs(values: dict[str, Any], binary: bool) -> dict[str, bool]:
    asked: dict[str, bool] = {}
    for position, each in enumerate(_list(values, "outputs")):
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InputError(f"outputs[{position}] is no object with a name")
        name = each["name"]
        if name in asked:
            raise InputError(f"output {name!r} is asked for twice")
        parameters = _object(each, "parameters", f"output {name!r}")
        refuse_untaken(parameters, f"output {name!r}")
        asked[name] = _flag(parameters, "binary_data", f"output {name!r}", default=binary)
    return asked


def _list(values: dict[str, Any], key: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list):
        raise InputError(f"{key} is no list")
    return found


def _object(values: dict[str, Any], key: str, owner: str) -> dict[str, Any]:
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{key} of {owner} is no object")
    return found


def _flag(parameters: dict[str, Any], key: str, owner: str, *, default: bool) -> bool:
    found = parameters.get(key, default)
    if not isinstance(found, bool):
        raise InputError(f"parameter {key!r} of {owner} is neither true nor false")
    return found
