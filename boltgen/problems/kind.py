"""The interface of a kind of problems, which is a plug-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from boltgen.problems.inputs import LayerInputs
from boltgen.problems.reference import AnyArray, Enclosure
from boltgen.problems.workload import Layer

# Maps a layer, its A and its other inputs to the exact results and the bounds of a correct kernel.
Enclose: TypeAlias = Callable[[Layer, AnyArray, LayerInputs], tuple[Enclosure, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of problems.

    `problem_type` is its class; see `problems.problem.Problem`. `enclose` is the oracle of a layer,
    or None if the class's own `product` of A and B is enough. Only kinds without `enclose` have a
    reference on the device; the oracle of any other kind runs on the host.
    """

    problem_type: type[Any]
    enclose: Enclose | None = None
