"""Requests of tritonclient, which nobody here wrote, over REST and gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import boltgen
from benchmarks.harness.server import Server, serving
from tests.serving.models import LONGEST, MOST, NUMPY, WIDTH

DATATYPES = {
    "rows": {"x": ("FP32", (3, 2, WIDTH))},
    "half": {"x": ("FP16", (4, WIDTH))},
    "brain": {"x": ("BF16", (4, WIDTH))},
    "narrow": {"x": ("FP16", (4, WIDTH))},
    "whole": {"a": ("INT32", (4,)), "b": ("INT64", (4,))},
}


@pytest.fixture(scope="module")
def server(compiled: Path) -> Iterator[Server]:
    with serving([compiled]) as found:
        yield found


def numbers(model: str, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(-9, 9, shape).astype(NUMPY[datatype])
        for name, (datatype, shape) in DATATYPES[model].items()
    }


def asked(library: Any, model: str, arrays: dict[str, np.ndarray], **binary: bool) -> list[Any]:
    made = []
    for name, array in arrays.items():
        datatype = DATATYPES[model][name][0]
        tensor = library.InferInput(name, list(array.shape), datatype)
        made.append(tensor.set_data_from_numpy(array, **binary))
    return made


def expected(compiled: Path, model: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    folder = compiled / model
    return boltgen.load(folder / "1" if model == "rows" else folder).run(arrays)


@pytest.mark.parametrize("model", DATATYPES)
def test_binary_tensors_over_rest(server: Server, compiled: Path, model: str) -> None:
    arrays = numbers(model)
    want = expected(compiled, model, arrays)
    with server.rest() as client:
        outputs = [http_client.InferRequestedOutput(name, binary_data=True) for name in want]
        found = client.infer(
            model, asked(http_client, model, arrays, binary_data=True), outputs=outputs
        )
        without = client.infer(model, asked(http_client, model, arrays, binary_data=True))
    for name, array in want.items():
        np.testing.assert_array_equal(
            found.as_numpy(name), array.astype(found.as_numpy(name).dtype)
        )
        np.testing.assert_array_equal(without.as_numpy(name), found.as_numpy(name))


@pytest.mark.parametrize("model", DATATYPES)
def test_tensors_over_grpc(server: Server, compiled: Path, model: str) -> None:
    arrays = numbers(model)
    want = expected(compiled, model, arrays)
    with server.rpc() as client:
        found = client.infer(model, asked(grpc_client, model, arrays), request_id="seven")
    assert found.get_response().id == "seven"
    for name, array in want.items():
        np.testing.assert_array_equal(
            found.as_numpy(name), array.astype(found.as_numpy(name).dtype)
        )


@pytest.mark.parametrize("model", DATATYPES)
def test_numbers_as_json(server: Server, compiled: Path, model: str) -> None:
    """Those of FP16 and BF16 too, for which tritonclient has no JSON."""
    arrays = numbers(model)
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": DATATYPES[model][name][0],
            "data": array.astype(np.float64).tolist()
            if array.dtype.kind not in "iu"
            else array.tolist(),
        }
        for name, array in arrays.items()
    ]
    status, answer = server.infer(model, inputs, id="eight")
    assert (status, answer["id"], answer["model_name"]) == (200, "eight", model)
    want = expected(compiled, model, arrays)
    for output in answer["outputs"]:
        have = np.array(output["data"]).reshape(output["shape"])
        np.testing.assert_array_equal(have, want[output["name"]].astype(have.dtype))


def test_metadata_has_shapes_versions_and_ranges(server: Server) -> None:
    with server.rest() as rest, server.rpc() as rpc:
        told = rest.get_model_metadata("rows")
        assert told["versions"] == ["1", "2"]
        assert told["inputs"] == [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [-1, -1, WIDTH],
                "parameters": {"ranges": f"1..{MOST},1..{LONGEST},{WIDTH}"},
            }
        ]
        assert told["parameters"]["max_batch"] == MOST
        message = rpc.get_model_metadata("rows")
        assert list(message.inputs[0].shape) == [-1, -1, WIDTH]
        assert list(message.versions) == ["1", "2"]
        assert rest.get_server_metadata()["name"] == "boltgen"
        assert rest.is_server_live() and rpc.is_server_live() and rpc.is_server_ready()


def test_a_model_with_halves_at_its_border_says_so(server: Server) -> None:
    with server.rest() as rest:
        told = rest.get_model_metadata("narrow")
        assert {each["datatype"] for each in (*told["inputs"], *told["outputs"])} == {"FP16"}
        wide = http_client.InferInput("x", [4, WIDTH], "FP32")
        wide.set_data_from_numpy(np.zeros((4, WIDTH), np.float32))
        refused = "'x' has dtype float32, expected float16: convert it"
        with pytest.raises(InferenceServerException, match=refused):
            rest.infer("narrow", [wide])


def test_versions_are_asked_for_by_name(server: Server, compiled: Path) -> None:
    arrays = numbers("rows")
    with server.rest() as rest, server.rpc() as rpc:
        for client, library in ((rest, http_client), (rpc, grpc_client)):
            assert client.is_model_ready("rows", "1")
            for version, want in (("", "2"), ("1", "1")):
                found = client.infer(
                    "rows", asked(library, "rows", arrays), model_version=version
                ).get_response()
                have = found["model_version"] if library is http_client else found.model_version
                assert have == want
            with pytest.raises(InferenceServerException, match="no version '3', only 1, 2"):
                client.infer("rows", asked(library, "rows", arrays), model_version="3")


def test_a_model_whose_rows_depend_on_each_other_is_not_batched(server: Server) -> None:
    status, told = server.ask("/v2/models/mixed")
    assert status == 200
    assert json.loads(told)["parameters"]["max_batch"] == 1


def test_models_come_and_go_by_grpc(server: Server) -> None:
    """Triton's message has a model's name where KServe's has none."""
    with server.rpc() as client:
        client.unload_model("brain")
        states = {each.name: each.state for each in client.get_model_repository_index().models}
        assert (states["half"], states["brain"]) == ("READY", "UNAVAILABLE")
        ready = service_pb2.RepositoryIndexRequest(ready=True)
        found = client._client_stub.RepositoryIndex(ready).models
        assert {each.name for each in found} == {n for n, s in states.items() if s == "READY"}
        elsewhere = service_pb2.RepositoryIndexRequest(repository_name="r")
        with pytest.raises(grpc.RpcError, match="repository_name 'r' is unknown"):
            client._client_stub.RepositoryIndex(elsewhere)
        with pytest.raises(InferenceServerException, match="'brain' was unloaded: load it first"):
            client.infer("brain", asked(grpc_client, "brain", numbers("brain")))
        client.load_model("brain")
        client.infer("brain", asked(grpc_client, "brain", numbers("brain")))
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match="'nobody'"):
                call("nobody")
        message = service_pb2.RepositoryModelLoadRequest(repository_name="r", model_name="brain")
        with pytest.raises(grpc.RpcError, match="repository_name 'r'"):
            client._client_stub.RepositoryModelLoad(message)
        # KServe's own message.
        loading = client._channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryModelLoad",
            request_serializer=lambda name: bytes([10, len(name)]) + name,
        )
        assert b"brain" in loading(b"brain")


