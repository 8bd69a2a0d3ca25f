"""Any network in FP16 or BF16 and NHWC computes what its author's FP32 and NCHW do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import ModelImportError
from boltgen.graph.attributes import Axis, Convolution
from boltgen.graph.graph import GROUPED, IMAGE_NORM, INPUT, PART, Expr, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.precision import walk
from tests.passes.differential import AnyArray, checked, drawn, operators
from tests.passes.networks import F16, F32, IMAGE, ROWS, SIZE, STEPS, C, N, Net, Step, network

normalise = checked(walk.normalise)


@settings(max_examples=120, deadline=None)
@given(STEPS, st.sampled_from([IMAGE, ROWS]), st.sampled_from([DType.F16, DType.BF16]))
def test_any_network_computes_the_same(
    steps: list[Step], shape: tuple[int, ...], precision: DType
) -> None:
    graph = network(steps, shape)
    made = normalise(graph, precision=precision).graph
    wanted = run(graph, drawn(graph))
    found = run(made, drawn(graph))
    largest = max(1.0, *(float(np.abs(each).max(initial=0.0)) for each in wanted))
    for left, right in zip(found, wanted, strict=True):
        assert left.dtype == right.dtype
        # A rounding for each operator, which a norm of near values may make larger.
        np.testing.assert_allclose(left, right, rtol=0, atol=64 * precision.ulp * largest)


def _only(build: Callable[[Net, int], int], shape: tuple[int, ...] = ROWS) -> Graph:
    net = Net()
    return net.graph(build(net, net.input(*shape)))


def _types(graph: Graph, op: str) -> list[str]:
    return [expr.dtype for expr in graph.exprs if expr.op == op]


def test_products_and_what_follows_them_are_narrow() -> None:
    graph = _only(lambda b, x: b.elementwise("nn.relu", b.product(b.product(x, 8), 8)))
    made = normalise(graph).graph
    assert _types(made, "matmul") == [F16, F16]
    assert operators(made).count("astype") == 2  # its input, and its result


def test_images_lie_in_nhwc_between_convolutions() -> None:
    graph = _only(lambda b, x: b.conv(b.bias(b.conv(x)), stride=2), IMAGE)
    made = normalise(graph).graph
    assert operators(made).count("permute_dims") == 2
    layouts = {e.attrs.of(Convolution).data_layout for e in made.exprs if e.op == "nn.conv2d"}
    assert layouts == {"NHWC"}


def test_a_sum_of_two_layouts_lies_as_convolutions_read_it() -> None:
    def build(b: Net, x: int) -> int:
        return b.conv(b.elementwise("add", b.conv(x), b.input(*IMAGE)))

    found = operators(normalise(_only(build, IMAGE)).graph)
    assert found.count("permute_dims") == 3  # of both inputs, and of the result


def test_a_batch_norm_is_part_of_the_convolution_before_it() -> None:
    graph = _only(lambda b, x: b.batch_norm(b.bias(b.conv(x))), IMAGE)
    found = operators(normalise(graph).graph)
    assert "nn.batch_norm" not in found
    assert found.count("add") == 1


def test_a_batch_norm_of_no_product_scales_and_shifts() -> None:
    graph = _only(lambda b, x: b.conv(b.batch_norm(b.elementwise("nn.relu", x))), IMAGE)
    assert "nn.batch_norm" not in operators(normalise(graph).graph)


def test_flattened_images_are_multiplied_as_they_lie() -> None:
    """The weight's rows change places instead of the image's elements."""

    def build(b: Net, x: int) -> int:
        flat = b.reshape(b.elementwise("nn.relu", b.conv(x)), (N, C * SIZE * SIZE))
        return b.product(flat, 8)

    made = normalise(_only(build, IMAGE)).graph
    assert operators(made).count("permute_dims") == 1


@pytest.mark.parametrize("name", ["sum", "square"])
def test_what_fp16_may_not_hold_is_wide(name: str) -> None:
    """A sum of 64 numbers of 3000, or a square of 3000, is beyond 65504."""

    def build(b: Net, x: int) -> int:
        large = b.elementwise("multiply", b.product(x, 64), b.number(1000.0))
        squares = b.elementwise("square", large) if name == "square" else large
        total = b.reduced(squares, "sum", 2, keepdims=False)
        return b.elementwise("sqrt", b.elementwise("abs", total))

    graph = _only(build)
    made = normalise(graph).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    assert np.isfinite(found).all()
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-6 * largest)


@pytest.mark.parametrize("lowest", [-1e9, -np.inf])
def test_masks_of_a_softmax_hide_as_before(lowest: float) -> None:
    def build(b: Net, x: int) -> int:
        scores = b.matmul(x, b.permute_dims(x, (0, 2, 1)), F32)
        mask = b.constant(np.where(np.tri(5), 0.0, lowest).astype(np.float32))
        return b.softmax(b.elementwise("add", scores, mask), -1)

    graph = _only(build)
    made = normalise(graph).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    assert (found[:, ~np.tri(5, dtype=bool)] == 0).all()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-6)


@pytest.mark.parametrize("lowest", [-1e9, -np.inf])
def test_a_row_without_keys_is_what_its_author_wrote(lowest: float) -> None:
    """NaN if the mask is infinite, and equal weights if all scores are as low."""
    b = Net()
    x = b.input(*ROWS)
    scores = b.matmul(x, b.permute_dims(x, (0, 2, 1)), F32)
    shape = (N, 1, 5)
    nothing = b.operator("greater", (b.input(*shape), b.number(1e9)), shape, "bool")
    masks = [
        b.operator("where", (nothing, b.number(0.0), b.number(low)), shape, F32)
        for low in (-1e9, lowest)
    ]
    masked = b.elementwise("add", scores, b.elementwise("add", *masks))
    graph = b.graph(b.softmax(masked, -1))
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (normalise(graph).graph, graph))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert np.isnan(wanted).all() == (lowest == -np.inf)


def _spelled_softmax(b: Net, x: int) -> int:
    powers = b.elementwise(
        "exp", b.elementwise("subtract", x, b.reduced(x, "max", 2, keepdims=True))
    )
    return b.elementwise("divide", powers, b.reduced(powers, "sum", 2, keepdims=True))


def _spelled_softplus(b: Net, x: int) -> int:
    limit = b.operator("greater", (x, b.number(20.0)), b.shape(x), "bool")
    total = b.elementwise("add", b.elementwise("exp", x), b.number(1.0))
    logarithm = b.elementwise("log", total)
    return b.operator("where", (limit, x, logarithm), b.shape(x), F32)


def _prelu(b: Net, x: int) -> int:
    return b.operator("nn.prelu", (x, b.weight(8)), b.shape(x), F32, axis=2)


def _bias_add(b: Net, x: int) -> int:
    return b.operator("nn.bias_add", (b.product(x, 8), b.weight(5)), b.shape(x), F32, axis=1)


def _conv1d(b: Net, x: int) -> int:
    attrs = {"strides": (1,), "padding": (1, 1), "dilation": (1,), "groups": 1}
    layouts = {"data_layout": "NCW", "kernel_layout": "OIW", "out_layout": "NCW"}
    return b.operator("nn.conv1d", (x, b.weight(4, 5, 3)), (N, 4, 8), F32, **attrs, **layouts)


def _repeated(b: Net, x: int) -> int:
    apart = b.reshape(b.product(x, 8), (N, 5, 2, 4))
    return b.operator("repeat", (apart,), (N, 10, 2, 4), F32, repeats=2, axis=1)


def _of_stack(b: Net, x: int) -> int:
    both = b.operator("stack", (x, b.product(x, 8)), (2, *b.shape(x)), F32, axis=0)
    return b.reduced(both, "max", 0, keepdims=False)


def _mean_by_sum(b: Net, x: int) -> int:
    total = b.reduced(b.product(x, 8), "sum", 2, keepdims=True)
    return b.elementwise("divide", total, b.number(8.0))


def _folded(b: Net, x: int) -> int:
    twice = b.elementwise("multiply", b.weight(8, 4), b.number(2.0))
    turned = b.permute_dims(b.reshape(twice, (4, 8)), (1, 0))
    return b.matmul(x, turned, F32)


def _group_norm(b: Net, x: int) -> int:
    image = b.conv(b.reshape(b.product(x, 8), (N, 5, 4, 2)), 6)
    options = {"groups": 2, "epsilon": 1e-5, "channel_axis": 1}
    return b.operator(IMAGE_NORM, (image,), b.shape(image), F32, **options)


def _wide_arithmetic(b: Net, x: int) -> int:
    """A guard that FP16 has not keeps a divisor from zero."""
    guarded = b.elementwise("add", b.elementwise("square", x), b.number(2.0**-40))
    return b.elementwise("multiply", x, b.elementwise("rsqrt", guarded))


def _sizes(b: Net, x: int) -> int:
    """A small factor, and a large one behind it."""
    small = b.elementwise("multiply", b.product(x, 8), b.number(2.0**-30))
    return b.elementwise("multiply", b.elementwise("nn.relu", small), b.number(2.0**30))


def _total(b: Net, x: int) -> int:
    """Along all axes, by the name that a frontend has for them."""
    made = b.elementwise("nn.relu", b.product(x, 8))
    return b.operator("mean", (made,), (), F32, axis=None, keepdims=False)


def _reversed(b: Net, x: int) -> int:
    made = b.product(x, 8)
    return b.operator("permute_dims", (made,), b.shape(made)[::-1], F32, axes=None)


def _apart(widths: tuple[tuple[int, int], ...]) -> Callable[[Net, int], int]:
    def padded(b: Net, x: int) -> int:
        """Zeros around an image, beside those of its convolution."""
        image = b.reshape(b.product(x, 8), (N, 5, 4, 2))
        return b.conv(b.pad(image, widths, 0.0, "constant"), 6)

    return padded


def _quarters(b: Net, x: int) -> int:
    image = b.conv(b.reshape(b.product(x, 8), (N, 5, 4, 2)), 6)
    attrs = {"layout": "NCHW", "out_layout": "NCHW", "output_size": (2, 1)}
    return b.operator("nn.adaptive_avg_pool2d", (image,), (N, 6, 2, 1), F32, **attrs)


def _of_many_matrices(b: Net, x: int) -> int:
    """Each matrix has a constant of its own."""
    return b.matmul(b.product(x, 8), b.weight(N, 8, 4), F32)


def _grouped(b: Net, x: int) -> int:
    rows = b.reshape(b.product(x, 8), (N * 5, 8))
    ends = b.constant(np.array([3, 3, N * 5], np.int64))
    return b.operator(GROUPED, (rows, b.weight(3, 8, 4), ends), (N * 5, 4), F32)


def _split(b: Net, x: int) -> int:
    """The parts of a tuple."""
    both = b.add(Expr(op="split", args=(b.product(x, 8),), shape=None, dtype="", attrs=Axis(-1)))
    left, right = (b.operator(PART, (both,), (N, 5, 4), F32, index=at) for at in range(2))
    return b.product(b.elementwise("multiply", left, b.elementwise("tanh", right)), 8)


_around = _apart(((0, 0), (0, 0), (1, 2), (3, 0)))
_channels = _apart(((0, 0), (0, 3), (1, 1), (1, 1)))
_images = _apart(((1, 0), (0, 0), (1, 1), (1, 1)))


PATTERNS = [
    *(_quarters, _total, _reversed, _around, _channels, _images),
    *(_spelled_softmax, _spelled_softplus, _prelu, _bias_add, _conv1d, _repeated, _of_stack),
    *(_of_many_matrices, _grouped, _split),
    *(_mean_by_sum, _folded, _group_norm, _wide_arithmetic, _sizes),
]


@pytest.mark.parametrize("precision", [DType.F16, DType.BF16])
@pytest.mark.parametrize("build", PATTERNS, ids=lambda build: build.__name__)
def test_patterns_compute_the_same(build: Callable[[Net, int], int], precision: DType) -> None:
    graph = _only(build)
    made = normalise(graph, precision=precision).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    largest = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * precision.ulp * largest)


def test_groups_of_rows_are_multiplied_in_fp16() -> None:
    made = normalise(_only(_grouped)).graph
    (grouped,) = (expr for expr in made.exprs if expr.op == GROUPED)
    assert [made[arg].dtype for arg in grouped.args[:2]] == [F16, F16]


def test_what_an_fp16_model_widens_is_wide() -> None:
    """Its author asks for numbers beyond FP16's."""
    net = Net()
    large = net.constant(np.array(20000.0, np.float16))
    x = net.elementwise("multiply", net.elementwise("tanh", net.input(*ROWS, dtype=F16)), large)
    wide = net.elementwise("multiply", net.astype(x, F32), net.number(100.0))
    graph = net.graph(wide)
    made = normalise(graph).graph
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    assert np.abs(wanted).max() > DType.F16.largest
    np.testing.assert_allclose(found, wanted, rtol=2.0**-9)


