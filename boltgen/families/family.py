"""KernelFamily: how a workload becomes a kernel.

A family is a value. Whatever enumerates, selects, renders, launches, measures or stores kernels
asks the families in `families.registry`, and names none of them. See docs/develop/kernel-family.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from boltgen.arch import Arch
from boltgen.codegen.views import View
from boltgen.families.constants import ModelConstants
from boltgen.families.instructions import Instructions
from boltgen.families.space import Space, Violation
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.ir.workload import Workload

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
        """What of it people know a kernel by: "128x128x32"."""
        ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


C = TypeVar("C", bound=Config)


class Prediction(Protocol):
    """What a family's analytical model says of one launch."""

    @property
    def time_us(self) -> float:
        """The predicted time, in microseconds."""
        ...

    @property
    def bound(self) -> str:
        """What the time is mostly made of, for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a threadblock takes of a multiprocessor; registers are an estimate, of one thread."""

    registers: int
    shared_memory_bytes: int
    warps: int


class Level(Enum):
    """How much of a family's space a kernel library holds."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


class KernelFamily(Protocol[C]):
    """One way to compute workloads. `config_type` is the class of its configurations."""

    name: str
    config_type: type[C]

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """Why it cannot compute a workload at all, whatever the configuration; None if it can."""
        ...

    def space(self, workload: Workload, arch: Arch) -> Space[C]:
        """The configurations of a workload that it does not reject."""
        ...

    def violations(self, workload: Workload, config: C, arch: Arch) -> tuple[Violation, ...]:
        """Every rule that a configuration breaks; none where it is legal."""
        ...

    def footprint(self, workload: Workload, config: C) -> Footprint:
        """What a configuration takes of a multiprocessor."""
        ...

    def predict(
        self, workload: Workload, config: C, arch: Arch, constants: ModelConstants | None = None
    ) -> Prediction:
        """The analytical model's time of a legal configuration; the shipped constants if None."""
        ...

    def instructions(self, workload: Workload, config: C, arch: Arch) -> Instructions:
        """What a legal configuration issues, as far as it is known before a compiler runs."""
        ...

    def compiled(self, config: C) -> C:
        """What of a configuration is compiled; the rest are arguments of the launch."""
        ...

    def traits(self, workload: Workload) -> Any:
        """What of a workload is compiled: a frozen dataclass without problem sizes."""
        ...

    def launch(self, workload: Workload, config: C) -> Launch:
        """The arguments with which a kernel computes a workload."""
        ...

    def boundaries(self, workload: Workload, config: C, arch: Arch) -> tuple[Workload, ...]:
        """Small workloads that the very same kernel computes, and at whose edges it goes wrong if
        anywhere: what it is executed on before it ships. At least one, each of them legal.
        """
        ...

    def ranking(self, workload: Workload) -> Workload | None:
        """The workload whose times rank the kernels for this one, and whose kernels a library
        holds; None where a kernel depends too much on what is fused to it.
        """
        ...

    def library(
        self, arch: Arch, level: Level, alignments: Sequence[int]
    ) -> Mapping[str, list[tuple[KernelSpec, ...]]]:
        """The kernels of a library by what they compute ("gemm"), in groups that belong together.

        `alignments` are elements per vector access.
        """
        ...

    def held(self, workload: Workload, arch: Arch, level: Level) -> frozenset[C]:
        """The compiled configurations that a library of that level holds for a workload."""
        ...

    def stem(self, spec: KernelSpec) -> str:
        """The part of a kernel's symbol that people want to see: `gemm_sm80_128x128x32_s3`."""
        ...

    def describe(self, spec: KernelSpec) -> Mapping[str, str]:
        """Describe what a kernel computes and how: texts by their labels, for `boltgen inspect`."""
        ...

    def includes(self, spec: KernelSpec) -> tuple[str, ...]:
        """The headers that a kernel's text includes."""
        ...

    def view(self, spec: KernelSpec, symbol: str, workspace_symbol: str) -> View:
        """The variables of the kernel's template."""
        ...


@runtime_checkable
class PredictsMany(Protocol):
    """A family whose analytical model is asked about many configurations at once, and is so sooner
    than by `predict`, which says the same of each.
    """

    def times_us(
        self,
        workload: Workload,
        configs: Sequence[Any],
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> NDArray[np.float64]:
        """The times of legal configurations, at least one."""
        ...


class WithoutLibrary(Generic[C]):
    """The methods of a family whose kernels are ranked one by one, and are in no library."""

    def ranking(self, workload: Workload) -> Workload | None:
        """None."""
        del workload
        return None

    def library(
        self, arch: Arch, level: Level, alignments: Sequence[int]
    ) -> Mapping[str, list[tuple[KernelSpec, ...]]]:
        """None."""
        del arch, level, alignments
        return {}

    def held(self, workload: Workload, arch: Arch, level: Level) -> frozenset[C]:
        """None."""
        del workload, arch, level
        return frozenset()
