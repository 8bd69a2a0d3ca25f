"""What a frontend hands over: offloaded regions, and why the rest stayed with TVM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from boltgen.errors import InvalidProblemError
from boltgen.ir.chain import Chain, chain_of
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.move import Form
from boltgen.ir.problem import Problem


class Convention(Enum):
    """How TVM calls a region's function."""

    RELAX = "relax"  # TVM's FFI since 0.21: typed functions of TensorView
    RELAY = "relay"  # the packed C functions of TVM up to 0.19


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """Where an epilogue's load comes from.

    `parameter` indexes the region's parameters; `batched` tells whether the tensor has one slice
    per product of a BatchedGemm.
    """

    parameter: int
    batched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How TVM has a tensor that the kernel wants in NHWC and FP16, or with more or less channels.

    A matrix is stored as one image of NHWC, its columns the channels.
    """

    form: Form
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One external function: a problem, its epilogue, and the roles of its parameters.

    One parameter may have several roles (a residual that is also the activation), so roles are
    indices, not an order. `symbol` is the external function's name, `label` its operators for
    people ("conv2d + add + relu"). `note` says why it is not one kernel with a neighbour, where
    there is something to say. `a_stored` and `d_stored` say how TVM has A and D where that is not
    how the kernel takes them: the region's call then moves them.
    """

    symbol: str
    label: str
    problem: Problem
    epilogue: ElementwiseGraph
    parameter_count: int
    a: int
    b: int
    operands: tuple[Operand, ...] = ()
    note: str = ""
    a_stored: Stored | None = None
    d_stored: Stored | None = None

    def accumulating_in(self, dtype: DType) -> Region:
        """The same region, its products summed in `dtype`."""
        return replace(self, problem=replace(self.problem, acc_dtype=dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRoles:
    """The parameters of a region that a layer of its chain reads."""

    b: int
    operands: tuple[Operand, ...] = ()

    @property
    def parameters(self) -> tuple[int, ...]:
        """Their indices."""
        return (self.b, *(operand.parameter for operand in self.operands))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRegion:
    """One external function that computes a chain; `a` is the first layer's.

    `note` says why it is one kernel, and why not with a further neighbour; `a_stored` and
    `d_stored` are those of `Region`.

    Raises:
        InvalidProblemError: there are not as many roles as layers.
    """

    symbol: str
    label: str
    chain: Chain
    parameter_count: int
    a: int
    layers: tuple[LayerRoles, ...]
    note: str = ""
    a_stored: Stored | None = None
    d_stored: Stored | None = None

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.chain.layers):
            raise InvalidProblemError(
                f"{self.symbol}: roles of {len(self.layers)} layers for a chain of "
                f"{len(self.chain.layers)}"
            )

    def accumulating_in(self, dtype: DType) -> ChainRegion:
        """The same region, its products summed in `dtype`."""
        layers = (
            replace(layer, problem=replace(layer.problem, acc_dtype=dtype))
            for layer in self.chain.layers
        )
        return replace(self, chain=chain_of(tuple(layers)))


AnyRegion: TypeAlias = Region | ChainRegion


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An operator that stays with TVM, and why: a sentence for people."""

    operator: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an operator of the model runs.

    `region` is the symbol of the region that computes it, or None where TVM does; then `reason`
    says why. Of a region it is the region's note. `flops` are those of its products.
    """

    operator: str
    shape: tuple[int, ...]
    region: str | None
    reason: str
    flops: int = 0
