"""The sources of a model's tensors: random numbers, trained values, or one repeated sequence.

Needs numpy alone, so that a model can be given the same parameters where there is no ONNX.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, ...]
FloatArray: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """A normal distribution of parameters around `mean`."""

    mean: float = 0.0
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """A uniform distribution of parameters over [low, high)."""

    low: float
    high: float


Distribution: TypeAlias = Normal | Uniform
ParameterSource: TypeAlias = Callable[[str, Shape, Distribution], FloatArray]


@dataclass(frozen=True, slots=True)
class RandomParameters:
    """Draws each tensor from its own generator, so no tensor depends on which others exist."""

    seed: int

    def __call__(self, name: str, shape: Shape, distribution: Distribution) -> FloatArray:
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        match distribution:
            case Normal(mean=mean, std=std):
                values = generator.standard_normal(shape, dtype=np.float32)
                values *= np.float32(std)
                if mean:
                    values += np.float32(mean)
            case Uniform(low=low, high=high):
                values = generator.random(shape, dtype=np.float32)
                values *= np.float32(high - low)
                values += np.float32(low)
        return values


@dataclass(frozen=True, slots=True)
class TrainedParameters:
    """Looks each tensor up by name; the distribution is ignored."""

    tensors: Mapping[str, FloatArray]

    def __call__(self, name: str, shape: Shape, distribution: Distribution) -> FloatArray:
        if name not in self.tensors:
            raise ValueError(f"no trained tensor is named {name!r}, shape {shape}")
        values = self.tensors[name]
        if values.shape != shape:
            raise ValueError(f"trained tensor {name!r} has shape {values.shape}, not {shape}")
        return values


# A prime, so that neighbouring rows differ whatever a tensor's extents, and however it is
# transposed; small, for each layer's scale makes other numbers of it, which a file has to hold.
PERIOD = 1021


@cache
def _sequence() -> FloatArray:
    """The standard normal numbers that `PeriodicParameters` repeat."""
    return np.random.default_rng(PERIOD).standard_normal(PERIOD, dtype=np.float32)


@dataclass(slots=True)
class PeriodicParameters:
    """Parameters like random ones, whose file compresses to almost nothing.

    A normal distribution's tensor repeats one sequence of `PERIOD` numbers, which begins anywhere;
    a uniform one's is constant, so that batch norms scale all channels of a filter alike.
    `recipe` says what was asked for: with it the same tensors are made again.
    """

    recipe: dict[str, tuple[Shape, Distribution]] = field(default_factory=dict)

    def __call__(self, name: str, shape: Shape, distribution: Distribution) -> FloatArray:
        self.recipe[name] = (shape, distribution)
        return periodic(name, shape, distribution)


def periodic(name: str, shape: Shape, distribution: Distribution) -> FloatArray:
    """The tensor `name` of `PeriodicParameters`."""
    match distribution:
        case Normal(mean=mean, std=std):
            first = zlib.crc32(name.encode()) % PERIOD
            values = np.roll(_sequence(), -first) * np.float32(std) + np.float32(mean)
            return np.resize(values, shape)
        case Uniform(low=low, high=high):
            return np.full(shape, (low + high) / 2, np.float32)