def test_a_constant_of_an_open_size_is_no_constant() -> None:
    net = Net()
    shape = (symbolic(Symbol("rows", 1, 64)), 8)
    x = net.add(Expr(op=INPUT, shape=shape, dtype=F32))
    row = net.operator("broadcast_to", (net.weight(8),), shape, F32)
    total = net.elementwise("add", net.product(x, 8), row)
    made = normalise(net.graph(net.product(total, 8))).graph
    assert _types(made, "broadcast_to") == [F16]  # a rule for it applies, as for other operators


@pytest.mark.parametrize(("name", "dtype"), [("max", F16), ("min", F16), ("sum", F32)])
def test_a_reduction_of_many_numbers_is_wide_if_it_adds_them(name: str, dtype: str) -> None:
    def build(b: Net, x: int) -> int:
        return b.product(b.reduced(b.product(x, 64), name, 2, keepdims=False), 8)

    assert _types(normalise(_only(build)).graph, "matmul")[1] == dtype


@pytest.mark.parametrize(("exponent", "dtype"), [(0.5, F16), (1.0, F16), (2.0, F32), (3.0, F32)])
def test_a_power_is_wide_where_it_enlarges_numbers(exponent: float, dtype: str) -> None:
    def build(b: Net, x: int) -> int:
        made = b.elementwise("nn.relu", b.product(x, 8))
        return b.product(b.elementwise("power", made, b.number(exponent)), 8)

    assert _types(normalise(_only(build)).graph, "matmul")[1] == dtype


