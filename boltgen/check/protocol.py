"""The protocol of a check's worker and its client: one JSON object per line.

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
# A line is longer only where a library prints into the conversation.
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The library to check, the virtual GPU's folder, the device to imitate, and the checks."""

    library: str
    vgpu: str
    arch: str
    checks: str


# Arguments of a launch that are not worth a word where they have this value, and not 1.
_PLAIN = {"raster": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A launch of the kernel `symbol` with random operands, and its workload.

    A worker need not know the kernel's family. `is_sliced`: the operands of the epilogue differ
    between the products of a batch.
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
    """The result of a launch: `wrong` says what is wrong with it, and is empty if nothing is.

    `worst_error` is the largest error of an element relative to its bound, None without an output
    to compare; `findings` come from the virtual GPU's checks.
    """

    wrong: str
    worst_error: float | None
    findings: tuple[str, ...] = ()
    seconds: float

    @property
    def passed(self) -> bool:
        """Return whether the kernel may ship, as far as this launch shows."""
        return not self.wrong and not self.findings and self.worst_error is not None


def to_line(message: Setup | Job | Verdict) -> bytes:
    """`message` as a line."""
    return json.dumps(encode(type(message), message)).encode() + b"\n"


def from_line(kind: Any, line: bytes) -> Any:
    """The message of type `kind` that `line` holds.

    Raises:
        RecordError: it holds none.
    """
    try:
        form = parse_json(line, MOST_LINE_BYTES)
    except JsonError as error:
        raise RecordError(f"{error}: {line[:100]!r}") from error
    return decode(kind, form)
