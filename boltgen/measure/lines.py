"""Lines between a worker and its client, one JSON object each; and the worker's end of them."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from boltgen.errors import RecordError
from boltgen.families.json_form import decode, encode
from boltgen.intake.json_text import JsonError, parse_json

# A line is longer only where a library prints into the conversation.
MOST_LINE_BYTES = 1 << 20

_PARENT_POLL_SECONDS = 0.5


def to_line(kind: object, message: object) -> bytes:
    """Return `message` as a line; it is one of the messages of the union `kind`."""
    return json.dumps(encode(kind, message)).encode() + b"\n"


def from_line(kind: object, line: bytes) -> object:
    """Return the message of the union `kind` that `line` holds.

    Raises:
        RecordError: the line holds no such message.
    """
    try:
        form = parse_json(line, MOST_LINE_BYTES)
    except JsonError as error:
        raise RecordError(f"{error}: {line[:100]!r}") from error
    return decode(kind, form)


def work(serve: Callable[[BinaryIO, BinaryIO], None]) -> NoReturn:
    """Let `serve` read requests and write answers; then end this process.

    Requests come from standard input, and answers go to standard output. Libraries that print
    reach standard error.
    """
    end_with_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)
    answers.flush()
    # A device after a fault can hang or crash in the runtime's own farewell, and a library of a
    # model in its own. Memory that TVM keeps until the end is no leak of the model.
    os._exit(0)


def end_with_parent(before: Callable[[], object] | None = None) -> None:
    """End this process when its parent has ended, even while a kernel hangs; call `before` then."""
    threading.Thread(target=_end_with, args=(os.getppid(), before), daemon=True).start()


def _end_with(parent: int, before: Callable[[], object] | None) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    try:
        if before:
            before()
    finally:
        os._exit(1)
