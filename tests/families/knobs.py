"""Settings and parts of spaces of knobs, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boltgen.families.space import AnySpace, Knob


def default(space: AnySpace) -> Any:
    """Return the configuration with every knob at its default, or None."""
    return space.config_at({knob.name: knob.default for knob in space.knobs})


def pinned(space: AnySpace, **values: int) -> AnySpace:
    """Return the space with the named knobs fixed at these values."""
    held = {name: Knob(name, (value,), value) for name, value in values.items()}
    knobs = tuple(held.get(knob.name, knob) for knob in space.knobs)
    return replace(space, knobs=knobs, kernels=None)
