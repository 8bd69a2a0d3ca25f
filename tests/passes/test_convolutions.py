"""Transposed convolutions, and those of rows, compute the same as convolutions of images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import Convolution, TransposedConvolution
from boltgen.graph.graph import Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.precision import walk
from tests.passes.differential import checked, drawn, operators
from tests.passes.networks import F16, F32, Net

normalise = checked(walk.normalise, others=True)
PIXELS = (5, 4, 3)


def _attrs(**given: object) -> TransposedConvolution:
    usual: dict[str, object] = {
        "groups": 1,
        "strides": (2, 2),
        "padding": (0, 0, 0, 0),
        "dilation": (1, 1),
        "output_padding": (0, 0),
        "data_layout": "NCHW",
        "kernel_layout": "IOHW",
        "out_layout": "NCHW",
    }
    layout = given.get("data_layout", "NCHW")
    return TransposedConvolution(**usual | {"out_layout": layout} | given)  # type: ignore[arg-type]


def _extents(attrs: TransposedConvolution, taps: tuple[int, ...]) -> tuple[int, ...]:
    """The pixels of the result. Source: PyTorch's documentation of ConvTranspose2d."""
    return tuple(
        attrs.strides[axis] * (PIXELS[axis] - 1)
        + attrs.dilation[axis] * (taps[axis] - 1)
        + attrs.output_padding[axis]
        + 1
        - attrs.padding[axis]
        - attrs.padding[axis + len(taps)]
        for axis in range(len(taps))
    )


_LAYOUTS = {
    1: [("NCW", "IOW"), ("NWC", "WOI")],
    2: [("NCHW", "IOHW"), ("NHWC", "HWOI"), ("NCHW", "OIHW")],
    3: [("NCDHW", "IODHW"), ("NDHWC", "DHWOI")],
}


