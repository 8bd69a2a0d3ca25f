"""The code that REST and gRPC share: run a request, time its phases, and name its outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from boltgen.errors import (
    BoltgenError,
    BusyError,
    DeadlineError,
    InputError,
    NotReadyError,
    TooLargeError,
    UnknownModelError,
)
from boltgen.serve.repository import Repository
from boltgen.serve.rest import InferRequest
from boltgen.serve.telemetry import ANSWERS, IN_FLIGHT, phases_of
from boltgen.serve.tensors import Array
from boltgen.serve.tracing import traced

_log = logging.getLogger("boltgen.serve")
Answer = TypeVar("Answer")

# The model's name in figures if it is unknown: clients must not create new time series.
_NO_MODEL = ""
# The most logged characters of a client's text, which may be as long as a body.
_MOST_LOGGED = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request: its name in figures, the HTTP status, and the gRPC code's name."""

    name: str
    http: int
    grpc: str


_OUTCOMES: dict[type[BaseException], Outcome] = {
    InputError: Outcome("invalid", 400, "INVALID_ARGUMENT"),
    UnknownModelError: Outcome("unknown_model", 404, "NOT_FOUND"),
    TooLargeError: Outcome("too_large", 413, "RESOURCE_EXHAUSTED"),
    BusyError: Outcome("busy", 503, "RESOURCE_EXHAUSTED"),
    NotReadyError: Outcome("not_ready", 503, "UNAVAILABLE"),
    DeadlineError: Outcome("deadline", 504, "DEADLINE_EXCEEDED"),
}
_FAILED = Outcome("failed", 500, "INTERNAL")
OK = Outcome("ok", 200, "OK")
CANCELLED = Outcome("cancelled", 499, "CANCELLED")


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a request that failed with `error`."""
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return next((each for kind, each in _OUTCOMES.items() if isinstance(error, kind)), _FAILED)


def said_of(error: BaseException) -> str:
    """Return the message for a client; an internal error gets a general message."""
    return str(error) if isinstance(error, BoltgenError) else "internal error; the log describes it"


def refused(
    protocol: str,
    name: str,
    error: BaseException,
    *,
    known: str = _NO_MODEL,
    request: InferRequest | None = None,
) -> None:
    """Count and log a request for the model `name`, the client's word, that failed with `error`."""
    outcome = outcome_of(error)
    ANSWERS.labels(known, protocol, outcome.name).inc()
    _log.log(
        logging.ERROR if outcome is _FAILED else logging.WARNING,
        "request failed",
        exc_info=error if outcome is _FAILED else None,
        extra={
            "event": "failure",
            "outcome": outcome.name,
            "model": name[:_MOST_LOGGED],
            "protocol": protocol,
            "request": ((request and request.request_id) or "")[:_MOST_LOGGED] or None,
            "reason": str(error)[:_MOST_LOGGED],
        },
    )


async def answered(
    repository: Repository,
    protocol: str,
    name: str,
    version: str | None,
    *,
    carrier: Callable[[], Mapping[str, str]],
    decode: Callable[[], InferRequest],
    encode: Callable[[str, InferRequest, dict[str, Array]], Answer],
) -> Answer:
    """Decode a request, run it, and return `encode` of the version, the request and its outputs.

    `carrier` returns the metadata of the client's request, including its trace.

    Raises:
        BoltgenError: the request failed; `outcome_of` classifies it.
    """
    began_ns, began = time.time_ns(), time.perf_counter()
    in_flight = IN_FLIGHT.labels(protocol)
    in_flight.inc()
    known = _NO_MODEL
    request: InferRequest | None = None
    try:
        model = repository.model(name, version)
        known = model.name
        request = decode()
        decoded = time.perf_counter()
        try:
            outputs, timing = await model.infer(request)
        except NotReadyError:
            # The model was replaced after it was looked up.
            fresh = repository.model(name, version)
            if fresh is model:
                raise
            model = fresh
            outputs, timing = await model.infer(request)
        ran = time.perf_counter()
        answer = encode(model.version, request, outputs)
    except BaseException as error:
        refused(protocol, name, error, known=known, request=request)
        attributes = {"model": known, "protocol": protocol, "outcome": outcome_of(error).name}
        seconds = time.perf_counter() - began
        traced(carrier, attributes, began_ns=began_ns, seconds=seconds, phases={}, error=error)
        raise
    finally:
        in_flight.dec()
    ended = time.perf_counter()
    phases = {
        "decode": decoded - began,
        "queue": timing.queued_s,
        "run": timing.run_s,
        "encode": ended - ran,
        "all": ended - began,
    }
    for phase, figure in phases_of(model.name, model.version, protocol).items():
        figure.observe(phases[phase])
    ANSWERS.labels(model.name, protocol, OK.name).inc()
    done = decoded - began, ran - began, ended - began
    traced(
        carrier,
        {
            "model": model.name,
            "version": model.version,
            "protocol": protocol,
            "outcome": OK.name,
            "rows": timing.rows,
        },
        began_ns=began_ns,
        seconds=done[2],
        phases={
            "decode": (0.0, done[0]),
            "queue": (done[0], done[0] + timing.queued_s),
            "run": (done[1] - timing.run_s, done[1]),
            "encode": done[1:],
        },
    )
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "answered",
            extra={
                "event": "answer",
                "model": model.name,
                "version": model.version,
                "protocol": protocol,
                "request": request.request_id,
                "rows": timing.rows,
                **{f"{phase}_us": round(1e6 * seconds) for phase, seconds in phases.items()},
            },
        )
    return answer
