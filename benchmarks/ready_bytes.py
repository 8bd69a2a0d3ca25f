"""What gRPC itself takes: servers that give bytes back which are ready, to be loaded beside ours.

python -m benchmarks.ready_bytes asyncio|threads PORT

They neither read a request nor make an answer; nothing of boltgen's or of KServe's is in them.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

_THREADS = 2
_OPTIONS = [("grpc.so_reuseport", 0)]
_READY: bytes = pb.ModelInferResponse(
    model_name="null",
    model_version="1",
    outputs=[
        pb.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=(1, 16)),
    ],
    raw_output_contents=[np.ones((1, 16), np.float32).tobytes()],
).SerializeToString()


def _serve(server: Any, infer: Any, port: int) -> None:
    methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    handler = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{port}")


async def _on_a_loop(port: int) -> None:
    async def infer(*_: object) -> bytes:
        return _READY

    server = grpc.aio.server(options=_OPTIONS)
    _serve(server, infer, port)
    await server.start()
    await server.wait_for_termination()


def _in_threads(port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=_OPTIONS)
    _serve(server, lambda *_: _READY, port)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    kind, number = sys.argv[1], int(sys.argv[2])
    if kind == "threads":
        _in_threads(number)
    else:
        asyncio.run(_on_a_loop(number))
