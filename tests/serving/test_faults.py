"""What goes wrong: the request that does so fails by name, and nothing else does."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

import boltgen
from benchmarks.harness.server import PATIENCE_S, Server, serving
from tests.serving.models import MOST, WIDTH


@pytest.fixture(scope="module")
def server(compiled: Path) -> Iterator[Server]:
    with serving([f"rows={compiled / 'rows'}", compiled / "half"], "--max-body", "1") as found:
        yield found


def rows(count: int, length: int = 1, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng(seed).normal(0, 1, (count, length, WIDTH))
    return numbers.astype(np.float32)


def tensor(array: np.ndarray, **changed: Any) -> dict[str, Any]:
    made = {"name": "x", "shape": array.shape, "datatype": "FP32", "data": array.ravel().tolist()}
    return made | changed


def check_still_right(server: Server, compiled: Path) -> None:
    x = rows(3, 2)
    status, answer = server.infer("rows", [tensor(x)])
    assert status == 200
    (output,) = answer["outputs"]
    want = boltgen.load(compiled / "rows" / "2").run({"x": x})["y"]
    np.testing.assert_array_equal(
        np.array(output["data"], np.float32).reshape(output["shape"]), want
    )


X = rows(2)


@pytest.mark.parametrize(
    ("inputs", "more", "said"),
    [
        ([], {}, "no input 'x'"),
        ([tensor(X), tensor(X, name="z")], {}, "unknown input 'z'"),
        ([tensor(X, name="z")], {}, "no input 'x'"),
        ([tensor(X, datatype="FP64")], {}, "'x' has dtype float64, expected float32"),
        ([tensor(X, shape=[2, WIDTH])], {}, "'x' has shape (2, 16)"),
        ([tensor(X, shape=[2, 1, WIDTH + 1])], {}, "'x'"),
        ([tensor(rows(MOST + 1))], {}, "'x' has batch = 9"),
        ([tensor(X)], {"outputs": [{"name": "q"}]}, "unknown output 'q'"),
        ([tensor(X)], {"parameters": {"timeout": "soon"}}, "'timeout'"),
    ],
)
def test_a_request_that_does_not_fit(
    server: Server, compiled: Path, inputs: list[Any], more: dict[str, Any], said: str
) -> None:
    status, answer = server.infer("rows", inputs, **more)
    assert status == 400
    assert said in answer["error"]
    check_still_right(server, compiled)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (("/v2/models/rows/infer", b"\x00" * 64, {}), 400),
        (("/v2/models/rows/infer", b"{}", {"Inference-Header-Content-Length": "9"}), 400),
        (("/v2/models/rows/infer", b"{}", {"Content-Encoding": "gzip"}), 400),
        (("/v2/models/rows/infer", b" " * ((1 << 20) + 1), {}), 413),
        (("/v2/models/nobody/infer", b"{}", {}), 404),
        (("/v2/models/rows/versions/9/infer", b"{}", {}), 404),
        (("/v2/models/rows/versions/x/infer", b"{}", {}), 404),
        (("/v2/nothing", b"{}", {}), 404),
        (("/v1/models/rows:predict", b"{}", {}), 404),
        (("/v2/models/rows/infer", None, {}), 405),
    ],
)
def test_bodies_and_paths_that_are_none(
    server: Server, compiled: Path, asked: tuple[str, bytes | None, dict[str, str]], status: int
) -> None:
    found, answer = server.ask(*asked)
    assert found == status
    assert set(json.loads(answer)) == {"error"}
    check_still_right(server, compiled)


def message(**changed: Any) -> pb.ModelInferRequest:
    given: dict[str, Any] = {
        "model_name": "rows",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": X.shape}],
        "raw_input_contents": [X.tobytes()],
    }
    return pb.ModelInferRequest(**given | changed)


_FP16 = {"name": "x", "datatype": "FP16", "shape": [4, WIDTH]}


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (message(model_name="nobody"), "NOT_FOUND", "'nobody'"),
        (message(model_version="9"), "NOT_FOUND", "'9'"),
        (message(inputs=[]), "INVALID_ARGUMENT", "raw_input_contents"),
        (message(raw_input_contents=[b"123"]), "INVALID_ARGUMENT", "'x'"),
        (message(raw_input_contents=[]), "INVALID_ARGUMENT", "'x'"),
        (message(outputs=[{"name": "q"}]), "INVALID_ARGUMENT", "'q'"),
        (message(outputs=[{"name": "y"}, {"name": "y"}]), "INVALID_ARGUMENT", "'y'"),
        (message(parameters={"timeout": {"string_param": "5"}}), "INVALID_ARGUMENT", "'timeout'"),
        (message(parameters={"timeout": {"uint64_param": 5}}), "INVALID_ARGUMENT", "'timeout'"),
        (
            message(inputs=[{"name": "x", "datatype": "FP32", "shape": [2**31 - 1] * 1000}]),
            "INVALID_ARGUMENT",
            "'x': shape is no list of 32 extents",
        ),
        (
            message(model_name="half", inputs=[_FP16], raw_input_contents=[]),
            "INVALID_ARGUMENT",
            "raw_input_contents",
        ),
        (
            message(
                inputs=[
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": X.shape,
                        "contents": {"int_contents": [1] * X.size},
                    }
                ],
                raw_input_contents=[],
            ),
            "INVALID_ARGUMENT",
            "int_contents",
        ),
        (message(raw_input_contents=[bytes(1 << 21)]), "RESOURCE_EXHAUSTED", ""),
    ],
)
def test_messages_that_do_not_fit(
    server: Server, compiled: Path, request_: Any, code: str, said: str
) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            GRPCInferenceServiceStub(channel).ModelInfer(request_, timeout=PATIENCE_S)
        assert caught.value.code().name == code
        assert said in caught.value.details()
    check_still_right(server, compiled)


def test_thousands_of_malformed_requests(server: Server, compiled: Path) -> None:
    """Bytes of good requests, changed at random, over one connection each thread."""
    good = json.dumps({"inputs": [tensor(X)]}).encode()
    before = server.figure("boltgen_device_bytes")

    def send(seed: int) -> set[int]:
        rng = np.random.default_rng(seed)
        found = set()
        for _ in range(100):
            body = bytearray(good)
            for place in rng.integers(0, len(body), 4):
                body[place] = rng.integers(0, 256)
            found.add(server.ask("/v2/models/rows/infer", bytes(body[: rng.integers(1, 4000)]))[0])
        return found

    with ThreadPoolExecutor(4) as pool:
        statuses = set().union(*pool.map(send, range(10)))
    # One in a few changes a digit of a number, or of a name that nobody reads.
    assert 400 in statuses
    assert statuses <= {200, 400}
    check_still_right(server, compiled)
    assert server.figure("boltgen_device_bytes") == before


def test_clients_that_stall_or_vanish(server: Server, compiled: Path) -> None:
    host, port = server.http.split(":")
    head = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    stalled = [socket.create_connection((host, int(port))) for _ in range(20)]
    for each in stalled:
        each.sendall(head)
    check_still_right(server, compiled)
    for each in stalled:
        each.close()
    check_still_right(server, compiled)
    nonsense = socket.create_connection((host, int(port)))
    nonsense.sendall(b"\x16\x03\x01" * 100 + b"\r\n\r\n")
    assert b"400" in nonsense.recv(4096)
    nonsense.close()
    with socket.create_connection(tuple(server.grpc.split(":"))) as rpc:
        rpc.sendall(b"GET / HTTP/1.1\r\n\r\n")
        check_still_right(server, compiled)


def test_a_full_queue_a_deadline_and_a_drain(compiled: Path) -> None:
    """One request waits for others to go with it, and so holds the only worker."""
    wide = ("--queue", "1", "--max-delay-us", "60000000", "--grace", str(PATIENCE_S))
    x, other = rows(1, 1, 1), rows(1, 2, 2)
    want = [boltgen.load(compiled / "rows" / "1").run({"x": array})["y"] for array in (x, other)]
    with (
        serving([f"rows={compiled / 'rows' / '1'}"], *wide) as server,
        grpc_client.InferenceServerClient(server.grpc) as client,
        ThreadPoolExecutor(2) as pool,
    ):

        def ask(array: np.ndarray) -> Any:
            given = grpc_client.InferInput("x", list(array.shape), "FP32")
            return client.infer("rows", [given.set_data_from_numpy(array)])

        first = pool.submit(ask, x)
        # Figures are read between two requests: what is in flight has been in the queue.
        server.until("boltgen_requests_in_flight", 1)
        server.until("boltgen_queue_requests", 0)
        status, answer = server.infer("rows", [tensor(other)], parameters={"timeout": 1000})
        assert status == 504
        assert "1000 us" in answer["error"]
        second = pool.submit(ask, other)
        server.until("boltgen_requests_in_flight", 2)
        status, answer = server.infer("rows", [tensor(other)])
        assert status == 503
        assert "'rows' has 1 requests waiting" in answer["error"]
        with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
            ask(other)
        assert not first.done()
        assert not second.done()
        assert server.terminate() == 0
        for answer, array in zip((first, second), want, strict=True):
            np.testing.assert_array_equal(answer.result(PATIENCE_S).as_numpy("y"), array)
    outcomes = [line["outcome"] for line in server.log if line.get("event") == "failure"]
    assert outcomes.count("deadline") == 1
    assert outcomes.count("busy") >= 2
    assert server.log[-1]["event"] == "stopped"


def test_who_has_not_sent_all_when_time_is_over_is_told_so(compiled: Path) -> None:
    head = b"POST /v2/models/half/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    with serving([compiled / "half"], "--grace", "1") as server:
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head)
            assert server.ask("/v2/health/live")[0] == 200
            assert server.terminate() == 0
            answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"the server ends" in answer
    assert not any("exception" in line for line in server.log)


def test_a_client_that_goes_takes_its_request_along(compiled: Path) -> None:
    """What is held for others, for a minute, is forgotten when nobody reads its answer."""
    body = b'{"inputs": [' + json.dumps(tensor(rows(1, 1))).encode() + b"]}"
    head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with serving([f"rows={compiled / 'rows' / '1'}"], "--max-delay-us", "60000000") as server:
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + body)
            server.until("boltgen_requests_in_flight", 1)
        server.until("boltgen_requests_in_flight", 0)
        assert server.figure("boltgen_batch_rows_count") == 0
    outcomes = [line["outcome"] for line in server.log if line.get("event") == "failure"]
    assert outcomes == ["cancelled"]


def test_requests_that_meet_are_put_together(compiled: Path) -> None:
    """The server waits a minute for eight rows, and answers when they are there."""
    arrays = [rows(count, 2, count) for count in (1, 2, 5)]
    wide = ("--max-delay-us", "60000000")
    with (
        serving([f"rows={compiled / 'rows' / '1'}"], *wide) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        answers = list(pool.map(lambda array: server.infer("rows", [tensor(array)]), arrays))
        assert server.figure("boltgen_batch_requests_sum") == 3
        assert server.figure("boltgen_batch_requests_count") == 1
        assert server.figure("boltgen_batch_rows_sum") == MOST
    together = boltgen.load(compiled / "rows" / "1").run({"x": np.concatenate(arrays)})["y"]
    found = [
        np.array(each["data"], np.float32).reshape(each["shape"])
        for status, answer in answers
        for each in answer["outputs"]
        if status == 200
    ]
    np.testing.assert_array_equal(np.concatenate(found), together)


def test_a_model_that_was_changed_on_disk_is_not_loaded(compiled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    shutil.copytree(compiled / "rows" / "1", folder)
    with serving([folder]) as server:
        with (folder / "model.so").open("r+b") as file:
            file.seek(200)
            file.write(b"?")
        status, answer = server.ask("/v2/repository/models/rows/load", b"")
        assert status >= 400
        assert "model.so is not the file that was compiled" in json.loads(answer)["error"]
        assert server.infer("rows", [tensor(X)])[0] == 200  # what ran before still does
