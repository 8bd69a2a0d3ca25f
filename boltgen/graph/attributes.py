"""The attributes of operators: one frozen record for each family of operators, by their names.

A field has the same name in both IRs and in a graph's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from boltgen.errors import GraphError

if TYPE_CHECKING:
    from boltgen.problems.gemm.packed import PackedWeights

_Record = TypeVar("_Record", bound="Attributes")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of an operator that has none, and the base of all others."""

    def of(self, kind: type[_Record]) -> _Record:
        """Return this, which is a record of that kind.

        Raises:
            GraphError: it is of another kind.
        """
        if isinstance(self, kind):
            return self
        raise GraphError(f"{self} is no {kind.__name__}; report this model to boltgen's authors")

    def named(self) -> dict[str, Any]:
        """Return the fields by their names."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


# The records that an operator may have, by its name; an operator that is not among them has no
# attributes. The attributes of a slice or a range are unknown if its author's call computes them.
KINDS: dict[str, tuple[type[Attributes], ...]] = dict.fromkeys(
    ("input", "strided_slice", "slice_scatter", "arange"), (Attributes,)
)


def _of(*operators: str) -> Callable[[type[_Record]], type[_Record]]:
    """Make a class the record of operators."""

    def added(kind: type[_Record]) -> type[_Record]:
        KINDS.update({each: (kind, *KINDS.get(each, ())) for each in operators})
        return kind

    return added


def _within(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes without negative numbers."""
    if any(not -rank <= axis < rank for axis in axes):
        raise ValueError(f"an axis of {tuple(axes)} is beyond the {rank} that the tensor has")
    return tuple(axis % rank for axis in axes)


@_of("input")
@dataclass(frozen=True, slots=True)
class Input(Attributes):
    """The type that an input's author gave it, where the caller gives another one."""

    authored: str


@_of("opaque")
@dataclass(frozen=True, slots=True)
class Opaque(Attributes):
    """The name of what is called, and the `Graph` of its body if it has one."""

    callee: str
    inside: object = None  # the module of `Graph` imports this one


@_of("part", "boltgen.half")
@dataclass(frozen=True, slots=True)
class Indexed(Attributes):
    """The index of a part of a tuple, or of one half of the columns of a pair."""

    index: int


@_of("region")
@dataclass(frozen=True, slots=True)
class RegionCall(Attributes):
    """A call of the region of that symbol.

    A call with `further` is a tuple: they have the shapes and dtypes of the tensors behind the
    first one.
    """

    symbol: str
    further: tuple[tuple[tuple[int, ...], str], ...] = ()


@_of("nn.leakyrelu")
@dataclass(frozen=True, slots=True)
class Slope(Attributes):
    """The slope of a leaky ReLU left of zero."""

    alpha: float


@_of("nn.softplus")
@dataclass(frozen=True, slots=True)
class Sharpness(Attributes):
    """The factor `beta` of softplus, log(1 + exp(beta x)) / beta."""

    beta: float


@_of("clip")
@dataclass(frozen=True, slots=True)
class Clip(Attributes):
    """Both ends of a range."""

    low: float
    high: float


@_of("astype")
@dataclass(frozen=True, slots=True)
class Cast(Attributes):
    """The dtype of the operand."""

    from_dtype: str


@_of(
    "nn.softmax",
    "nn.log_softmax",
    "concat",
    "stack",
    "split",
    "flip",
    "nn.prelu",
    "nn.bias_add",
    "gather_elements",
    "quantize",
    "dequantize",
)
@dataclass(frozen=True, slots=True)
class Axis(Attributes):
    """One axis; None for all elements in a row."""

    axis: int | None

    def at(self, rank: int) -> int:
        """Return the axis of a tensor of `rank` axes; the first one if it is None.

        Raises:
            ValueError: the tensor has no such axis.
        """
        (axis,) = _within((self.axis or 0,), rank)
        return axis


@_of("take")
@dataclass(frozen=True, slots=True)
class Take(Axis):
    """The axis of a gather, and the treatment of indices beyond it."""

    mode: str = "fast"


@_of("cumsum")
@dataclass(frozen=True, slots=True)
class RunningSum(Axis):
    """A sum of all elements before each one, and of the element itself unless `exclusive`."""

    exclusive: bool


@_of("repeat")
@dataclass(frozen=True, slots=True)
class Repeat(Axis):
    """The number of copies of each element along an axis."""

    repeats: int


@_of("strided_slice")
@dataclass(frozen=True, slots=True)
class Slice(Attributes):
    """Neighbours along one axis."""

    axis: int
    begin: int
    end: int


@_of("strided_slice")
@dataclass(frozen=True, slots=True)
class SteppedSlice(Attributes):
    """(axis, begin, step) of a slice to the end of an axis."""

    every: tuple[int, int, int]