def test_zeros_around_an_image_are_its_convolution_s() -> None:
    made = normalise(_only(_around)).graph
    assert "nn.pad" not in operators(made)
    (padding,) = (e.attrs.of(Convolution).padding for e in made.exprs if e.op == "nn.conv2d")
    assert padding == (2, 4, 3, 1)
    for build in (_channels, _images):
        assert "nn.pad" in operators(normalise(_only(build)).graph)


@pytest.mark.parametrize(("divisor", "dtype"), [(64.0, F16), (32.0, F16), (16.0, F32)])
def test_a_mean_by_its_sum_is_no_larger_than_its_numbers(divisor: float, dtype: str) -> None:
    def build(b: Net, x: int) -> int:
        total = b.reduced(b.product(x, 64), "sum", 2, keepdims=False)
        return b.product(b.elementwise("divide", total, b.number(divisor)), 8)

    assert _types(normalise(_only(build)).graph, "matmul")[1] == dtype


def test_spelled_functions_are_known() -> None:
    found = operators(normalise(_only(_spelled_softmax)).graph)
    assert "nn.softmax" in found and "divide" not in found
    found = operators(normalise(_only(_spelled_softplus)).graph)
    assert "nn.softplus" in found and "where" not in found


def test_operators_on_constants_are_computed_when_the_model_is_built() -> None:
    found = operators(normalise(_only(_folded)).graph)
    assert not {"multiply", "reshape"} & set(found)  # the weight stays a view of its columns


