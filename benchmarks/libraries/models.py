"""The table of the libraries' models: random weights, small configurations."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.libraries.convolutions import CONVOLUTIONS
from benchmarks.libraries.diffusion import DIFFUSION
from benchmarks.libraries.samples import LibraryModel
from benchmarks.libraries.text import TEXT
from benchmarks.libraries.vision import VISION

MODELS: tuple[LibraryModel, ...] = (*TEXT, *VISION, *DIFFUSION, *CONVOLUTIONS)


def models_named(names: Sequence[str]) -> tuple[LibraryModel, ...]:
    """Return the models of these names, in their order; all if no names are given.

    Raises:
        KeyError: there is none of a name.
    """
    known = {model.name: model for model in MODELS}
    for name in names:
        if name not in known:
            raise KeyError(f"there is no model {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) or MODELS
