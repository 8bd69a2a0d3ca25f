"""The protocol between the client and a worker of a check: one JSON object per line.

client -> worker   Setup                  once
worker -> client   READY                  once the library is loaded
client -> worker   Job                    then, again and again:
worker -> client   Verdict
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from boltgen.errors import RecordError
from boltgen.families.json_form import decode, encode
from boltgen.intake.json_text import JsonError, parse_json
from boltgen.ir.kernel import Launch
from boltgen.problems.workload import Workload

READY = b"ready"
# A line is longer only if a library prints to the worker's standard output.
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The library to check, the virtual GPU's folder, the architecture, and the checks."""

    library: str
    vgpu: str
    arch: str
    checks: str


# Arguments of a launch that its description omits at this value; others are omitted at 1.
_PLAIN = {"raster": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A launch of the kernel `symbol` with random operands, and the workload that it computes.

    The worker does not need the kernel's family. If `is_sliced`, the operands of the epilogue
    differ between the matmuls of a batch.
    """

    symbol: str
    workload: Workload
    launch: Launch
    is_sliced: bool = False

    def __str__(self) -> str:
        known = self.workload.first.problem.sizes
        chosen = (
            f", {name}={value}"
            for name, value in self.launch.sizes.items()
            if name not in known and value != _PLAIN.get(name, 1) and "[" not in name
        )
        more = ", operands for each product" if self.is_sliced else ""
        return f"{self.workload.describe()}{''.join(chosen)}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a launch; `wrong` describes the failure, and is empty if there is none.

    `worst_error` is the largest error of an element as a fraction of its bound, or None if no
    output was compared. `findings` come from the virtual GPU's checks.
    """

    wrong: str
    worst_error: float | None
    findings: tuple[str, ...] = ()
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether this launch shows no reason against shipping the kernel."""
        return not self.wrong and not self.findings and self.worst_error is not None


def to_line(message: Setup | Job | Verdict) -> bytes:
    """Return `message` as a line of JSON."""
    return json.dumps(encode(type(message), message)).encode() + b"\n"


def from_line(kind: Any, line: bytes) -> Any:
    """Return the message of type `kind` in `line`.

    Raises:
        RecordError: the line has no such message.
    """
    try:
        form = parse_json(line, MOST_LINE_BYTES)
    except JsonError as error:
        raise RecordError(f"{error}: {line[:100]!r}") from error
    return decode(kind, form)