def test_a_weight_that_is_not_a_number_is_refused() -> None:
    def build(b: Net, x: int) -> int:
        weight = np.ones((8, 8), np.float32)
        weight[2, 3] = np.nan
        return b.matmul(x, b.constant(weight), F32)

    graph = _only(build)
    with pytest.raises(ModelImportError, match=r"of shape .8, 8., contains nan"):
        normalise(graph)
    assert _types(normalise(graph, allow_nonfinite=True).graph, "matmul") == [F16]


@pytest.mark.parametrize(("size", "is_scaled"), [(2.0**-28, True), (1.0, False)])
def test_small_weights_are_scaled_by_powers_of_two(size: float, is_scaled: bool) -> None:
    def build(b: Net, x: int) -> int:
        weight = np.arange(-31, 33, dtype=np.float32).reshape(8, 8) * size
        return b.elementwise("divide", b.matmul(x, b.constant(weight), F32), b.number(size))

    graph = _only(build)
    made = normalise(graph).graph
    assert (operators(made).count("multiply") > 0) == is_scaled
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-9 * np.abs(wanted).max())


def test_what_was_seen_to_be_large_stays_wide() -> None:
    graph = _only(lambda b, x: b.product(b.elementwise("nn.relu", b.product(x, 8)), 8))
    places = [i for i, expr in enumerate(graph.exprs) if expr.op == "nn.relu"]
    exprs = [
        replace(expr, observed=(0.0, 1e6)) if index in places else expr
        for index, expr in enumerate(graph.exprs)
    ]
    seen = replace(graph, exprs=tuple(exprs))
    assert _types(walk.normalise(graph).graph, "nn.relu") == [F16]
    made = normalise(seen).graph
    assert _types(made, "nn.relu") == [F32]
    assert _types(made, "matmul")[1] == F32


