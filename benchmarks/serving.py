"""Measure the server's overhead and the effect of faults: python -m benchmarks.serving [PART]...

In the environment of `make serve-env`, with h2load of Debian's package nghttp2-client, which asks
for the digits model on the virtual GPU, one request after the other; the server's log has the time
of each one's run, so that what the server adds is the client's time less the run's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import psutil
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from onnx import numpy_helper

import boltgen
from benchmarks.beside import against_kserve, grpc_floor
from benchmarks.harness.server import Server, serving
from benchmarks.load import load
from benchmarks.overhead import INPUTS, PROTOCOLS, Asked, overhead
from benchmarks.record import commit, earlier, write
from boltgen.running.artifact import Artifact
from models.digits import MODEL_PATH, load_heldout

_WIDTH = 16
_CLIENTS = 4
# Each client begins with so many uncounted requests.
_WARM_UP = 10
_PARTS = ("session", "overhead", "grpc", "kserve", "faults", "throughput", "killed")
# The least that goes through the whole path: one product of 16 numbers.
_NULL = """
<ir_version: 8, opset_import: ["" : 17]>
null (float[batch, 16] x) => (float[batch, 16] y) {
  y = MatMul (x, w)
}
"""
# The digits model's tensors, and next to nothing between them: a run of the digits model takes all
# cores and caches of the machine for a tenth of a second, as no GPU's does.
_AT_ONCE = """
<ir_version: 8, opset_import: ["" : 17]>
digits_at_once (float[40, 1, 16, 16] input) => (float[40, 10] logits)
<int64[1] from = {0}, int64[1] to = {10}, int64[1] axis = {1}> {
  rows = Flatten (input)
  logits = Slice (rows, from, to, axis)
}
"""


def _asks(server: Server, protocol: str, model: str, x: np.ndarray[Any, Any]) -> Callable[..., Any]:
    """Return a function that asks once, and returns all outputs; for the thread that makes it."""
    if protocol == "rest":
        by_rest = http_client.InferInput(INPUTS[model], list(x.shape), "FP32")
        by_rest.set_data_from_numpy(x, binary_data=True)
        rest = server.rest()
        return lambda **more: rest.infer(model, [by_rest], **more)
    by_rpc = grpc_client.InferInput(INPUTS[model], list(x.shape), "FP32")
    by_rpc.set_data_from_numpy(x)
    rpc = server.rpc()
    return lambda **more: rpc.infer(model, [by_rpc], **more)


def _warmed(server: Server, x: np.ndarray[Any, Any]) -> None:
    """Ask by each protocol, and look at the answers: the null model's weights are the identity's.

    Raises:
        RuntimeError: an answer is wrong.
    """
    for protocol in PROTOCOLS:
        ask = _asks(server, protocol, "null", x)
        for _ in range(_WARM_UP):
            if not np.array_equal(ask().as_numpy("y"), x):
                raise RuntimeError(f"{server.address(protocol)} does not give its input back")


def throughput(server: Server, x: np.ndarray[Any, Any], count: int) -> dict[str, Any]:
    """Requests a second of four clients, and what the process grows by; the null model."""
    process = psutil.Process(server.process.pid)
    found: dict[str, Any] = {}
    _warmed(server, x)
    for protocol in PROTOCOLS:

        def send(requests: int, protocol: str = protocol) -> float:
            address = server.address(protocol)
            given = {"x": x}
            sent = load(address, protocol, "null", given, requests=requests, clients=_CLIENTS)
            return sent.per_second

        def state() -> tuple[float, float, float]:
            answered = server.figure("boltgen_requests_total", 'outcome="ok"')
            return process.memory_info().rss, server.figure("boltgen_device_bytes"), answered

        send(1000)
        before = state()
        rate = send(count)
        after = state()
        found[protocol] = {
            "requests": count,
            "answered": after[2] - before[2],
            "requests_per_second": rate,
            "memory_growth": round(after[0] / before[0] - 1, 5),
            "device_bytes_growth": after[1] - before[1],
        }
    return found


def runs_without_growth(folder: Path, count: int) -> dict[str, Any]:
    """Runs of one session in this process, without a server."""
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    session = boltgen.load(folder).open()
    x = np.ones((4, _WIDTH), np.float32)
    for _ in range(1000):
        session.run({"x": x})
    vgpu.clear_launches()
    process = psutil.Process()
    before = (process.memory_info().rss, len(vgpu.leaks()))
    began = perf_counter()
    for index in range(count):
        session.run({"x": x})
        if index % 1000 == 0:
            vgpu.clear_launches()  # the record of launches is the virtual GPU's, and grows
    seconds = perf_counter() - began
    vgpu.clear_launches()
    after = (process.memory_info().rss, len(vgpu.leaks()))
    return {
        "runs": count,
        "us_per_run": round(1e6 * seconds / count, 1),
        "memory_growth": round(after[0] / before[0] - 1, 5),
        "device_allocations_growth": after[1] - before[1],
    }


_FEW = {"many dimensions", "a head without an end", "too large", "stalled"}


def faults(
    server: Server, x: np.ndarray[Any, Any], want: np.ndarray[Any, Any], count: int
) -> dict[str, Any]:
    """Each fault so often, and whether the next request is answered rightly."""
    host, port = server.http.split(":")
    rng = np.random.default_rng(0)
    path = "/v2/models/null/infer"
    good = b'{"inputs":[{"name":"x","shape":[1,16],"datatype":"FP32","data":[' + b",".join(
        [b"1"] * _WIDTH
    )
    good += b"]}]}"
    kinds: dict[str, Callable[[], object]] = {
        "changed bytes": lambda: server.ask(
            path, bytes(int(each) if rng.random() > 0.01 else 0 for each in good)
        ),
        "cut": lambda: server.ask(path, good[: rng.integers(1, len(good))]),
        "other shape": lambda: server.ask(path, good.replace(b"[1,16]", b"[16,1]")),
        "other type": lambda: server.ask(path, good.replace(b"FP32", b"FP64")),
        "other name": lambda: server.ask(path, good.replace(b'"x"', b'"z"')),
        "many dimensions": lambda: server.ask(
            path, good.replace(b"[1,16]", b"[" + b"2147483647," * 100_000 + b"16]")
        ),
        "shared memory": lambda: server.ask(
            path, good.replace(b'"name"', b'"parameters":{"shared_memory_region":"r"},"name"')
        ),
        "a head without an end": lambda: _long_head(host, int(port)),
        "too large": lambda: _too_large(server, path),
        "no model": lambda: server.ask("/v2/models/none/infer", good),
        "stalled": lambda: _stalled(host, int(port)),
        "no HTTP": lambda: _nonsense(host, int(port)),
        "no gRPC": lambda: _nonsense(*_address(server.grpc)),
    }
    asks = [_asks(server, protocol, "null", x) for protocol in PROTOCOLS]
    wrong = injected = 0
    for name, fault in kinds.items():
        # Bodies that are too large are sent whole, and connections that stall stay open.
        for _ in range(min(count, 20) if name in _FEW else count):
            fault()
            injected += 1
            for ask in asks:
                wrong += not np.array_equal(ask().as_numpy("y"), want)
    return {"kinds": list(kinds), "injected": injected, "wrong_answers": wrong}


def killed(folder: Path, x: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Kill a server while it answers four clients, and start another after it."""
    answers: list[bool] = []
    ended: list[str] = []
    with serving([folder]) as server:

        def client() -> None:
            ask = _asks(server, "rest", "null", x)
            try:
                while True:
                    answers.append(np.array_equal(ask().as_numpy("y"), want))
            except Exception as error:
                ended.append(type(error).__name__)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(answers) < 1000:
            threads[0].join(0.01)
        server.process.kill()
        for thread in threads:
            thread.join()
        status = server.process.wait()
    with serving([folder]) as server:
        again = np.array_equal(_asks(server, "rest", "null", x)().as_numpy("y"), want)
    return {
        "answers": len(answers),
        "wrong_answers": answers.count(False),
        "clients_ended_by": sorted(ended),
        "status": status,
        "answers_when_started_again": again,
    }


