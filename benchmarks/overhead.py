"""Measure the time that the server adds to a run, beside the time that gRPC's library adds."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beside import waits_beyond_runs
from benchmarks.harness.server import serving
from benchmarks.load import load

# The uncounted requests at the beginning of each turn, and the turns of each model.
_WARM_UP, _TURNS = 5, 10
PROTOCOLS = ("rest", "grpc")
INPUTS = {"digits": "input", "digits_at_once": "input", "null": "x"}


def _percentiles(seconds: list[float]) -> dict[str, float]:
    return {
        name: round(1e3 * float(np.percentile(seconds, at)), 4)
        for name, at in (("p50_ms", 50), ("p90_ms", 90), ("p99_ms", 99))
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom a request asks, with what, and whether a worker of the model's runs it in any case."""

    model: str
    x: np.ndarray[Any, Any]
    by_worker: bool = False


def overhead(folder: Path, asked: Mapping[str, Asked], repeats: int) -> dict[str, Any]:
    """Measure the client's waiting time and the server's processor time beyond the run, per
    request.

    The server logs every request with its phases, which is in these times, too.
    """
    turns = [(name, protocol) for name in asked for protocol in PROTOCOLS] * _TURNS
    requests = _WARM_UP + repeats
    waited: dict[tuple[str, str], list[list[float]]] = {turn: [] for turn in turns}
    bare: dict[str, list[float]] = {"asyncio": [], "threads": []}
    images = {INPUTS["digits"]: asked["digits"].x}
    with contextlib.ExitStack() as stack:
        # A delay has no effect on a model whose requests go alone, except that no request is run at
        # once.
        servers = {
            by_worker: stack.enter_context(serving([folder], "--log-requests", *options))
            for by_worker, options in ((False, ()), (True, ("--max-delay-us", "1")))
        }
        sends = {
            kind: stack.enter_context(waits_beyond_runs(kind, folder / "digits", images))
            for kind in bare
        }
        # In turn, so that what else the machine does is in all of them.
        for position, (name, protocol) in enumerate(turns):
            each = asked[name]
            sent = load(
                servers[each.by_worker].address(protocol),
                protocol,
                each.model,
                {INPUTS[each.model]: each.x},
                requests=requests,
            )
            waited[name, protocol].append(sent.seconds)
            if position % len(waited) == 0:
                for kind, send in sends.items():
                    bare[kind] += send(requests)[_WARM_UP:]
    answers = {
        by_worker: iter(line for line in server.log if line.get("event") == "answer")
        for by_worker, server in servers.items()
    }
    beyond: dict[tuple[str, str], list[float]] = {turn: [] for turn in waited}
    inside: dict[tuple[str, str], list[float]] = {turn: [] for turn in waited}
    for position, (name, protocol) in enumerate(turns):
        own = list(itertools.islice(answers[asked[name].by_worker], requests))
        if {(line["model"], line["protocol"]) for line in own} != {(asked[name].model, protocol)}:
            raise RuntimeError("the server's log has other requests than were sent")
        wholes = waited[name, protocol][position // len(waited)]
        for whole, line in list(zip(wholes, own, strict=True))[_WARM_UP:]:
            beyond[name, protocol].append(whole - line["run_us"] / 1e6)
            inside[name, protocol].append((line["all_us"] - line["run_us"]) / 1e6)
    found: dict[str, Any] = {name: {} for name in asked}
    for (name, protocol), several in waited.items():
        wholes = [each for some in several for each in some[_WARM_UP:]]
        found[name][protocol] = {
            "client": _percentiles(wholes),
            "beyond_the_run": _percentiles(beyond[name, protocol]),
            "beyond_the_run_in_the_server": _percentiles(inside[name, protocol]),
        }
    return found | {
        f"digits, gRPC's ready bytes by {kind}": {"grpc": {"beyond_the_run": _percentiles(waits)}}
        for kind, waits in bare.items()
    }
