"""The layer that the programs here compile: FP16, in Relax and in Relay, with its right result."""

from __future__ import annotations

import numpy as np

M, K, N = 24, 64, 40


def arrays() -> dict[str, np.ndarray]:
    """Activations (M, K), weights (K, N) and bias (N,)."""
    rng = np.random.default_rng(7)
    shapes = {"x": (M, K), "w": (K, N), "b": (N,)}
    return {name: rng.uniform(-1, 1, shape).astype(np.float16) for name, shape in shapes.items()}


def expected() -> np.ndarray:
    """The softmax of relu(x w + b), (M, N)."""
    x, w, b = (array.astype(np.float64) for array in arrays().values())
    active = np.maximum(x @ w + b, 0)
    powers = np.exp(active - active.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def check(actual: np.ndarray) -> None:
    """Compare with the first rows of `expected`.

    The softmax's arguments are below 32 and off by 2^-11 of themselves, so its results, which are
    rounded once more, are off by 32 * 2^-11 of themselves, twice: for numerator and sum.
    """
    want = expected()[: len(actual)]
    assert actual.shape == want.shape
    assert np.all(np.abs(actual - want) <= (2 * 32 + 1) * 2.0**-11 * np.abs(want) + 2.0**-24)