def _too_large(server: Server, path: str) -> None:
    # The connection ends where more is sent than the server reads and forgets.
    with contextlib.suppress(OSError):
        server.ask(path, b" " * (65 << 20))


def _address(text: str) -> tuple[str, int]:
    host, port = text.split(":")
    return host, int(port)


_open: list[socket.socket] = []


def _stalled(host: str, port: int) -> None:
    """A client that stays, and says no more."""
    connection = socket.create_connection((host, port))
    connection.sendall(b"POST /v2/models/null/infer HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
    _open.append(connection)


def _long_head(host: str, port: int) -> None:
    with (
        contextlib.suppress(OSError),  # the connection ends before all is sent
        socket.create_connection((host, port)) as connection,
    ):
        connection.sendall(b"GET /v2 HTTP/1.1\r\nX: " + b"a" * (4 << 20))


def _nonsense(host: str, port: int) -> None:
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"\x00\xff" * 50 + b"\r\n\r\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(_PARTS)}; others stay as recorded")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=20, help="of each turn")
    parser.add_argument("--faults", type=int, default=1250, help="of each kind")
    parser.add_argument("--rounds", type=int, default=20, help="against KServe")
    given = parser.parse_args()
    if unknown := [part for part in given.parts if part not in _PARTS]:
        parser.error(f"{', '.join(unknown)} is none of {', '.join(_PARTS)}")
    boltgen.activate("vgpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        null = _compiled(folder)
        x = np.ones((1, _WIDTH), np.float32)
        want = null.run({"x": x})["y"]
        images = next(load_heldout().batches())
        figures = earlier("serving")
        with serving([folder]) as server:
            measures: dict[str, Callable[[], dict[str, Any]]] = {
                "session": lambda: runs_without_growth(folder / "null", given.requests),
                "overhead": lambda: overhead(
                    folder,
                    {
                        "digits": Asked("digits", images),
                        "digits' tensors, null device": Asked("digits_at_once", images),
                        "digits' tensors, null device, by a worker": Asked(
                            "digits_at_once", images, by_worker=True
                        ),
                        "null": Asked("null", x),
                    },
                    given.repeats,
                ),
                "grpc": lambda: grpc_floor(server, folder / "null", x, given.rounds),
                "kserve": lambda: against_kserve(server, x, given.rounds),
                "faults": lambda: faults(server, x, want, given.faults),
                "throughput": lambda: throughput(server, x, given.requests),
                "killed": lambda: killed(folder, x, want),
            }
            for part in given.parts or _PARTS:
                # Others' work on the machine is in every time.
                when = {
                    "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                    "commit": commit(),
                    "load_average": os.getloadavg(),
                }
                figures[part] = when | measures[part]()
            for connection in _open:
                connection.close()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait() == 0
    write(
        "serving",
        figures,
        "beyond the run, p50: 1 ms REST, 0.7 ms gRPC; 0.9 of KServe's requests per second; growth "
        "over 100,000 requests below 1 %; 20 faults or more, no wrong answer, no lost worker",
    )


def _compiled(folder: Path) -> Artifact:
    """Compile the digits model, one of its tensors alone, and the null model, which is returned."""
    boltgen.compile(MODEL_PATH, arch="sm_80").save(folder / "digits")
    onnx.save(onnx.parser.parse_model(_AT_ONCE), folder / "at_once.onnx")
    at_once = boltgen.compile(folder / "at_once.onnx", arch="sm_80")
    at_once.save(folder / "digits_at_once")
    model = onnx.parser.parse_model(_NULL)
    weights = np.eye(_WIDTH, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, folder / "null.onnx")
    null = boltgen.compile(folder / "null.onnx", arch="sm_80", shapes={"x": ("1..8", _WIDTH)})
    null.save(folder / "null")
    return null


if __name__ == "__main__":
    main()
