"""The one parser of whole numbers from people and the environment."""

from __future__ import annotations

import re

# The most that an option can ask for: larger numbers are mistakes.
MOST_JOBS = 4096
MOST_ROWS = 10**9
MOST_EXTENT = 2**31 - 1

# Most characters of a quoted text.
_MOST_SHOWN = 60

# ASCII only: str.isdigit takes a superscript two for a digit, and int does not.
_DIGITS = re.compile(r"[0-9]+")


def whole_number(text: str, least: int, most: int) -> int:
    """The number that `text` writes in decimal digits, with spaces around it allowed.

    Raises:
        ValueError: it is no such number, or is not in `least` to `most`; the message is a clause
            that names `text` and the bounds.
    """
    stripped = text.strip()
    wrong = f"{shown(text)} is no whole number in {least} to {most}"
    # Python refuses to convert thousands of digits, and takes long for fewer.
    if not _DIGITS.fullmatch(stripped) or len(stripped.lstrip("0")) > len(str(most)):
        raise ValueError(wrong)
    number = int(stripped)
    if not least <= number <= most:
        raise ValueError(wrong)
    return number


def counted(number: int, noun: str, plural: str = "") -> str:
    """Join a number and its noun: "1 launch", "2 launches"; the plural ends in s by default."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shown(text: str) -> str:
    """Quote `text` for a message: its beginning, with control sequences of a terminal escaped."""
    quoted = ascii(text) if any(not c.isprintable() for c in text) else repr(text)
    return quoted if len(quoted) <= _MOST_SHOWN else quoted[: _MOST_SHOWN - 3] + "..."
