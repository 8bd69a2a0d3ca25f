"""KernelFamily: a record of the functions that turn a workload into a kernel.

A family is a value. Whatever enumerates, selects, renders, launches, measures or stores kernels
asks the families in `families.registry`, and names none of them. See docs/develop/kernel-family.md.
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
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.problems.workload import Layer, Workload

# Multiprocessors of the device that boundaries are executed on before a kernel ships: so few that
# a persistent kernel's threadblocks go from tile to tile in a small problem.
CHECKED_SMS = 8


class Config(Protocol):
    """One setting of a family's free parameters: a frozen, ordered dataclass; `str` is for people.

    `family` is the name of the family that it belongs to.
    """

    family: ClassVar[str]

    @property
    def tile(self) -> str:
        """The tile, by which people know a kernel: "128x128x32"."""
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

    `bound_by` names the part that takes longest; `details` says more, for people. `figures` are
    the numbers behind the time, by names that each family chooses: learned models read them.
    """

    time_us: float
    bound_by: str
    details: str
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def bound(self) -> str:
        """Say in a line what bounds the launch."""
        return f"bound by {_BOUNDS.get(self.bound_by, self.bound_by)}: {self.details}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The resources of a threadblock on a multiprocessor; registers are an estimate, for one
    thread.
    """

    registers: int
    shared_memory_bytes: int
    warps: int


class Level(Enum):
    """The part of a family's space that a kernel library holds."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


class Predict(Protocol[_Asked_contra]):
    """The analytical model: the time of a legal configuration, by the shipped constants if None."""

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
    """The times that `Predict` gives of many legal configurations, at least one, at once."""

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
    """Return a function of a layer as one of the workload that has this layer alone."""

    def of_workload(workload: Workload, /, *given: Given.args, **named: Given.kwargs) -> Made:
        return function(workload.single, *given, **named)

    return of_workload


def _itself(config: C) -> C:
    return config


def _unranked(workload: Workload) -> None:
    del workload


def _in_no_library(
    arch: Arch, level: Level, alignments: Sequence[int]
) -> Mapping[str, list[tuple[KernelSpec, ...]]]:
    del arch, level, alignments
    return {}


def _not_held(workload: Workload, arch: Arch, level: Level) -> frozenset[Any]:
    del workload, arch, level
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily(Generic[C]):
    """One way to compute workloads: a record of functions.

    The arguments and results of the functions:

    - `config_type` is the class of its configurations, which has the family's name.
    - `rejects` says why the family cannot compute a workload, whatever the configuration; None if
      it can. All other functions are asked about workloads that it does not reject.
    - `space` has the configurations of a workload.
    - `violations` names every rule that a configuration breaks; none where it is legal.
    - `footprint` is the share of a multiprocessor that a configuration takes.
    - `predict` is the analytical model. `times_us` says the same of many configurations, and
      sooner; not every family has it.
    - `instructions` are issued by a legal configuration, as far as it is known before a compiler
      runs.
    - `traits` are the compiled part of a workload: a frozen dataclass without problem sizes.
    - `compiled` is the compiled part of a configuration; the rest are arguments of the launch.
    - `launch` has the arguments with which a kernel computes a workload.
    - `boundaries` are small workloads that the very same kernel computes, and at whose edges it
      goes wrong if anywhere: it is executed on them before it ships. There is at least one, and
      each is legal.
    - `stem` is the part of a kernel's symbol that people want to see: `gemm_sm80_128x128x32_s3`.
    - `describe` says what a kernel computes and how: texts by their labels.
    - `includes` are the headers that a kernel's text includes.
    - `view` has the variables of the kernel's template, from the kernel and its two symbols.
    - `ranking` is the workload whose times rank the kernels for this one, and whose kernels a
      library holds; None where a kernel depends too much on the operators that are fused to it.
    - `library` has the kernels of a library by what they compute ("gemm"), in groups that belong
      together. It is given elements per vector access.
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
    ranking: Callable[[Workload], Workload | None] = _unranked
    library: Callable[[Arch, Level, Sequence[int]], Mapping[str, list[tuple[KernelSpec, ...]]]] = (
        _in_no_library
    )
    held: Callable[[Workload, Arch, Level], frozenset[C]] = _not_held

    @property
    def name(self) -> str:
        """The name of the family, which each of its configurations tells."""
        return self.config_type.family
