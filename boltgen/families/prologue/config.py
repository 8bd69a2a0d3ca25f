"""Configurations of matmuls with a prologue, and the compiled part of their workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.families.mma_sync.config import Tiles
from boltgen.families.mma_sync.traits import MainloopTraits, compiled_traits
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PrologueConfig:
    """The tiles by which a two-stage 2.x kernel multiplies A after a graph."""

    family: ClassVar[str] = "prologue"

    gemm: Tiles

    @property
    def tile(self) -> str:
        """The threadblock's tile, as text."""
        return self.gemm.tile

    def __str__(self) -> str:
        return str(self.gemm)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologueTraits:
    """The compiled part of a workload: the matmul's traits, and the prologue's graph."""

    gemm: MainloopTraits
    prologue: ElementwiseGraph

    @property
    def epilogue(self) -> ElementwiseGraph:
        """The graph after the matmul."""
        return self.gemm.epilogue


def gemm_of(layer: Layer) -> Gemm:
    """Return the problem of a layer that the family accepts."""
    assert isinstance(layer.problem, Gemm)
    return layer.problem


def traits_of(layer: Layer) -> PrologueTraits:
    """Return the traits for which a kernel of the layer is compiled."""
    return PrologueTraits(
        gemm=compiled_traits(gemm_of(layer), layer.epilogue), prologue=layer.prologue
    )


def of_product(layer: Layer) -> Layer:
    """Return the layer without its prologue."""
    return Layer(problem=layer.problem, epilogue=layer.epilogue)
