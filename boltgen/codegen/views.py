"""What templates see: one frozen dataclass for each, its fields exactly the template's variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from boltgen.codegen.epilogue import EpilogueCode


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView:
    """A `.cu` file of one or more kernels.

    `banner` are comment lines, `kernels` rendered kernel templates.
    """

    TEMPLATE: ClassVar[str] = "unit.cu.j2"

    banner: tuple[str, ...]
    headers: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmView:
    """One matrix-product kernel."""

    TEMPLATE: ClassVar[str] = "gemm.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_accumulator: str
    element_d: str
    layout_b: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    swizzle: int
    arch_tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dView:
    """One convolution kernel."""

    TEMPLATE: ClassVar[str] = "conv2d.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_accumulator: str
    element_d: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    swizzle: int
    arch_tag: str
    iterator_algorithm: str


View: TypeAlias = UnitView | GemmView | Conv2dView
