"""Measure gRPC itself: servers that return ready bytes, to be loaded beside ours.

python -m benchmarks.ready_bytes asyncio|threads MODEL PORT

They neither read a request nor make an answer; nothing of boltgen's or of KServe's is in them, but
for a run of the compiled model MODEL, where that is not empty. Each run's seconds are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import grpc
import numpy as np
import uvloop
from tritonclient.grpc import service_pb2 as pb

import boltgen

_THREADS = 2
_LEAST_RUNS = 10
_OPTIONS = [("grpc.so_reuseport", 0)]
_READY: bytes = pb.ModelInferResponse(
    model_name="null",
    model_version="1",
    outputs=[
        pb.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=(1, 16)),
    ],
    raw_output_contents=[np.ones((1, 16), np.float32).tobytes()],
).SerializeToString()


def _run_of(folder: str) -> Callable[[], object]:
    if not folder:
        return lambda: None
    boltgen.activate("vgpu")
    session = boltgen.load(folder).open(graphs=1)
    inputs = session.zeros()

    def run() -> None:
        began = perf_counter()
        session.run(inputs)
        print(perf_counter() - began, flush=True)

    for _ in range(_LEAST_RUNS):
        session.run(inputs)
    return run


def _serve(server: Any, infer: Any, port: int) -> None:
    methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    handler = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{port}")


async def _on_a_loop(run: Callable[[], object], port: int) -> None:
    async def infer(*_: object) -> bytes:
        run()
        return _READY

    server = grpc.aio.server(options=_OPTIONS)
    _serve(server, infer, port)
    await server.start()
    await server.wait_for_termination()


def _in_threads(run: Callable[[], object], port: int) -> None:
    def infer(*_: object) -> bytes:
        run()
        return _READY

    server = grpc.server(ThreadPoolExecutor(_THREADS), options=_OPTIONS)
    _serve(server, infer, port)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("asyncio", "threads"))
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    asked = parser.parse_args()
    if asked.kind == "threads":
        _in_threads(_run_of(asked.model), asked.port)
    else:
        uvloop.run(_on_a_loop(_run_of(asked.model), asked.port))
