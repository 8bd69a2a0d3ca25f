"""The telemetry of a server: figures for Prometheus, and one line of JSON per event."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from prometheus_client import Counter, Gauge, Histogram

# From a tenth of a millisecond, below the shortest request, to ten seconds.
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_OF_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

PHASES = Histogram(
    "boltgen_request_seconds",
    "Time of a request's phases: decode, queue, run, encode, all",
    ("model", "version", "protocol", "phase"),
    buckets=_SECONDS,
)
BATCH_ROWS = Histogram(
    "boltgen_batch_rows", "Rows that went through one run", ("model", "version"), buckets=_ROWS
)
BATCH_REQUESTS = Histogram(
    "boltgen_batch_requests", "Requests of one run", ("model", "version"), buckets=_ROWS
)
WAITING = Gauge("boltgen_queue_requests", "Requests that wait", ("model", "version"))
IN_FLIGHT = Gauge("boltgen_requests_in_flight", "Requests that are being answered", ("protocol",))
ANSWERS = Counter(
    "boltgen_requests", "Requests, by what became of them", ("model", "protocol", "outcome")
)
_NAMES = ("decode", "queue", "run", "encode", "all")
DEVICE_BYTES = Gauge("boltgen_device_bytes", "Memory of the device that is in use")


@functools.cache
def phases_of(model: str, version: str, protocol: str) -> Mapping[str, Histogram]:
    """Return the figures of an answered request's phases, by name.

    The result is cached, because to find figures by labels takes as long as to count in them.
    """
    return {name: PHASES.labels(model, version, protocol, name) for name in _NAMES}


class QueueFigures:
    """Count the events of one queue."""

    def __init__(self, model: str, version: str) -> None:
        self._waiting = WAITING.labels(model, version)
        self._rows = BATCH_ROWS.labels(model, version)
        self._requests = BATCH_REQUESTS.labels(model, version)

    def waiting(self, requests: int) -> None:
        """Note the number of waiting requests."""
        self._waiting.set(requests)

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Note a run with its requests, rows and seconds."""
        del seconds
        self._requests.observe(requests)
        self._rows.observe(rows)


def count_device_bytes(allocated: Callable[[], int]) -> None:
    """Call `allocated` for the device's memory in use, whenever figures are read."""
    DEVICE_BYTES.set_function(lambda: float(allocated()))


class JsonLines(logging.Formatter):
    """A log record as one line of JSON: time, level, logger, message, and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: each for name, each in vars(record).items() if name not in _OF_RECORD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json(level: int) -> None:
    """Write the log of the server and its libraries to standard error, as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name, least in (
        ("boltgen.serve", level),
        ("boltgen.running", level),
        ("kserve", logging.WARNING),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(least)
        logger.propagate = False
