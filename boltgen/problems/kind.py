"""Kind: a kind of problems as a plug-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from boltgen.problems.inputs import LayerInputs
from boltgen.problems.reference import AnyArray, Enclosure
from boltgen.problems.workload import Layer

# From a layer, its A and its other inputs to the exact results and the bounds of a correct kernel.
Enclose: TypeAlias = Callable[[Layer, AnyArray, LayerInputs], tuple[Enclosure, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of problems.

    `problem_type` is its class, which has operands, sizes at run time, FLOPs and bytes: see
    `problems.problem.Problem`. `enclose` is the oracle of a layer; None where it is the product of
    A and B that the class has. The device has a reference of products alone: the oracle of any
    other kind runs on the host.
    """

    problem_type: type[Any]
    enclose: Enclose | None = None
