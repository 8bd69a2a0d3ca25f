"""KernelFamily: a record of the functions that turn a workload into a kernel.

A family is a value. Code that enumerates, selects, renders, launches, measures or stores kernels
uses the families in `families.registry`, and names none of them. See docs/develop/kernel-family.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.codegen.views import View
from boltgen.families.constants import ModelConstants
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

# The multiprocessors of the device that executes boundaries before a kernel ships: so few that a
# persistent kernel's threadblocks have several tiles in a small problem.
CHECKED_SMS = 8


class Config(Protocol):
    """One setting of a family's free parameters: a frozen, ordered dataclass; `str` is for people.

    `family` is the name of its family.
    """

    family: ClassVar[str]

    @property
    def tile(self) -> str:
        """The tile as people write it: "128x128x32"."""
        ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


C = TypeVar("C", bound=Config)
_Asked_contra = TypeVar("_Asked_contra", bound=Config, contravariant=True)
Given = ParamSpec("Given")
Made = TypeVar("Made")


_BOUNDS = {"tensor": "the tensor cores", "l2": "L2", "dram": "DRAM", "launch": "its launch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The analytical model's time of one launch, in microseconds.

    `bound_by` names the part that takes longest; `details` has more, for people. `figures` are
    numbers behind the time, by names that each family chooses; learned models read them.
    """

    time_us: float
    bound_by: str
    details: str
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def bound(self) -> str:
        """Describe in a line what bounds the launch."""
        return f"bound by {_BOUNDS.get(self.bound_by, self.bound_by)}: {self.details}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The resources of a threadblock on a multiprocessor; registers are estimated, per thread."""

    registers: int
    shared_memory_bytes: int
    warps: int


class Level(Enum):
    """The part of a family's space that a kernel library holds."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


class Predict(Protocol[_Asked_contra]):
    """The analytical model: the time of a legal configuration, by default by shipped constants."""

    def __call__(
        self,
        workload: Workload,
        config: _Asked_contra,
        arch: Arch,
        constants: ModelConstants | None = None,
        /,
    ) -> Prediction:
        """Return the predicted time."""
        ...


class TimesUs(Protocol[_Asked_contra]):
    """The times of `Predict` for several legal configurations, at least one, at once."""

    def __call__(
        self,
        workload: Workload,
        configs: Sequence[_Asked_contra],
        arch: Arch,
        constants: ModelConstants | None = None,
        /,
    ) -> NDArray[np.float64]:
        """Return the times in microseconds."""
        ...


def of_layer(
    function: Callable[Concatenate[Layer, Given], Made],
) -> Callable[Concatenate[Workload, Given], Made]:
    """Return a function of a layer as a function of the workload with only this layer."""

    def of_workload(workload: Workload, /, *given: Given.args, **named: Given.kwargs) -> Made:
        return function(workload.single, *given, **named)

    return of_workload


def of_anchor(
    function: Callable[Concatenate[Problem, ElementwiseGraph, Given], Made],
) -> Callable[Concatenate[Workload, Given], Made]:
    """Return a function of a problem and its epilogue as one of the workload with only these."""

    def of_workload(workload: Workload, /, *given: Given.args, **named: Given.kwargs) -> Made:
        layer = workload.single
        return function(layer.problem, layer.epilogue, *given, **named)

    return of_workload


def _itself(config: C) -> C:
    return config


def always(value: Made) -> Callable[..., Made]:
    """Return a function that returns `value`, whatever it is asked."""
    return lambda *_: value


_UNRANKED, _NOT_HELD = always(None), always(frozenset[Any]())
_IN_NO_LIBRARY = always(dict[str, list[tuple[KernelSpec, ...]]]())


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily(Generic[C]):
    """One way to compute workloads: a record of functions.

    The fields:

    - `config_type` is the class of its configurations, which has the family's name.
    - `rejects` says why the family cannot compute a workload in any configuration; None if it can.
      All other functions are only called for workloads that it accepts.
    - `space` has the configurations of a workload.
    - `violations` names every rule that a configuration breaks; none if it is legal.
    - `footprint` is a configuration's share of a multiprocessor.
    - `predict` is the analytical model. `times_us` predicts many configurations faster; a family
      may lack it.
    - `instructions` counts the instructions of a legal configuration that are known without a
      compiler.
    - `traits` are the compiled part of a workload: a frozen dataclass without problem sizes.
    - `compiled` is the compiled part of a configuration; the rest are launch arguments.
    - `launch` has the arguments with which a kernel computes a workload.
    - `boundaries` are small workloads for the same kernel whose edges reveal its mistakes; the
      kernel is executed on them before it ships. There is at least one, and each is legal.
    - `stem` is the readable part of a kernel's symbol: `gemm_sm80_128x128x32_s3`.
    - `describe` has texts, by label, on what a kernel computes and how.
    - `includes` are the headers that a kernel's text includes.
    - `view` has the variables of the kernel's template, from the kernel and its two symbols.
    - `ranking` is the workload whose times rank the kernels, and whose kernels a library holds;
      None if a kernel depends too much on its fused operators.
    - `library` has the kernels of a library by kind ("gemm"), in groups that are compiled together.
      Its argument is elements per vector access.
    - `held` has the compiled configurations that a library of a level holds for a workload.
    """

    config_type: type[C]
    rejects: Callable[[Workload, Arch], str | None]
    space: Callable[[Workload, Arch], Space[C]]
    violations: Callable[[Workload, C, Arch], tuple[Violation, ...]]
    footprint: Callable[[Workload, C], Footprint]
    predict: Predict[C]
    instructions: Callable[[Workload, C, Arch], Instructions]
    traits: Callable[[Workload], Any]
    launch: Callable[[Workload, C], Launch]
    boundaries: Callable[[Workload, C, Arch], tuple[Workload, ...]]
    stem: Callable[[KernelSpec], str]
    describe: Callable[[KernelSpec], Mapping[str, str]]
    includes: Callable[[KernelSpec], tuple[str, ...]]
    view: Callable[[KernelSpec, str, str], View]
    times_us: TimesUs[C] | None = None
    compiled: Callable[[C], C] = _itself
    ranking: Callable[[Workload], Workload | None] = _UNRANKED
    library: Callable[[Arch, Level, Sequence[int]], Mapping[str, list[tuple[KernelSpec, ...]]]] = (
        _IN_NO_LIBRARY
    )
    held: Callable[[Workload, Arch, Level], frozenset[C]] = _NOT_HELD

    @property
    def name(self) -> str:
        """The name of the family, from the class of its configurations."""
        return self.config_type.family