@st.composite
def _drawn(draw: st.DrawFn) -> tuple[TransposedConvolution, tuple[int, ...]]:
    """A transposed convolution, and the taps of its filter."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    each_axis = st.tuples(*(st.integers(1, 3),) * rank)
    data_layout, kernel_layout = draw(st.sampled_from(_LAYOUTS[rank]))
    strides, dilation, taps = draw(each_axis), draw(each_axis), draw(each_axis)
    most = [max(both) - 1 for both in zip(strides, dilation, strict=True)]
    attrs = _attrs(
        strides=strides,
        dilation=dilation,
        output_padding=tuple(draw(st.integers(0, each)) for each in most),
        padding=draw(st.tuples(*(st.integers(0, 3),) * (2 * rank))),
        groups=draw(st.sampled_from([1, 2, 3, 6])) if rank < 3 else 1,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    assume(min(_extents(attrs, taps)) > 0)
    return attrs, taps


def _graph(
    attrs: TransposedConvolution, taps: tuple[int, ...], *, is_constant: bool = True
) -> Graph:
    """An image of 6 channels, a transposed convolution, a bias, and a ReLU."""
    net, axes = Net(), "DHW"[-len(taps) :]
    shape = {"N": 2, "C": 12} | dict(zip(axes, _extents(attrs, taps), strict=True))
    image = {"N": 2, "C": 6} | dict(zip(axes, PIXELS, strict=False))
    filters = {"O": 12 // attrs.groups, "I": 6} | dict(zip(axes, taps, strict=True))
    x = net.input(*(image[letter] for letter in attrs.data_layout))
    extents = tuple(filters[letter] for letter in attrs.kernel_layout)
    weight = net.weight(*extents) if is_constant else net.input(*extents)
    made = net.operator(
        f"nn.conv{len(taps)}d_transpose",
        (x, weight),
        tuple(shape[letter] for letter in attrs.data_layout),
        F32,
        attrs,
    )
    along = (1, 12, *(1,) * len(taps)) if attrs.data_layout[1] == "C" else (12,)
    bias = np.arange(12, dtype=np.float32).reshape(along)
    return net.graph(net.elementwise("nn.relu", net.elementwise("add", made, net.constant(bias))))


@settings(max_examples=150, deadline=None)
@given(_drawn(), st.sampled_from([DType.F16, DType.BF16]))
def test_a_transposed_convolution_computes_the_same(
    given_one: tuple[TransposedConvolution, tuple[int, ...]], precision: DType
) -> None:
    attrs, taps = given_one
    graph = _graph(attrs, taps)
    made = normalise(graph, precision=precision).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    largest = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * precision.ulp * largest)
    reaches = [d * (t - 1) for d, t in zip(attrs.dilation, taps, strict=True)]
    is_within = all(p <= reach for p, reach in zip(attrs.padding, 2 * reaches, strict=True))
    forward = [expr for expr in made.exprs if expr.op in {"nn.conv2d", "nn.conv3d"}]
    assert forward or not is_within
    assert bool(forward) != (f"nn.conv{len(taps)}d_transpose" in operators(made))
    assert all(conv.attrs.of(Convolution).groups in {1, attrs.groups} for conv in forward)


def test_filters_as_large_as_the_stride_multiply_no_zeros() -> None:
    made = normalise(_graph(_attrs(), (2, 2))).graph
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    assert conv.dtype == F16
    assert conv.shape == (2, 5, 4, 48)
    assert made[conv.args[1]].shape == (48, 1, 1, 6)
    assert conv.attrs.of(Convolution).padding == (0, 0, 0, 0)
    assert "strided_slice" not in operators(made)


def test_each_channel_of_its_own_stays_depthwise() -> None:
    attrs = _attrs(groups=6, padding=(1, 1, 1, 1))
    made = normalise(_graph(attrs, (4, 4))).graph
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    assert conv.attrs.of(Convolution).groups == 6
    assert made[conv.args[1]].shape == (2, 2, 48, 1), "two filters for each of four phases"


def test_four_taps_in_strides_of_two_are_two_taps_of_four_phases() -> None:
    made = normalise(_graph(_attrs(padding=(1, 1, 1, 1)), (4, 4))).graph
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    assert made[conv.args[1]].shape == (48, 2, 2, 6)
    assert conv.attrs.of(Convolution).padding == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("attrs", "is_constant", "reason"),
    [
        (_attrs(), False, "whose weight is computed: make it a constant"),
        (_attrs(padding=(2, 0, 0, 0), strides=(1, 1)), True, "padding (2, 0, 0, 0) takes off"),
    ],
    ids=["a computed weight", "padding"],
)
def test_what_no_kernel_computes_stays_and_says_why(
    attrs: TransposedConvolution, is_constant: bool, reason: str
) -> None:
    made = normalise(_graph(attrs, (2, 2), is_constant=is_constant)).graph
    (kept,) = (expr for expr in made.exprs if expr.op == "nn.conv2d_transpose")
    assert kept.dtype == F32
    assert reason in kept.reason


def test_volumes_in_groups_stay_and_say_why() -> None:
    three = {"strides": (2,) * 3, "padding": (0,) * 6, "dilation": (1,) * 3}
    attrs = _attrs(
        **three,
        output_padding=(0,) * 3,
        groups=3,
        data_layout="NCDHW",
        kernel_layout="IODHW",
    )
    made = normalise(_graph(attrs, (2, 2, 2))).graph
    (kept,) = (expr for expr in made.exprs if expr.op == "nn.conv3d_transpose")
    assert "of volumes with groups=3: kernels exist for one group only" in kept.reason


@st.composite
def _of_volumes(draw: st.DrawFn) -> Convolution:
    layout, kernel = draw(st.sampled_from([("NCDHW", "OIDHW"), ("NDHWC", "DHWIO")]))
    three = st.tuples(*(st.integers(1, 2),) * 3)
    return Convolution(
        groups=1,
        strides=draw(three),
        padding=draw(st.tuples(*(st.integers(0, 2),) * 6)),
        dilation=draw(three),
        data_layout=layout,
        kernel_layout=kernel,
        out_layout=layout,
    )


@settings(max_examples=60, deadline=None)
@given(_of_volumes(), st.tuples(*(st.integers(1, 3),) * 3), st.booleans())
def test_a_convolution_of_volumes_computes_the_same(
    attrs: Convolution, taps: tuple[int, ...], is_padded: bool
) -> None:
    """With a bias and, if `is_padded`, zeros that are padded before it."""
    net, volume = Net(), (6, 5, 7)
    image = {"N": 2, "C": 3} | dict(zip("DHW", volume, strict=True))
    filters = {"O": 4, "I": 3} | dict(zip("DHW", taps, strict=True))
    x = net.input(*(image[letter] for letter in attrs.data_layout))
    if is_padded:
        widths = tuple((1, 2) if letter == "D" else (0, 0) for letter in attrs.data_layout)
        x = net.pad(x, widths, 0.0, "constant")
        volume = (9, 5, 7)
    weight = net.weight(*(filters[letter] for letter in attrs.kernel_layout))
    places = [
        (extent + before + after - apart * (tap - 1) - 1) // step + 1
        for extent, before, after, apart, tap, step in zip(
            volume,
            attrs.padding,
            attrs.padding[3:],
            attrs.dilation,
            taps,
            attrs.strides,
            strict=False,
        )
    ]
    result = {"N": 2, "C": 4} | dict(zip("DHW", places, strict=True))
    shape = tuple(result[letter] for letter in attrs.data_layout)
    made = net.operator("nn.conv3d", (x, weight), shape, F32, attrs)
    along = tuple(4 if letter == "C" else 1 for letter in attrs.data_layout)
    bias = net.constant(np.arange(4, dtype=np.float32).reshape(along))
    graph = net.graph(net.elementwise("add", made, bias))
    narrow = normalise(graph).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (narrow, graph))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-6 * float(np.abs(wanted).max()))
    (conv,) = (expr for expr in narrow.exprs if expr.op in {"nn.conv2d", "nn.conv3d"})
    more = (is_padded, 0, 0, 2 * is_padded, 0, 0)
    padding = [a + b for a, b in zip(attrs.padding, more, strict=True)]
    idle = [
        (tap, step, *padding[axis::3]) == (1, 1, 0, 0)
        for axis, (tap, step) in enumerate(zip(taps, attrs.strides, strict=True))
    ]
    is_flat = not all(idle) and (idle[0] or (idle[1] and idle[2]))
    written = conv.attrs.of(Convolution)
    layouts = ("NHWC", "OHWI") if is_flat else ("NDHWC", "ODHWI")
    assert (written.data_layout, written.kernel_layout) == layouts
    assert conv.op == f"nn.conv{2 if is_flat else 3}d"
    assert conv.dtype == F16
    assert "nn.pad" not in operators(narrow), "zeros are the convolution's own padding"


@st.composite
def _in_groups(draw: st.DrawFn) -> Convolution:
    groups = draw(st.sampled_from([2, 3, 4, 6]))
    return Convolution(
        groups=groups,
        strides=draw(st.sampled_from([(1, 1), (2, 1)])),
        padding=(1, 0, 1, 2),
        dilation=draw(st.sampled_from([(1, 1), (1, 2)])),
        data_layout="NHWC",
        kernel_layout=draw(st.sampled_from(["OIHW", "HWIO"])),
        out_layout="NHWC",
    )


@settings(max_examples=60, deadline=None)
@given(_in_groups(), st.sampled_from([2, 9, 24]), st.sampled_from([1, 5]))
def test_a_convolution_in_groups_computes_the_same(
    attrs: Convolution, channels: int, filters: int
) -> None:
    net = Net()
    groups = attrs.groups
    extents = {"O": groups * filters, "I": channels, "H": 3, "W": 2}
    x = net.input(2, 6, 7, groups * channels)
    weight = net.weight(*(extents[letter] for letter in attrs.kernel_layout))
    rows, columns = (
        (size + around - apart * (taps - 1) - 1) // step + 1
        for size, around, apart, taps, step in zip(
            (6, 7), (2, 2), attrs.dilation, (3, 2), attrs.strides, strict=True
        )
    )
    shape = (2, rows, columns, groups * filters)
    graph = net.graph(net.operator("nn.conv2d", (x, weight), shape, F32, attrs))
    made = normalise(graph).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-6 * float(np.abs(wanted).max()))
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    joint = groups // conv.attrs.of(Convolution).groups
    # As few groups are joined as have more than 16 channels, or all.
    fitting = [n for n in range(1, groups + 1) if groups % n == 0 and n * channels > 16]
    assert joint == (fitting or [groups])[0]
    assert conv.dtype == F16
