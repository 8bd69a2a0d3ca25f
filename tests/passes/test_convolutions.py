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

normalise = checked(walk.normalise)
PIXELS = (5, 4)


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


def _extents(attrs: TransposedConvolution, taps: tuple[int, int]) -> tuple[int, ...]:
    """The pixels of the result. Source: PyTorch's documentation of ConvTranspose2d."""
    return tuple(
        attrs.strides[axis] * (PIXELS[axis] - 1)
        + attrs.dilation[axis] * (taps[axis] - 1)
        + attrs.output_padding[axis]
        + 1
        - attrs.padding[axis]
        - attrs.padding[axis + 2]
        for axis in range(2)
    )


@st.composite
def _drawn(draw: st.DrawFn) -> tuple[TransposedConvolution, tuple[int, int]]:
    """A transposed convolution, and the taps of its filter."""
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    data_layout, kernel_layout = draw(
        st.sampled_from([("NCHW", "IOHW"), ("NHWC", "HWOI"), ("NCHW", "OIHW")])
    )
    strides, dilation, taps = draw(pair), draw(pair), draw(pair)
    most = [max(both) - 1 for both in zip(strides, dilation, strict=True)]
    attrs = _attrs(
        strides=strides,
        dilation=dilation,
        output_padding=tuple(draw(st.integers(0, each)) for each in most),
        padding=draw(st.tuples(*(st.integers(0, 3),) * 4)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    assume(min(_extents(attrs, taps)) > 0)
    return attrs, taps


def _graph(
    attrs: TransposedConvolution, taps: tuple[int, int], *, is_constant: bool = True
) -> Graph:
    """An image of 3 channels, a transposed convolution, a bias, and a ReLU."""
    net = Net()
    high, wide = _extents(attrs, taps)
    shape = {"N": 2, "C": 6, "H": high, "W": wide}
    image = {"N": 2, "C": 3, "H": PIXELS[0], "W": PIXELS[1]}
    filters = {"O": 6 // attrs.groups, "I": 3, "H": taps[0], "W": taps[1]}
    x = net.input(*(image[letter] for letter in attrs.data_layout))
    extents = tuple(filters[letter] for letter in attrs.kernel_layout)
    weight = net.weight(*extents) if is_constant else net.input(*extents)
    made = net.operator(
        "nn.conv2d_transpose",
        (x, weight),
        tuple(shape[letter] for letter in attrs.data_layout),
        F32,
        attrs,
    )
    along = (1, 6, 1, 1) if attrs.data_layout == "NCHW" else (6,)
    bias = np.arange(6, dtype=np.float32).reshape(along)
    return net.graph(net.elementwise("nn.relu", net.elementwise("add", made, net.constant(bias))))


@settings(max_examples=150, deadline=None)
@given(_drawn(), st.sampled_from([DType.F16, DType.BF16]))
def test_a_transposed_convolution_computes_the_same(
    given_one: tuple[TransposedConvolution, tuple[int, int]], precision: DType
) -> None:
    attrs, taps = given_one
    graph = _graph(attrs, taps)
    made = normalise(graph, precision=precision).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    largest = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * precision.ulp * largest)
    reaches = [d * (t - 1) for d, t in zip(attrs.dilation, taps, strict=True)]
    is_within = all(p <= reach for p, reach in zip(attrs.padding, 2 * reaches, strict=True))
    is_forward = "nn.conv2d" in operators(made)
    assert is_forward or not is_within
    assert is_forward != ("nn.conv2d_transpose" in operators(made))


def test_filters_as_large_as_the_stride_multiply_no_zeros() -> None:
    made = normalise(_graph(_attrs(), (2, 2))).graph
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    assert conv.dtype == F16
    assert conv.shape == (2, 5, 4, 24)
    assert made[conv.args[1]].shape == (24, 1, 1, 3)
    assert conv.attrs.of(Convolution).padding == (0, 0, 0, 0)
    assert "strided_slice" not in operators(made)


def test_four_taps_in_strides_of_two_are_two_taps_of_four_phases() -> None:
    made = normalise(_graph(_attrs(padding=(1, 1, 1, 1)), (4, 4))).graph
    (conv,) = (expr for expr in made.exprs if expr.op == "nn.conv2d")
    assert made[conv.args[1]].shape == (24, 2, 2, 3)
    assert conv.attrs.of(Convolution).padding == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("attrs", "is_constant", "reason"),
    [
        (_attrs(groups=3, kernel_layout="IOHW"), True, "groups=3: kernels exist for one group"),
        (_attrs(), False, "whose weight is computed: make it a constant"),
        (_attrs(padding=(2, 0, 0, 0), strides=(1, 1)), True, "padding (2, 0, 0, 0) takes off"),
    ],
    ids=["groups", "a computed weight", "padding"],
)
def test_what_no_kernel_computes_stays_and_says_why(
    attrs: TransposedConvolution, is_constant: bool, reason: str
) -> None:
    made = normalise(_graph(attrs, (2, 2), is_constant=is_constant)).graph
    (kept,) = (expr for expr in made.exprs if expr.op == "nn.conv2d_transpose")
    assert kept.dtype == F32
    assert reason in kept.reason


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
