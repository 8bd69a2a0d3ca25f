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
from boltgen.graph.graph import INPUT, Expr, Graph
from boltgen.graph.view import strided_whole
from boltgen.ir.dtypes import DType
from boltgen.problems.layout_transform.problem import Form, ImageLayout, nhwc
from boltgen.problems.region import Stored

_TO_NHWC = (0, 2, 3, 1)
_TO_NCHW = (0, 3, 1, 2)


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

    Only images are permuted. The call pads channels, whatever made the tensor: TVM would write it
    once more. Pairs of pixels are where the pixels were.
    """
    narrow = DType(graph[a].dtype)
    if is_image and _pairs_pixels(graph, a):
        found = entry(graph, graph[a].args[0], is_image=is_image)
        return None if found is None else replace(found, members=(*found.members, a))
    padding = a if _pads_channels(graph, a) else None
    members: list[int] = []
    at, layout = a if padding is None else graph[a].args[0], ImageLayout.NHWC
    begin = at
    if padding is not None and not has_one_reader(graph, at):
        return _border(graph, (padding,), at, layout, narrow, padded=True)
    while (step := _step(graph, at, _TO_NHWC, narrow)) is not None:
        if step is ImageLayout.NCHW and (layout is ImageLayout.NCHW or not is_image):
            break  # two permutations are not one layout
        layout = ImageLayout.NCHW if step is ImageLayout.NCHW else layout
        members.insert(0, at)
        at = graph[at].args[0]
        if not has_one_reader(graph, at):
            break
    if padding is None:
        is_input = graph[at].op == INPUT and members
        return _border(graph, tuple(members), at, layout, narrow) if is_input else None
    if graph[at].op != INPUT:
        return _border(graph, (padding,), begin, ImageLayout.NHWC, narrow, padded=True)
    return _border(graph, (*members, padding), at, layout, narrow, padded=True)


def exit_(graph: Graph, output: int, *, is_image: bool) -> Border | None:
    """Match the operators that make a result of the function from D, at `output`; as `entry`."""
    narrow = DType(graph[output].dtype)
    if narrow is DType.F32:
        return None
    members: list[int] = []
    at, layout = output, ImageLayout.NHWC
    while (following := only_reader(graph, at)) is not None:
        step = _step(graph, following, _TO_NCHW, narrow)
        if step is None:
            break
        if step is ImageLayout.NCHW and (layout is ImageLayout.NCHW or not is_image):
            break
        layout = ImageLayout.NCHW if step is ImageLayout.NCHW else layout
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
    is_pair = len(source) == len(_TO_NHWC) and source[2] % 2 == 0
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


def _step(graph: Graph, index: int, axes: tuple[int, ...], narrow: DType) -> ImageLayout | None:
    """Return the layout that an operator involves: NCHW if it permutes by `axes`, NHWC if it only
    casts.
    """
    expr = graph[index]
    if expr.op not in {"astype", "permute_dims", "reshape"} or not expr.args:
        return None
    source = graph[expr.args[0]]
    if not is_static_call(graph, index):
        return None
    if expr.op == "astype":
        kinds = {source.dtype, expr.dtype}
        return ImageLayout.NHWC if kinds == {narrow.value, DType.F32.value} else None
    return ImageLayout.NCHW if _permutes(source, expr, axes) else None


def _permutes(source: Expr, expr: Expr, axes: tuple[int, ...]) -> bool:
    """Return whether an operator permutes by `axes`, as a reshape past extents of 1 does too."""
    x = strided_whole(source.static_shape)
    is_as_long = len(source.static_shape) == len(expr.static_shape) == len(axes)
    return is_as_long and x.after(expr) == x.permuted(axes)
