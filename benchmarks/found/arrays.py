"""Make the input arrays of a found model: similar to its intended inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Maker: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True, slots=True)
class Input:
    """An input's shape, with every dimension fixed, and what makes its elements."""

    shape: tuple[int, ...]
    make: Maker


def normal(*shape: int, spread: float = 1.0) -> Input:
    """Random numbers around zero, as features have them after a norm."""
    return Input(shape, lambda rng, extents: spread * rng.standard_normal(extents))


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Input:
    """Random numbers in a range, as pixels, angles and spectra have them."""
    return Input(shape, lambda rng, extents: rng.uniform(low, high, extents))


def whole(*shape: int, below: int, low: int = 0) -> Input:
    """Random whole numbers: bytes, and rows of a table of `below` rows."""
    return Input(shape, lambda rng, extents: rng.integers(low, below, extents))


def filled(*shape: int, value: float = 0.0) -> Input:
    """One value everywhere: a state before the first step, a mask, a sampling rate."""
    return Input(shape, lambda rng, extents: np.full(extents, value))


def tone(*shape: int, amplitude: float = 0.3) -> Input:
    """A sound of 16 kHz: a tone of 440 Hz that comes and goes, and noise of a tenth of it."""

    def make(rng: np.random.Generator, extents: tuple[int, ...]) -> Array:
        seconds = np.arange(int(np.prod(extents))) / 16000
        loudness = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * seconds)
        clean = loudness * np.sin(2 * np.pi * 440 * seconds)
        noise = 0.1 * rng.standard_normal(seconds.shape)
        sound: Array = amplitude * (clean + noise)
        return sound.reshape(extents)

    return Input(shape, make)


def photograph(*shape: int, low: float = 0.0, high: float = 1.0, last: bool = False) -> Input:
    """Smooth patches with edges and a little noise, in a range; the channels are `last` or second.

    Pure noise would hide what a detector does with edges, and leave its outputs near zero.
    """

    def make(rng: np.random.Generator, extents: tuple[int, ...]) -> Array:
        n, c, h, w = (extents[0], extents[3], *extents[1:3]) if last else extents
        patches = rng.uniform(0.1, 0.9, (n, c, -(-h // 16), -(-w // 16)))
        large = patches.repeat(16, axis=2).repeat(16, axis=3)[:, :, :h, :w]
        picture = np.clip(large + 0.03 * rng.standard_normal(large.shape), 0, 1)
        scaled: Array = low + (high - low) * picture
        return scaled.transpose(0, 2, 3, 1) if last else scaled

    return Input(shape, make)


# A few letters, five rows of three dots each, for a reader of text to find.
_LETTERS = ("010101111101101", "110101110101110", "111100110100111", "111010010010111")


def writing(*shape: int, low: float = -1.0, high: float = 1.0, dot: int = 6) -> Input:
    """Dark letters in lines on white paper, with a little noise; a dot has `dot` pixels a side."""

    def make(rng: np.random.Generator, extents: tuple[int, ...]) -> Array:
        h, w = extents[-2:]
        paper = np.ones((h, w))
        for top in range(dot, h - 6 * dot + 1, 9 * dot):
            for left in range(dot, w - 4 * dot + 1, 4 * dot):
                letter = np.array(list(_LETTERS[rng.integers(len(_LETTERS))])).reshape(5, 3) == "1"
                inked = letter.repeat(dot, axis=0).repeat(dot, axis=1)
                paper[top : top + 5 * dot, left : left + 3 * dot][inked] = 0
        noisy = np.clip(paper + 0.03 * rng.standard_normal(extents), 0, 1)
        scaled: Array = low + (high - low) * noisy
        return scaled

    return Input(shape, make)


_SOURCE = (
    b"import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n"
)


def short_file(*shape: int, padding: int) -> Input:
    """The bytes of a short program, at the beginning and again at the end, and padding between."""

    def make(rng: np.random.Generator, extents: tuple[int, ...]) -> Array:
        del rng
        array = np.full(extents, padding)
        array[..., : len(_SOURCE)] = array[..., -len(_SOURCE) :] = list(_SOURCE)
        return array

    return Input(shape, make)