@pytest.mark.parametrize(
    ("op", "observed", "dtype"),
    [
        ("add", (-1e9, 5.0), F16),  # a mask is the lowest of scores
        ("add", (-5.0, 1e9), F32),
        ("multiply", (-1e9, 5.0), F32),
        ("multiply", (-65504.0, 65504.0), F16),
        ("multiply", (float("nan"), float("nan")), F32),
    ],
)
def test_scores_are_large_where_no_mask_makes_them_so(
    op: str, observed: tuple[float, float], dtype: str
) -> None:
    b = Net()
    scores = b.elementwise(op, b.product(b.input(*ROWS), 5), b.number(0.125))
    exprs = list(b.graph(b.softmax(scores, -1)).exprs)
    exprs[scores] = replace(exprs[scores], observed=observed)
    seen = Graph(tuple(exprs), frozenset({len(exprs) - 1}), len(exprs) - 1)
    assert _types(walk.normalise(seen).graph, op)[-1] == dtype


def test_inputs_of_fp16_keep_what_their_author_made_fp32() -> None:
    net = Net()
    x = net.input(4, 8, dtype=F16)
    weight: AnyArray = np.ones((8, 8), np.float16)
    wide = net.astype(net.matmul(x, net.constant(weight), F16), F32)
    graph = net.graph(net.elementwise("multiply", wide, net.number(3.0)))
    made = normalise(graph).graph
    assert _types(made, "multiply") == [F32]
