"""Options of commands that are one of an enum's values."""

from __future__ import annotations

import argparse
from enum import Enum


def add_choice(parser: argparse.ArgumentParser, option: str, default: Enum, text: str) -> None:
    """An option that takes a value of the enum of `default`, and is that without."""
    values = type(default)
    parser.add_argument(
        option,
        type=values,
        default=default,
        choices=list(values),
        metavar="|".join(one.value for one in values),
        help=text,
    )
