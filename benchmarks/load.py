"""Load an inference server by h2load, of Debian's package nghttp2-client, over REST and gRPC.

A request costs h2load some ten microseconds; it costs a client in Python a millisecond.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as http_client
from tritonclient.grpc import service_pb2 as pb

_REST_HEADER = "inference-header-content-length"


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds of each request, in the order of their ends, and requests a second of all."""

    seconds: list[float]
    per_second: float


def load(
    address: str,
    protocol: str,
    model: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    *,
    requests: int,
    clients: int = 1,
) -> Load:
    """Send so many equal requests, each client one after the other.

    Raises:
        RuntimeError: h2load is not installed, or a request failed. gRPC's own status is not seen.
    """
    if shutil.which("h2load") is None:
        raise RuntimeError("h2load is missing: apt-get install nghttp2-client")
    body, headers, path = _request(protocol, model, inputs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "body").write_bytes(body)
        command = ["h2load", "-n", str(requests), "-c", str(clients), "-m", "1"]
        command += ["-d", str(folder / "body"), f"--log-file={folder / 'log'}"]
        command += [f"--header={key}: {value}" for key, value in headers.items()]
        command += ["--h1"] if protocol == "rest" else []
        told = subprocess.run(
            [*command, f"http://{address}{path}"], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split("\t") for line in (folder / "log").read_text().splitlines()]
    if f"{requests} succeeded" not in told:
        raise RuntimeError(f"of {requests} requests to {address}{path} some failed: {told}")
    (rate,) = re.findall(r"finished in .*, ([0-9.]+) req/s", told)
    return Load(seconds=[int(row[2]) / 1e6 for row in rows], per_second=float(rate))


def _request(
    protocol: str, model: str, inputs: dict[str, np.ndarray[Any, Any]]
) -> tuple[bytes, dict[str, str], str]:
    """Body, headers and path of a request whose tensors are FP32 and binary."""
    if protocol == "rest":
        tensors = []
        for name, array in inputs.items():
            tensors.append(http_client.InferInput(name, list(array.shape), "FP32"))
            tensors[-1].set_data_from_numpy(array, binary_data=True)
        body, header = http_client.InferenceServerClient.generate_request_body(tensors)
        headers = {_REST_HEADER: str(header), "content-type": "application/octet-stream"}
        return body, headers, f"/v2/models/{model}/infer"
    message = pb.ModelInferRequest(
        model_name=model,
        inputs=[
            pb.ModelInferRequest.InferInputTensor(name=name, datatype="FP32", shape=array.shape)
            for name, array in inputs.items()
        ],
        raw_input_contents=[array.tobytes() for array in inputs.values()],
    ).SerializeToString()
    # A message of gRPC: not compressed, its length, and itself.
    framed = b"\0" + len(message).to_bytes(4, "big") + message
    headers = {"content-type": "application/grpc", "te": "trailers"}
    return framed, headers, "/inference.GRPCInferenceService/ModelInfer"