@_of("strided_slice")
@dataclass(frozen=True, slots=True)
class DynamicSlice(Attributes):
    """(axis, begin) for each axis of a slice that has the result's extents."""

    within: tuple[tuple[int, int], ...]


@_of("slice_scatter")
@dataclass(frozen=True, slots=True)
class Scatter(Attributes):
    """The slice of the first operand that the second one replaces."""

    axis: int
    begin: int
    end: int
    step: int


@_of("permute_dims")
@dataclass(frozen=True, slots=True)
class Permutation(Attributes):
    """The operand's axis for each axis of the result; None reverses them."""

    axes: tuple[int, ...] | None


@_of("nn.pad")
@dataclass(frozen=True, slots=True)
class Pad(Attributes):
    """The number of elements before and after each axis, and their value."""

    widths: tuple[tuple[int, int], ...]
    value: float
    mode: str


@_of("triu", "tril")
@dataclass(frozen=True, slots=True)
class Diagonal(Attributes):
    """The diagonal at which a triangle of a matrix begins; 0 is the main diagonal."""

    k: int


@_of("arange")
@dataclass(frozen=True, slots=True)
class Count(Attributes):
    """The first number of a range, and the distance between numbers."""

    begin: int
    step: int


@_of("mean", "image_mean", "sum", "max", "min", "prod", "variance", "std")
@dataclass(frozen=True, slots=True)
class Reduce(Attributes):
    """The reduced axes; None for all."""

    axis: tuple[int, ...] | None
    keepdims: bool

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the reduced axes of a tensor of `rank` axes.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return tuple(range(rank)) if self.axis is None else _within(self.axis, rank)


@_of("nn.rms_norm")
@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised(Attributes):
    """The normalised axes."""

    axes: tuple[int, ...]
    epsilon: float


@_of("nn.layer_norm")
@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm(Normalised):
    """A norm that multiplies by its scale and adds its shift only if the flags tell so."""

    scale: bool = True
    center: bool = True


@_of("nn.group_norm")
@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGroupNorm(LayerNorm):
    """The number of groups of channels, and the axis of channels."""

    groups: int
    channel_axis: int


@_of("nn.batch_norm")
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm(Attributes):
    """The axis of channels; the flags tell the same as in `LayerNorm`."""

    axis: int
    epsilon: float
    scale: bool = True
    center: bool = True
    training: bool = False


@_of("group_norm")
@dataclass(frozen=True, slots=True)
class ImageNorm(Attributes):
    """A group norm without scale and shift."""

    groups: int
    epsilon: float
    channel_axis: int


@_of("boltgen.normed")
@dataclass(frozen=True, slots=True)
class Normed(Attributes):
    """The role of each operand of a norm that is computed from sums of rows."""

    roles: tuple[str, ...]
    columns: int
    epsilon: float


@_of("nn.conv1d", "nn.conv2d", "nn.conv3d")
@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(Attributes):
    """A convolution; `padding` has all befores first, a layout is a word of N, C, D, H, W, O, I."""

    groups: int
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    data_layout: str
    kernel_layout: str
    out_layout: str


@_of("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
@dataclass(frozen=True, slots=True, kw_only=True)
class TransposedConvolution(Convolution):
    """The gradient of a convolution; `padding` is taken off the result, `output_padding` added."""

    output_padding: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts(Attributes):
    """The layouts of images before and after an operator."""

    layout: str
    out_layout: str = ""


@_of("nn.max_pool2d")
@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Layouts):
    """Windows of pixels; `padding` has all befores first."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool


@_of("nn.avg_pool2d")
@dataclass(frozen=True, slots=True, kw_only=True)
class MeanPool(Pool):
    """Whether zeros around the image are among the numbers of a mean."""

    count_include_pad: bool


@_of("nn.adaptive_avg_pool2d")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePool(Layouts):
    """The result's size in pixels."""

    output_size: tuple[int, ...]


@_of("image.resize2d")
@dataclass(frozen=True, slots=True, kw_only=True)
class Resize(Layouts):
    """The size of the result in pixels, and TVM's options of a resize."""

    size: tuple[int, ...]
    roi: tuple[float, ...] | None
    method: str
    coordinate_transformation_mode: str
    rounding_method: str
    cubic_alpha: float
    cubic_exclude: int
    extrapolation_value: float
    out_dtype: str


@_of("boltgen.unpack")
@dataclass(frozen=True, slots=True)
class Unpack(Attributes):
    """The form of packed weights, and their K."""

    weights: PackedWeights
    k: int


@_of("einsum")
@dataclass(frozen=True, slots=True)
class Einsum(Attributes):
    """The letters of each operand's axes and of the result's."""

    subscripts: str


@_of("recurrent")
@dataclass(frozen=True, slots=True)
class RecurrentSteps(Attributes):
    """The steps of a recurrent layer; `roles` name its operands behind A and the weights."""

    cell: str
    backwards: bool
    keeps_last: bool
    roles: tuple[str, ...]


NONE = Attributes()
