"""Make texts of the model (names, labels, notes) safe inside generated C++.

Such a text may contain quotes, newlines, comment ends, backslashes and any Unicode. It enters
generated code only as a `//` comment, a string literal or a checked identifier.
"""

from __future__ import annotations

import re
import struct
import textwrap
from collections.abc import Iterable

from boltgen.errors import InvalidProblemError

# Longer text is truncated: nobody reads a comment with a hundred names of nodes.
_MAX_COMMENT = 400
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# Any other character may stand in a comment. A backslash could continue the line, `*/` and `/*`
# confuse readers, and control characters or Unicode could hide the text.
_COMMENT_UNSAFE = re.compile(r"[^ -\[\]-~]")


def comment_text(text: str, *, keep_indent: bool = False) -> str:
    """Return `text` as one line of printable ASCII without backslashes and comment marks."""
    line = text if keep_indent else " ".join(text.split())
    line = _COMMENT_UNSAFE.sub("?", line)
    line = line.replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")
    return line if len(line) <= _MAX_COMMENT else line[: _MAX_COMMENT - 3] + "..."


def comment_field(name: str, text: str) -> tuple[str, ...]:
    """Return comment lines of a labelled field, without `//`, wrapped to 100 columns."""
    return tuple(
        textwrap.wrap(
            comment_text(text),
            width=96,
            initial_indent=f"{name:<10} ",
            subsequent_indent=" " * 11,
            break_on_hyphens=False,
        )
        or [name]
    )


def comment_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines with comment marks, each made safe again."""
    return tuple(f"// {comment_text(line, keep_indent=True)}".rstrip() for line in lines)


def string_literal(text: str) -> str:
    """Return a C++ string literal whose value is `text` in UTF-8."""

    def escape(byte: int) -> str:
        # Three octal digits end the escape; a question mark could begin a trigraph.
        plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
        return chr(byte) if plain else f"\\{byte:03o}"

    encoded = text.encode("utf-8", errors="replace")
    return '"' + "".join(escape(byte) for byte in encoded) + '"'


def identifier(name: str) -> str:
    """Return `name` if it is a C identifier.

    Raises:
        InvalidProblemError: it is not.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise InvalidProblemError(
            f"{name!r} cannot be a C symbol: use letters, digits and underscores, at most 200, "
            "not beginning with a digit"
        )
    return name


def float_literal(value: float) -> str:
    """Return an exact FP32 literal: `0x1.8p+1f`; values beyond FP32 become infinite."""
    try:
        rounded = float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        rounded = float("inf") if value > 0 else float("-inf")
    if rounded in (float("inf"), float("-inf")):
        return "CUDART_INF_F" if rounded > 0 else "-CUDART_INF_F"
    mantissa, _, exponent = rounded.hex().partition("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}f"
