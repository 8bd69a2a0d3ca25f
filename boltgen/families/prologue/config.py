"""Configurations of products with a prologue, and what of a workload they are compiled for."""

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
    """The tiles by which a 2.x kernel of two stages multiplies what a graph makes of A."""

    family: ClassVar[str] = "prologue"

    gemm: Tiles

    @property
    def tile(self) -> str:
        """The threadblock's."""
        return self.gemm.tile

    def __str__(self) -> str:
        return str(self.gemm)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologueTraits:
    """The compiled part of a workload: the product's traits, and the graph before it."""

    gemm: MainloopTraits
    prologue: ElementwiseGraph

    @property
    def epilogue(self) -> ElementwiseGraph:
        """The graph after the product."""
        return self.gemm.epilogue


def gemm_of(layer: Layer) -> Gemm:
    """The problem of a layer that the family does not reject."""
    assert isinstance(layer.problem, Gemm)
    return layer.problem


def traits_of(layer: Layer) -> PrologueTraits:
    """Return the traits for which a kernel of the layer is compiled."""
    return PrologueTraits(
        gemm=compiled_traits(gemm_of(layer), layer.epilogue), prologue=layer.prologue
    )


def of_product(layer: Layer) -> Layer:
    """The layer without its prologue."""
    return Layer(problem=layer.problem, epilogue=layer.epilogue)
