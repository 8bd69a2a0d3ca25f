"""Formulas over one configuration or many: over a number, or a column with one number for each.

A model of time that uses these functions is written once, and predicts hundreds of configurations
at once. For one configuration they use Python's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def least(a: Any, b: Any) -> Any:
    """Return the lesser of two, elementwise."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a <= b else b


def most(a: Any, b: Any) -> Any:
    """Return the greater of two, elementwise."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a >= b else b


def ceil_div(a: Any, b: Any) -> Any:
    """Return the quotient of two whole numbers, rounded up."""
    return -(-a // b)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """Return `then` where the condition holds, else `otherwise`, elementwise."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise
