"""Match the operators at a region's boundary that the region's call does itself. For both IRs.

A model in NCHW and FP32 meets kernels that want NHWC and FP16 or BF16. Its first layer reads the
model's input as it is, its last one writes the output as the model's user wants it: cast,
permutation and channel padding are one pass over the tensor, in the same call. Source: Xing et al.,
Bolt, MLSys 2022, section 3.2.3. In the middle of a model TVM fuses such operators into its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from boltgen.graph.attributes import Pad
from boltgen.graph.facts import has_one_reader, is_static_call, only_reader
from boltgen.graph.graph import CONSTANT, HALF, INPUT, NORMED, Expr, Graph
from boltgen.graph.view import strided_whole
from boltgen.ir.dtypes import CONVERTED, DType
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE
from boltgen.problems.layout_transform.problem import Form, ImageLayout, nhwc
from boltgen.problems.region import Stored

# Dimensions of images, and of rows of channels: the least that an image has without its height.
_IMAGE_RANK, _ROWS_RANK = 4, 3
_MOVED = frozenset({"astype", "permute_dims", "reshape"})  # a border casts and permutes
_FUSED_BY_TVM = ELEMENTWISE - {HALF, NORMED} | _MOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Operators between a region's kernel and a tensor that TVM stores in another form.

    `tensor` is that tensor: what the first operator reads, or the last one makes.
    """

    members: tuple[int, ...]
    tensor: int
    stored: Stored


def entry(graph: Graph, a: int, *, is_image: bool) -> Border | None:
    """Match the operators that make A, at `a`, from an input of the function, or return None.

    Only images are permuted. The call pads channels, even of a tensor that a kernel made: TVM would
    write it once more. TVM's kernel pads what it makes of inputs: `is_made_of_inputs`. Pairs of
    pixels are where the pixels were.
    """
    narrow = DType(graph[a].dtype)
    if narrow.is_whole:
        return None  # no call converts integers
    if is_image and _pairs_pixels(graph, a):
        found = entry(graph, graph[a].args[0], is_image=is_image)
        return None if found is None else replace(found, members=(*found.members, a))
    padding = a if _pads_channels(graph, a) else None
    members: list[int] = []
    at, layout = a if padding is None else graph[a].args[0], ImageLayout.NHWC
    begin = at
    if padding is not None and not has_one_reader(graph, at):
        return _border(graph, (padding,), at, layout, narrow, padded=True)
    while (step := _step(graph, at, narrow, layout, last=True, is_image=is_image)) is not None:
        layout = step
        members.insert(0, at)
        at = graph[at].args[0]
        if not has_one_reader(graph, at):
            break
    if padding is None:
        is_input = graph[at].op == INPUT and members
        return _border(graph, tuple(members), at, layout, narrow) if is_input else None
    if is_made_of_inputs(graph, begin):
        return None
    if graph[at].op != INPUT:
        return _border(graph, (padding,), begin, ImageLayout.NHWC, narrow, padded=True)
    return _border(graph, (*members, padding), at, layout, narrow, padded=True)


def is_made_of_inputs(graph: Graph, index: int) -> bool:
    """Return whether one kernel of TVM's makes a tensor of inputs and constants, as the
    normalisation of an image does: elementwise operators, of which not all could be a border.
    """
    pending, computed = [index], False
    while pending:
        at = pending.pop()
        expr = graph[at]
        if expr.op in {INPUT, CONSTANT}:
            continue
        if expr.op not in _FUSED_BY_TVM or not is_static_call(graph, at):
            return False
        if at != index and not has_one_reader(graph, at):
            return False
        is_of_border = expr.op in _MOVED and graph[expr.args[0]].dtype in CONVERTED
        computed = computed or not is_of_border
        pending += expr.args
    return computed


def exit_(graph: Graph, output: int, *, is_image: bool) -> Border | None:
    """Match the operators that make a result of the function from D, at `output`; as `entry`."""
    narrow = DType(graph[output].dtype)
    if narrow is DType.F32 or narrow.is_whole:
        return None
    members: list[int] = []
    at, layout = output, ImageLayout.NHWC
    while (following := only_reader(graph, at)) is not None:
        step = _step(graph, following, narrow, layout, last=False, is_image=is_image)
        if step is None:
            break
        layout = step
        members.append(following)
        at = following
    if at not in graph.escaping or not members:
        return None
    return _border(graph, tuple(members), at, layout, narrow)


def _pairs_pixels(graph: Graph, index: int) -> bool:
    """Return whether a reshape makes pairs of pixels of an image one of twice the channels."""
    expr = graph[index]
    if expr.op != "reshape" or not is_static_call(graph, index):
        return False
    source = graph[expr.args[0]].static_shape
    if any(type(extent) is not int for extent in source):
        return False  # the call counts the channels of a pixel by the image's known extents
    is_pair = len(source) == _IMAGE_RANK and source[2] % 2 == 0
    return (
        is_pair
        and expr.static_shape == (*source[:2], source[2] // 2, 2 * source[3])
        and has_one_reader(graph, expr.args[0])
    )


def _pads_channels(graph: Graph, index: int) -> bool:
    """Return whether an operator only appends zeros to the last dimension."""
    expr = graph[index]
    if expr.op != "nn.pad" or not is_static_call(graph, index):
        return False
    attrs = expr.attrs.of(Pad)
    widths, is_zero = attrs.widths, attrs.value == 0.0 and attrs.mode == "constant"
    return is_zero and set(widths[:-1]) <= {(0, 0)} and widths[-1][0] == 0


def _border(
    graph: Graph,
    members: tuple[int, ...],
    tensor: int,
    layout: ImageLayout,
    narrow: DType,
    *,
    padded: bool = False,
) -> Border | None:
    outside = graph[tensor]
    if outside.dtype not in {narrow.value, DType.F32.value} or not outside.is_static:
        return None
    form = Form(layout=layout, dtype=DType(outside.dtype))
    if form == nhwc(narrow) and not padded:
        return None
    return Border(
        members=members, tensor=tensor, stored=Stored(form=form, shape=outside.static_shape)
    )


def _step(
    graph: Graph,
    index: int,
    narrow: DType,
    layout: ImageLayout,
    *,
    last: bool,
    is_image: bool,
) -> ImageLayout | None:
    """Return the layout after one more operator of a border, or None if it cannot be of it.

    `layout` is that of the border so far. The operator casts, makes one dimension of an image's
    height and width, or two of one, or, once and for images alone, moves the channels from there to
    the `last` dimension, or back.
    """
    expr = graph[index]
    if expr.op not in _MOVED or not expr.args:
        return None
    source = graph[expr.args[0]]
    if not is_static_call(graph, index):
        return None
    if expr.op == "astype":
        kinds = {source.dtype, expr.dtype}
        return layout if kinds == {narrow.value, DType.F32.value} else None
    if _joins_pixels(source, expr, layout) or _joins_pixels(expr, source, layout):
        return layout
    if layout is ImageLayout.NCHW or not is_image:
        return None
    pixels = range(2, len(source.static_shape))
    axes = (0, *pixels, 1) if last else (0, pixels.stop - 1, 1, *pixels[:-1])
    moves = len(source.static_shape) >= _ROWS_RANK and _permutes(source, expr, axes)
    return ImageLayout.NCHW if moves else None


def _joins_pixels(image: Expr, rows: Expr, layout: ImageLayout) -> bool:
    """Return whether `rows` has the pixels of an image of that layout in one dimension."""
    if len(image.static_shape) != _IMAGE_RANK:
        return False
    n, *extents = image.static_shape
    if layout is ImageLayout.NCHW:
        c, h, w = extents
        return rows.static_shape == (n, c, h * w)
    h, w, c = extents
    return rows.static_shape == (n, h * w, c)


def _permutes(source: Expr, expr: Expr, axes: tuple[int, ...]) -> bool:
    """Return whether an operator permutes by `axes`, as a reshape past extents of 1 does too."""
    x = strided_whole(source.static_shape)
    is_as_long = len(source.static_shape) == len(expr.static_shape) == len(axes)
    return is_as_long and x.after(expr) == x.permuted(axes)
