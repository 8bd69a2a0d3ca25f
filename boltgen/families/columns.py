"""Formulas over one configuration or many: a number, or a column of numbers, one of each.

A model of time whose formulas take both is written once, and asked about hundreds of configurations
at once. Questions about one configuration use Python's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def least(a: Any, b: Any) -> Any:
    """The lesser of two, row by row."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a <= b else b


def most(a: Any, b: Any) -> Any:
    """The greater of two, row by row."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a >= b else b


def ceil_div(a: Any, b: Any) -> Any:
    """Return how many of `b` cover `a`, both of them whole numbers."""
    return -(-a // b)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where a condition holds, row by row."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise
