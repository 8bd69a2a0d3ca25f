"""The server beside others, which are loaded in turn with it: KServe's own, and gRPC's alone."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import IO, Any

import numpy as np
import psutil

from benchmarks.harness.server import ROOT, Server
from benchmarks.load import load

_CLIENTS = 4
# Requests that one server gets before another has its turn, and how many of them warm it.
_ROUND, _WARM_UP = 200, 10


@contextlib.contextmanager
def _started(
    module: str, *arguments: str, ports: int, said: IO[str] | int = subprocess.DEVNULL
) -> Iterator[tuple[Any, list[int]]]:
    """A module's process, whose last arguments are so many ports, and these."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(ports)]
        free = [int(each.getsockname()[1]) for each in taken]
    command = [sys.executable, "-m", module, *arguments, *map(str, free)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=quiet, text=True)
    try:
        yield process, free
    finally:
        process.terminate()
        process.wait()


def _until(process: subprocess.Popen[str], answers: Callable[[], bool]) -> None:
    while not answers():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} has ended")
        sleep(0.1)


@contextlib.contextmanager
def kserve_null() -> Iterator[Server]:
    """KServe's own server with a model that answers at once."""
    with _started("benchmarks.kserve_null", ports=2) as (process, (http, rpc)):
        server = Server(process, f"127.0.0.1:{http}", f"127.0.0.1:{rpc}")

        def answers() -> bool:
            with contextlib.suppress(urllib.error.URLError):
                return server.ask("/v2/health/ready")[0] == 200
            return False

        _until(process, answers)
        yield server


@contextlib.contextmanager
def ready_bytes(
    kind: str, model: str = "", said: IO[str] | int = subprocess.DEVNULL
) -> Iterator[Server]:
    """gRPC's library with bytes that are ready, on an event loop ("asyncio") or in "threads".

    With a `model`, a folder, each request runs it besides, and its seconds are written to `said`.
    """
    with _started("benchmarks.ready_bytes", kind, model, ports=1, said=said) as (process, (port,)):

        def answers() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                return True
            return False

        _until(process, answers)
        yield Server(process, "", f"127.0.0.1:{port}")


@dataclass(slots=True)
class _Sent:
    """The cost of a server's requests, by the client's clock and in the server's processor time."""

    seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    processor_s: float = 0.0
    requests: int = 0


def _in_turn(
    servers: Mapping[str, Server], protocol: str, x: np.ndarray[Any, Any], clients: int, rounds: int
) -> dict[str, _Sent]:
    """Load each server with the null model's requests, round by round."""
    found = {name: _Sent() for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            process, sent = psutil.Process(server.process.pid), found[name]
            before = process.cpu_times()
            address = server.address(protocol)
            got = load(address, protocol, "null", {"x": x}, requests=_ROUND, clients=clients)
            after = process.cpu_times()
            sent.seconds += got.seconds[_WARM_UP:]
            sent.rates.append(got.per_second)
            sent.processor_s += after.user + after.system - before.user - before.system
            sent.requests += _ROUND
    return found


def against_kserve(server: Server, x: np.ndarray[Any, Any], rounds: int) -> dict[str, Any]:
    """Requests a second of the null model and of KServe's own trivial one, in turn, round by round.

    Our model runs on the virtual GPU; KServe's gives its input back.
    """
    found: dict[str, Any] = {}
    with kserve_null() as other:
        servers = {"boltgen": server, "kserve": other}
        for protocol in ("rest", "grpc"):
            for clients in (1, _CLIENTS):
                _in_turn(servers, protocol, x, clients, 1)
                sent = _in_turn(servers, protocol, x, clients, rounds)
                rates = [each.rates for each in sent.values()]
                ratios = [ours / theirs for ours, theirs in zip(*rates, strict=True)]
                found[f"{protocol}, {clients} clients"] = {
                    f"{name}_per_second": round(float(np.median(each.rates)), 1)
                    for name, each in sent.items()
                } | {"ratio": round(float(np.median(ratios)), 3)}
    return found


@contextlib.contextmanager
def waits_beyond_runs(
    kind: str, model: Path, inputs: dict[str, np.ndarray[Any, Any]]
) -> Iterator[Callable[[int], list[float]]]:
    """A function that sends so many requests to gRPC's library, which does no more than to run the
    model and to send bytes that are ready: seconds that a client waits beyond each run.
    """
    with (
        tempfile.NamedTemporaryFile("w") as said,
        Path(said.name).open() as runs,
        ready_bytes(kind, str(model), said) as server,
    ):
        address = server.address("grpc")

        def send(requests: int) -> list[float]:
            sent = load(address, "grpc", model.name, inputs, requests=requests)
            pairs = zip(sent.seconds, map(float, runs.readlines()), strict=True)
            return [whole - run for whole, run in pairs]

        yield send


def grpc_floor(server: Server, null: Path, x: np.ndarray[Any, Any], rounds: int) -> dict[str, Any]:
    """Time a request to gRPC servers that send ready bytes, and to ours.

    Ours runs the null model in the folder `null` for each request, two of the others do besides.
    Processor time is all of a process's, user and system.
    """
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        servers = {
            f"ready_bytes_{place}{what}": stack.enter_context(ready_bytes(kind, model))
            for what, model in (("", ""), (", and a run", str(null)))
            for place, kind in (("on_a_loop", "asyncio"), ("in_threads", "threads"))
        }
        servers |= {"boltgen": server, "kserve": stack.enter_context(kserve_null())}
        for clients in (1, _CLIENTS):
            _in_turn(servers, "grpc", x, clients, 1)
            found[f"{clients} clients"] = {
                name: {
                    "p50_ms": round(1e3 * float(np.median(sent.seconds)), 3),
                    "processor_us": round(1e6 * sent.processor_s / sent.requests),
                }
                for name, sent in _in_turn(servers, "grpc", x, clients, rounds).items()
            }
    return found
