"""What importing a model gives, whichever IR it is imported to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or output: its name in the model, and what it holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model as a module with the entry `main`; inputs and outputs in calling order."""

    module: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