def test_a_model_is_loaded_as_its_folder_has_it(server: Server) -> None:
    for client in (server.rest(), server.rpc()):
        with (
            client,
            pytest.raises(InferenceServerException, match="'half' is loaded as its folder has it"),
        ):
            client.load_model("half", config='{"max_batch_size": 4}')


@pytest.mark.parametrize("library", [http_client, grpc_client])
def test_what_other_servers_extend_the_protocol_by(server: Server, library: Any) -> None:
    client = server.rest() if library is http_client else server.rpc()
    classes = library.InferRequestedOutput("y", class_count=2)
    shared = library.InferRequestedOutput("y")
    shared.set_shared_memory("region", 4)
    elsewhere = library.InferInput("x", [4, WIDTH], "FP16")
    elsewhere.set_shared_memory("region", 4)
    with client:
        for output in (classes, shared):
            with pytest.raises(InferenceServerException, match="of output 'y' is not taken"):
                client.infer("half", asked(library, "half", numbers("half")), outputs=[output])
        with pytest.raises(InferenceServerException, match="of input 'x' is not taken"):
            client.infer("half", [elsewhere])


def test_models_come_and_go(server: Server) -> None:
    with server.rest() as client:
        client.unload_model("half")
        assert not client.is_model_ready("half")
        states = {each["name"]: each["state"] for each in client.get_model_repository_index()}
        assert (states["half"], states["brain"]) == ("UNAVAILABLE", "READY")
        with pytest.raises(InferenceServerException, match="'half' was unloaded: load it first"):
            client.infer("half", asked(http_client, "half", numbers("half")))
        client.load_model("half")
        assert client.is_model_ready("half")
        client.infer("half", asked(http_client, "half", numbers("half")))
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match="'nobody'"):
                call("nobody")
