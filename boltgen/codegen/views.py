"""What templates see: a frozen dataclass for each, its fields exactly the template's variables."""

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
    arch_tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dView:
    """One convolution kernel; `mainloop` is made of the template's `Mainloop`."""

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
    arch_tag: str
    iterator_algorithm: str
    mainloop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLayerView:
    """A layer of a back-to-back kernel: `name` is its namespace, `type_name` its type."""

    name: str
    type_name: str
    epilogue: EpilogueCode
    threadblock: str
    warp: str
    stages: int
    layout_b: str
    alignment_b: int
    alignment_d: int
    element_accumulator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    """One back-to-back kernel; `layers` are `first` and `inner`.

    `iterator_algorithm` is None where the first layer is a matrix product.
    """

    TEMPLATE: ClassVar[str] = "b2b.cu.j2"

    symbol: str
    workspace_symbol: str
    layers: tuple[ChainLayerView, ...]
    first: ChainLayerView
    inner: tuple[ChainLayerView, ...]
    layer_types: str
    element_in: str
    element_d: str
    alignment_a: int
    instruction: str
    arch_tag: str
    has_async_copies: str
    residence: str
    args_type: str
    run_function: str
    iterator_algorithm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """One move: the header's class and its element types."""

    TEMPLATE: ClassVar[str] = "move.cu.j2"

    symbol: str
    kind: str
    types: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDeclaration:
    """A kernel's C entry, as an adapter declares it."""

    symbol: str
    args_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentField:
    """One assignment to a kernel's argument struct."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRegion:
    """One TVM function; `label` is a string literal, `comment` comment lines.

    `workspace` are the statements that say what of the call's workspace is for what.
    """

    symbol: str
    label: str
    comment: tuple[str, ...]
    parameters: str
    kernel: KernelDeclaration
    fields: tuple[ArgumentField, ...]
    workspace: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterView:
    """The TVM functions of a library's regions; `header` has the calling convention of a TVM."""

    TEMPLATE: ClassVar[str] = "adapter.cc.j2"

    banner: tuple[str, ...]
    header: str
    kernels: tuple[KernelDeclaration, ...]
    regions: tuple[AdapterRegion, ...]


View: TypeAlias = UnitView | GemmView | Conv2dView | ChainView | MoveView | AdapterView
