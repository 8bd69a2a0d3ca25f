"""`boltgen serve` as a process of its own, on ports that nobody else has."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

ROOT = Path(__file__).resolve().parent.parent.parent
# For a machine that does much else.
PATIENCE_S = 300


@dataclass
class Server:
    """A server that runs, and what it has logged."""

    process: subprocess.Popen[str]
    http: str
    grpc: str
    log: list[dict[str, Any]] = field(default_factory=list)

    def rest(self, **options: Any) -> http_client.InferenceServerClient:
        """Return a client of the REST interface."""
        return http_client.InferenceServerClient(
            self.http, connection_timeout=PATIENCE_S, network_timeout=PATIENCE_S, **options
        )

    def rpc(self) -> grpc_client.InferenceServerClient:
        """Return a client of the gRPC interface."""
        return grpc_client.InferenceServerClient(self.grpc)

    def ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a plain request."""
        request = urllib.request.Request(f"http://{self.http}{path}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def infer(self, model: str, inputs: list[dict[str, Any]], **more: Any) -> tuple[int, Any]:
        """Return the status and the answer of an inference by REST."""
        status, answer = self.ask(
            f"/v2/models/{model}/infer", json.dumps({"inputs": inputs, **more}).encode()
        )
        return status, json.loads(answer)

    def address(self, protocol: str) -> str:
        """Host and port of `rest` or `grpc`."""
        return {"rest": self.http, "grpc": self.grpc}[protocol]

    def figure(self, name: str, label: str = "") -> float:
        """The sum of a figure over its labels, or of those where one is as `label` writes it."""
        text = self.ask("/metrics")[1].decode()
        labels = rf"\{{.*{re.escape(label)}.*\}}" if label else r"(?:\{.*\})?"
        found = re.findall(rf"^{re.escape(name)}{labels} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def until(self, name: str, value: float) -> None:
        """Ask for a figure until it is `value`."""
        waiting = threading.Event()
        for _ in range(PATIENCE_S * 100):
            if self.figure(name) == value:
                return
            assert self.process.poll() is None
            waiting.wait(0.01)
        raise AssertionError(f"{name} is never {value}: {self.figure(name)}")

    def terminate(self) -> int:
        """Tell it to stop; its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def serving(sources: Sequence[object], *options: str) -> Iterator[Server]:
    """A server whose models are ready."""
    command = [sys.executable, "-m", "boltgen", "serve", *map(str, sources)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--grpc-port", "0", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    lines: list[str] = []
    errors = process.stderr
    reader = threading.Thread(target=lambda: lines.extend(errors))
    reader.start()
    try:
        first = process.stdout.readline()
        found = re.search(r"http://(\S+), gRPC on (\S+)", first)
        if found is None:
            process.wait(PATIENCE_S)
            reader.join()
            raise AssertionError(f"{first}\n{''.join(lines)}")
        server = Server(process, found[1], found[2])
        ready = process.stdout.readline()
        if not ready.startswith("ready"):
            process.wait(PATIENCE_S)
            reader.join()
            raise AssertionError(f"{ready}\n{''.join(lines)}")
        assert server.ask("/v2/health/ready")[0] == 200
        yield server
        if process.poll() is None:
            assert server.terminate() == 0
        reader.join()
        server.log += [json.loads(line) for line in lines if line.startswith("{")]
        assert not any("Traceback" in line for line in lines if not line.startswith("{")), lines
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        reader.join()
        errors.close()
