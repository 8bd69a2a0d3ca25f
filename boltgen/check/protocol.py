"""What a check's worker and its client say to each other: one JSON object a line.

client -> worker   Setup                  once
worker -> client   READY                  once the library is loaded
client -> worker   Job                    then, again and again:
worker -> client   Verdict
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from boltgen.errors import RecordError
from boltgen.intake.json_text import JsonError, parse_json
from boltgen.ir.chain import AnyProblem, describe_any
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.move import Move
from boltgen.tune.json_form import decode, encode

READY = b"ready"
# A line is longer only where a library prints into the conversation.
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel's launch on a problem with random operands.

    Of a chain the epilogue is the identity: its layers have theirs. `is_sliced`: the operands of
    the epilogue differ between the products of a batch.
    """

    problem: AnyProblem
    epilogue: Epilogue
    swizzle: int = 1
    split_k: int = 1
    is_sliced: bool = False

    def __str__(self) -> str:
        more = f", split_k={self.split_k}" if self.split_k > 1 else ""
        more += f", swizzle={self.swizzle}" if self.swizzle > 1 else ""
        more += ", operands for each product" if self.is_sliced else ""
        return f"{describe_any(self.problem)}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLaunch:
    """A layout transform of random images."""

    move: Move
    images: int
    height: int
    width: int
    source_channels: int
    target_channels: int

    def __str__(self) -> str:
        return (
            f"{self.move}({self.images} images of {self.height}x{self.width}, "
            f"{self.source_channels} to {self.target_channels} channels)"
        )


AnyLaunch: TypeAlias = Launch | MoveLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The library to check, the virtual GPU's folder, and which device and checks it is to have."""

    library: str
    vgpu: str
    device: str
    checks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A launch of the kernel `symbol`."""

    symbol: str
    launch: AnyLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a launch went: `wrong` says what is wrong with it, and is empty where nothing is.

    `worst_error` is the largest error of an element relative to its bound, None where there was no
    output to compare; `findings` are what the virtual GPU's checks say.
    """

    wrong: str
    worst_error: float | None
    findings: tuple[str, ...] = ()
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the kernel may ship, as far as this launch tells."""
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
