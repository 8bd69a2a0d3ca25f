"""Which norms of rows become regions, in which spellings, and why others stay with TVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, REGION, Expr, Graph, GraphBuilder
from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.elementwise import MAX_OPERANDS, LoadKind
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.norms.spelled_norms import spelled_norm
from boltgen.passes.outline import CarvedRegion, Symbols
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Workload
from tests.passes.carved import carve

SHAPE = (2, 5, 64)
COLUMNS = SHAPE[-1]
F16, F32 = "float16", "float32"


class Builder(GraphBuilder):
    """Grows norms in the neutral graph."""

    def input(self, *shape: int, dtype: str = F16) -> int:
        return self.add(Expr(op=INPUT, shape=shape or SHAPE, dtype=dtype))

    def number(self, value: float, dtype: str = F16) -> int:
        return self.add(Expr(op="constant", shape=(), dtype=dtype, scalar=value))

    def softmax(self, x: int, axis: int = -1) -> int:
        return self.operator("nn.softmax", (x,), self.shape(x), self.dtype(x), axis=axis)

    def layer_norm(self, x: int, axes: tuple[int, ...] = (-1,), **flags: bool) -> int:
        own = [self.shape(x)[axis] for axis in axes]
        rows = [self.input(*own, dtype=self.dtype(x)) for _ in range(2)]
        attrs = {"axes": axes, "epsilon": 1e-5, "scale": True, "center": True, **flags}
        return self.operator("nn.layer_norm", (x, *rows), self.shape(x), self.dtype(x), **attrs)

    def mean(self, x: int) -> int:
        shape = (*self.shape(x)[:-1], 1)
        return self.operator("mean", (x,), shape, self.dtype(x), axis=(-1,), keepdims=True)

    def summed_mean(self, x: int) -> int:
        shape = (*self.shape(x)[:-1], 1)
        total = self.operator("sum", (x,), shape, self.dtype(x), axis=(2,), keepdims=True)
        return self.elementwise("divide", total, self.number(COLUMNS, self.dtype(x)))

    def squares(self, x: int, how: str) -> int:
        match how:
            case "power":
                return self.elementwise("power", x, self.number(2.0, self.dtype(x)))
            case "square":
                return self.elementwise("square", x)
            case _:
                return self.elementwise("multiply", x, x)

    def scaled(self, x: int, variance: int, how: str) -> int:
        dtype = self.dtype(variance)
        raised = self.elementwise("add", variance, self.number(1e-5, dtype))
        match how:
            case "sqrt":
                return self.elementwise("divide", x, self.elementwise("sqrt", raised))
            case "power":
                root = self.elementwise("power", raised, self.number(0.5, dtype))
                return self.elementwise("divide", x, root)
            case "inverse":
                root = self.elementwise("sqrt", raised)
                inverse = self.elementwise("divide", self.number(1.0, dtype), root)
                return self.elementwise("multiply", x, inverse)
            case _:
                return self.elementwise("multiply", self.elementwise("rsqrt", raised), x)


def _carved(
    build: Callable[[Builder], Any], rejects: Callable[[Workload], str | None] | None = None
) -> tuple[Graph, tuple[CarvedRegion, ...]]:
    builder = Builder()
    graph = builder.graph(build(builder))
    return carve(graph, Symbols(()), rejects=rejects or (lambda workload: None))


def _only(build: Callable[[Builder], Any]) -> tuple[Graph, CarvedRegion, Norm]:
    graph, (found,) = _carved(build)
    problem = found.region.workload.single.problem
    assert isinstance(problem, Norm)
    return graph, found, problem


def _operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op != INPUT]


def test_a_softmax_is_a_region_with_the_casts_around_it() -> None:
    def build(b: Builder) -> int:
        return b.astype(b.softmax(b.astype(b.input(), F32)), F16)

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert (problem.function, problem.matrix) == (NormFunction.SOFTMAX, (10, COLUMNS))
    assert (problem.in_dtype, problem.out_dtype) == (DType.F16, DType.F16)
    assert found.region.parameter_count == 1
    assert found.region.layers[0].b is None


def test_a_cast_that_the_epilogue_reads_too_stays_before() -> None:
    def build(b: Builder) -> int:
        wide = b.astype(b.input(), F32)
        return b.astype(b.elementwise("add", b.softmax(wide), wide), F16)

    graph, found, problem = _only(build)
    assert _operators(graph) == ["astype", REGION]
    assert (problem.in_dtype, problem.out_dtype) == (DType.F32, DType.F16)
    assert found.region.parameter_count == 1
    (load,) = found.region.workload.single.epilogue.loads
    assert (load.kind, load.dtype) == (LoadKind.TENSOR, DType.F32)


def test_a_cast_in_a_spelled_norm_is_no_operand_of_it() -> None:
    def build(b: Builder) -> int:
        x = b.astype(b.input(), F32)
        centred = b.elementwise("subtract", x, b.mean(x))
        variance = b.mean(b.elementwise("multiply", centred, centred))
        root = b.elementwise("sqrt", b.elementwise("add", variance, b.number(1e-5, F32)))
        return b.elementwise("add", b.elementwise("divide", centred, root), x)

    graph, found, problem = _only(build)
    assert problem.function is NormFunction.LAYER
    assert _operators(graph) == ["astype", REGION, "add"]
    assert found.region.parameter_count == 1


def test_scale_shift_and_activation_are_the_epilogue_of_a_layer_norm() -> None:
    def build(b: Builder) -> int:
        return b.elementwise("nn.relu", b.layer_norm(b.input()))

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert (problem.function, problem.epsilon) == (NormFunction.LAYER, 1e-5)
    layer = found.region.workload.single
    assert layer.epilogue.describe() == "relu(add(multiply(acc, row0), row1))"
    assert found.region.parameter_count == 3


def test_a_layer_norm_without_a_shift_loads_its_scale_alone() -> None:
    _, found, _ = _only(lambda b: b.layer_norm(b.input(), center=False))
    assert found.region.workload.single.epilogue.describe() == "multiply(acc, row0)"


def test_a_sum_before_is_the_prologue_and_a_result_where_others_read_it() -> None:
    def build(b: Builder, *, is_read: bool) -> Any:
        total = b.elementwise("add", b.input(), b.input())
        made = b.layer_norm(total)
        return (made, b.permute_dims(total, (0, 2, 1))) if is_read else made

    graph, found, _ = _only(lambda b: build(b, is_read=False))
    layer = found.region.workload.single
    assert _operators(graph) == [REGION]
    assert layer.prologue.describe() == "add(acc, tensor0)"
    assert [load.kind for load in layer.loads] == [LoadKind.TENSOR, LoadKind.ROW, LoadKind.ROW]
    graph, found, _ = _only(lambda b: build(b, is_read=True))
    layer = found.region.workload.single
    assert [dtype for _, dtype in layer.further] == [DType.F16]
    assert _operators(graph) == [REGION, "part", "part", "permute_dims"]


def test_a_sum_that_is_read_before_the_norm_ends_stays_with_tvm() -> None:
    def build(b: Builder) -> int:
        total = b.elementwise("add", b.input(), b.input())
        turned = b.permute_dims(b.permute_dims(total, (0, 2, 1)), (0, 2, 1))
        return b.elementwise("add", b.layer_norm(total), turned)

    graph, found, _ = _only(build)
    assert found.region.workload.single.prologue.is_identity
    assert _operators(graph) == ["add", "permute_dims", "permute_dims", REGION]


@pytest.mark.parametrize("mean", ["mean", "summed_mean"])
@pytest.mark.parametrize("squares", ["power", "square", "multiply"])
@pytest.mark.parametrize("root", ["sqrt", "power", "inverse", "rsqrt"])
def test_a_layer_norm_is_known_in_all_spellings(mean: str, squares: str, root: str) -> None:
    def build(b: Builder) -> int:
        x = b.input()
        centred = b.elementwise("subtract", x, getattr(b, mean)(x))
        made = b.scaled(centred, getattr(b, mean)(b.squares(centred, squares)), root)
        scaled = b.elementwise("multiply", made, b.input(COLUMNS))
        return b.elementwise("add", scaled, b.input(COLUMNS))

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert (problem.function, problem.epsilon) == (NormFunction.LAYER, 1e-5)
    layer = found.region.workload.single
    assert layer.epilogue.describe() == "add(multiply(acc, row0), row1)"


@pytest.mark.parametrize("squares", ["power", "square", "multiply"])
@pytest.mark.parametrize("root", ["sqrt", "power", "inverse", "rsqrt"])
def test_an_rms_norm_is_known_in_all_spellings_with_casts_between(squares: str, root: str) -> None:
    def build(b: Builder) -> int:
        wide = b.astype(b.input(), F32)
        made = b.astype(b.scaled(wide, b.mean(b.squares(wide, squares)), root), F16)
        return b.elementwise("multiply", b.input(COLUMNS), made)

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert (problem.function, problem.in_dtype) == (NormFunction.RMS, DType.F16)
    assert found.region.workload.single.epilogue.loads[0].kind is LoadKind.ROW


def test_two_norms_of_one_tensor_are_a_kernel_each() -> None:
    """Beside each other, as before the attention and the product of a parallel layer."""

    def build(b: Builder) -> tuple[int, int]:
        wide = b.astype(b.input(), F32)

        def normed() -> int:
            made = b.astype(b.scaled(wide, b.mean(b.squares(wide, "power")), "rsqrt"), F16)
            return b.elementwise("multiply", b.input(COLUMNS), made)

        return normed(), normed()

    graph, found = _carved(build)
    assert _operators(graph) == [REGION, REGION]
    for each in found:
        problem = each.region.workload.single.problem
        assert isinstance(problem, Norm)
        assert (problem.function, problem.in_dtype) == (NormFunction.RMS, DType.F16)


def _mean_of_another(b: Builder) -> int:
    x = b.input()
    centred = b.elementwise("subtract", x, b.mean(b.input()))
    return b.scaled(centred, b.mean(b.squares(b.input(), "power")), "sqrt")


def _mean_is_read(b: Builder) -> tuple[int, int]:
    x = b.input()
    squared = b.mean(b.squares(x, "power"))
    return b.scaled(x, squared, "rsqrt"), squared


def _root_of_a_product(b: Builder) -> int:
    x = b.input()
    return b.scaled(x, b.mean(b.elementwise("multiply", x, b.input())), "rsqrt")


def _inverted_division(b: Builder) -> int:
    x = b.input()
    raised = b.elementwise("add", b.mean(b.squares(x, "power")), b.number(1e-5))
    return b.elementwise("divide", x, b.elementwise("rsqrt", raised))


def test_a_sum_that_a_matmul_s_kernel_computes_is_no_part_of_the_norm_s() -> None:
    def build(b: Builder) -> int:
        product = b.operator("matmul", (b.input(), b.input(COLUMNS, COLUMNS)), SHAPE, F16)
        return b.layer_norm(b.elementwise("add", product, b.input()))

    graph, found = _carved(build)
    assert _operators(graph) == [REGION, REGION]
    sums = [[expr.op for expr in each.body.exprs].count("add") for each in found]
    assert sums == [1, 0]


def test_a_sum_of_integers_is_no_part_of_a_kernel() -> None:
    def build(b: Builder) -> int:
        total = b.elementwise("add", b.input(dtype="int32"), b.input(dtype="int32"))
        return b.layer_norm(b.astype(total, F16))

    graph, _, problem = _only(build)
    assert "add" in _operators(graph)
    assert problem.in_dtype is DType.F16


@pytest.mark.parametrize(
    "build", [_mean_of_another, _mean_is_read, _root_of_a_product, _inverted_division]
)
def test_what_only_resembles_a_norm_is_none(build: Callable[[Builder], Any]) -> None:
    graph, found = _carved(build)
    assert not found
    assert REGION not in _operators(graph)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda b: b.softmax(b.input(), axis=1), "the axes 1 of 3"),
        (lambda b: b.layer_norm(b.input(), axes=(1, 2)), "the axes 1, 2 of 3"),
        (lambda b: b.softmax(b.input(dtype="float64")), "float64"),
    ],
    ids=["axis", "axes", "type"],
)
def test_a_norm_that_no_kernel_computes_stays_with_its_reason(
    build: Callable[[Builder], int], reason: str
) -> None:
    graph, found = _carved(build)
    assert not found
    (stays,) = (expr for expr in graph.exprs if expr.op.startswith("nn."))
    assert reason in stays.reason


def test_a_norm_that_is_rejected_stays_with_its_reason() -> None:
    graph, found = _carved(lambda b: b.softmax(b.input()), lambda workload: "there is no time")
    assert not found
    assert graph.exprs[-1].reason == "there is no time"


def test_a_norm_writes_what_the_product_behind_it_multiplies() -> None:
    """The product's call would cast it else, in a kernel of its own."""

    def build(b: Builder) -> int:
        weights = b.softmax(b.input(dtype=F32))
        return b.matmul(b.astype(weights, F16), b.input(COLUMNS, 32), F16)

    graph, (norm, product) = _carved(build)
    assert _operators(graph) == [REGION, REGION]
    assert norm.region.workload.single.problem.out_dtype is DType.F16
    assert product.region.a_stored is None


def _taken(b: Builder, rows: int, **attrs: object) -> int:
    """Rows of a table of 30, in the shape of the integers."""
    shape = (*b.shape(rows), COLUMNS)
    table = b.input(30, COLUMNS)
    return b.operator("take", (table, rows), shape, F16, **{"axis": 0, "mode": "clip", **attrs})


def test_rows_of_a_table_are_taken_by_the_kernel() -> None:
    def build(b: Builder) -> int:
        ids = b.input(2, 5, dtype="int32")
        return b.layer_norm(_taken(b, ids))

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert (problem.rows, problem.a_rows, problem.rows_dtype) == (10, 30, IndexType.INT32)
    assert found.region.workload.single.prologue.is_identity
    assert found.region.label == "take + layer_norm"
    (roles,) = found.region.layers
    assert roles.rows is not None
    assert graph[graph[-1].args[roles.rows]].dtype == "int32"
    assert graph[graph[-1].args[found.region.a]].shape == (30, COLUMNS)


def test_rows_that_others_read_too_are_a_result_of_the_kernel() -> None:
    def build(b: Builder) -> tuple[int, int]:
        x = b.reshape(_taken(b, b.input(10, dtype="int64")), SHAPE)
        return b.layer_norm(x), b.elementwise("exp", x)

    graph, found, problem = _only(build)
    assert problem.a_rows == 30
    layer = found.region.workload.single
    assert [store.dtype for store, _ in layer.further] == [DType.F16]
    assert "take" not in _operators(graph)
    assert "take" in [expr.op for expr in found.body.exprs]


def test_rows_that_others_read_before_stay_with_tvm() -> None:
    """The kernel would write them only where its norm stands; and its own epilogue loads them."""

    def before(b: Builder) -> tuple[int, int]:
        x = _taken(b, b.input(2, 5, dtype="int32"))
        other = b.elementwise("exp", x)
        return b.layer_norm(x), other

    def after(b: Builder) -> int:
        x = _taken(b, b.input(2, 5, dtype="int32"))
        return b.elementwise("maximum", b.layer_norm(x), x)

    for build in (before, after):
        graph, _, problem = _only(build)
        assert problem.a_rows is None
        assert _operators(graph)[0] == "take"


def test_the_integers_are_no_operand_of_a_full_launch() -> None:
    def build(b: Builder) -> int:
        x = b.layer_norm(_taken(b, b.input(2, 5, dtype="int32")))  # with a scale and a shift
        for shape in (SHAPE, SHAPE, (COLUMNS,), (COLUMNS,), (2, 5, 1)):
            x = b.elementwise("add", x, b.input(*shape))
        return x

    _, found, problem = _only(build)
    assert len(found.region.workload.single.loads) == MAX_OPERANDS
    assert problem.a_rows == 30


@pytest.mark.parametrize("places", [(1, 5, COLUMNS), (5, COLUMNS)])
def test_a_sum_of_three_has_a_table_an_operand_and_positions(places: tuple[int, ...]) -> None:
    def build(b: Builder) -> int:
        words, types = (_taken(b, b.input(2, 5, dtype="int32")) for _ in range(2))
        both = b.operator("add", (words, types), SHAPE, F16)
        return b.layer_norm(b.operator("add", (both, b.input(*places)), SHAPE, F16))

    graph, found, problem = _only(build)
    assert _operators(graph) == ["take", REGION]
    assert (problem.slice_rows, problem.a_rows) == (5, 30)
    prologue = found.region.workload.single.prologue
    assert prologue.describe() == "add(add(acc, tensor0), position_row0)"


def test_a_sum_that_others_read_is_read_as_it_is() -> None:
    def build(b: Builder) -> tuple[int, int]:
        words = _taken(b, b.input(2, 5, dtype="int32"))
        both = b.operator("add", (words, b.input()), SHAPE, F16)
        total = b.operator("add", (both, b.input(5, COLUMNS)), SHAPE, F16)
        return b.layer_norm(total), both

    graph, found, problem = _only(build)
    assert _operators(graph)[:2] == ["take", "add"]
    assert problem.gathered is None
    prologue = found.region.workload.single.prologue
    assert prologue.describe() == "add(acc, position_row0)"


def test_positions_of_other_slices_than_the_rows_behind_are_tvms() -> None:
    def build(b: Builder) -> int:
        total = b.operator(
            "add", (b.input(2, 6, 5, COLUMNS), b.input(5, COLUMNS)), (2, 6, 5, COLUMNS), F16
        )
        normed = b.layer_norm(total)
        return b.operator("multiply", (normed, b.input(2, 1, 1, COLUMNS)), (2, 6, 5, COLUMNS), F16)

    graph, _, problem = _only(build)
    assert _operators(graph) == ["add", REGION]
    assert problem.slice_rows == 30


@pytest.mark.parametrize("place", ["left", "right"])
def test_a_sum_has_the_table_as_a_and_the_rest_as_an_operand(place: str) -> None:
    def build(b: Builder) -> int:
        x, y = _taken(b, b.input(2, 5, dtype="int32")), b.input()
        return b.layer_norm(b.elementwise("add", *((x, y) if place == "left" else (y, x))))

    graph, found, problem = _only(build)
    assert _operators(graph) == [REGION]
    assert problem.a_rows == 30
    (roles,) = found.region.layers
    arguments = graph[-1].args
    assert graph[arguments[roles.operands[0].parameter]].shape == SHAPE
    assert graph[arguments[found.region.a]].shape == (30, COLUMNS)


def test_rows_that_wrap_around_stay_with_tvm() -> None:
    def build(b: Builder) -> int:
        return b.layer_norm(_taken(b, b.input(2, 5, dtype="int32"), mode="wrap"))

    graph, _, problem = _only(build)
    assert _operators(graph) == ["take", REGION]
    assert problem.a_rows is None


@pytest.mark.parametrize("how", ["of the inverse", "multiplied", "two over"])
def test_an_inverse_root_that_divides_is_no_norm(how: str) -> None:
    """x / (1 / sqrt(v)) and x sqrt(v) multiply by the root."""
    b = Builder()
    x = b.input(2, 3, COLUMNS)
    raised = b.elementwise("add", b.mean(b.squares(x, "square")), b.number(1e-5))
    root = b.elementwise("sqrt", raised)
    above = b.number(2.0 if how == "two over" else 1.0)
    inverse = b.elementwise("divide", above, root)
    match how:
        case "of the inverse":
            made = b.elementwise("divide", x, inverse)
        case "two over":
            made = b.elementwise("multiply", x, inverse)
        case _:
            made = b.elementwise("multiply", x, root)
    graph = b.graph(made)
    assert spelled_norm(graph, len(graph) - 1) is None


def _layer(
    b: Builder,
    shape: tuple[int, ...],
    axes: tuple[int, ...] = (-1,),
    *,
    epsilon: float = 1e-5,
    keepdims: bool = True,
    count: float | None = None,
    how: str = "divide",
) -> int:
    """A layer norm of `shape`, whose means are sums scaled by `count` if it is given."""
    x = b.input(*shape, dtype=F32)
    kept = tuple(1 if axis - len(shape) in axes else each for axis, each in enumerate(shape))

    def mean(y: int) -> int:
        out = kept if keepdims else tuple(each for each in kept if each != 1)
        name = "mean" if count is None else "sum"
        made = b.operator(name, (y,), out, F32, axis=axes, keepdims=keepdims)
        if count is not None:
            made = b.elementwise(how, made, b.number(count, F32))
        return made if keepdims else b.reshape(made, kept)

    centred = b.elementwise("subtract", x, mean(x))
    raised = b.elementwise("add", mean(b.elementwise("square", centred)), b.number(epsilon, F32))
    return b.elementwise("divide", centred, b.elementwise("sqrt", raised))


_OPEN = symbolic(Symbol("columns", 2, 64))


@pytest.mark.parametrize(
    ("shape", "options", "outer"),
    [
        (SHAPE, {}, 2),
        (SHAPE, {"epsilon": 0.0}, 2),
        (SHAPE, {"epsilon": -1e-5}, None),
        (SHAPE, {"keepdims": False}, None),
        (SHAPE, {"count": 64.0}, 2),
        (SHAPE, {"count": 63.0}, None),
        (SHAPE, {"count": 1 / 64, "how": "multiply"}, 2),
        ((2, 5, 3), {"count": float(np.float32(1 / 3)), "how": "multiply"}, 2),
        ((2, 5, 3), {"count": float(np.float16(1 / 3)), "how": "multiply"}, 2),
        ((2, 5, 3), {"count": 1 / 3, "how": "multiply"}, None),
        ((2, 5, 3), {"count": 3.0, "how": "multiply"}, None),
        ((2, _OPEN), {}, 1),
        ((2, _OPEN), {"count": 3.0}, None),
        (SHAPE, {"axes": (-2,)}, None),
        (SHAPE, {"axes": (-2, -1)}, None),
    ],
)
def test_which_rows_a_spelled_norm_has(
    shape: tuple[int, ...], options: dict[str, Any], outer: int | None
) -> None:
    b = Builder()
    made = _layer(b, shape, **options)
    found = spelled_norm(b.graph(made), made)
    assert (None if found is None else found.outer) == outer


@pytest.mark.parametrize(
    ("shape", "axes", "outer"),
    [
        (SHAPE, (-1,), 2),
        (SHAPE, (-2, -1), 1),
        (SHAPE, (-3, -2, -1), 0),
        (SHAPE, (-3, -1), None),
        (SHAPE, (-2,), None),
        ((2, 5, 1), (-2,), 1),  # the last axis has no neighbours to stand apart from
        ((2, 1, 64), (-3, -1), 0),
        ((1, 1, 1), (-2, -1), None),
    ],
)
def test_rows_of_several_axes_are_the_last_ones(
    shape: tuple[int, ...], axes: tuple[int, ...], outer: int | None
) -> None:
    b = Builder()
    made = _layer(b, shape, axes)
    found = spelled_norm(b.graph(made), made, several_axes=True)
    assert (None if found is None else found.outer) == outer


def test_an_rms_norm_of_centred_rows_is_none() -> None:
    """Others read the centred rows, so that the layer norm around them is none either."""
    b = Builder()
    x = b.input(dtype=F32)
    centred = b.elementwise("subtract", x, b.mean(x))
    squares = b.mean(b.elementwise("square", centred))
    raised = b.elementwise("add", squares, b.number(1e-5, F32))
    made = b.elementwise("divide", centred, b.elementwise("sqrt", raised))
    assert spelled_norm(b.graph((made, centred)), made) is None
    found = spelled_norm(b.graph(made), made)
    assert found is not None
    assert (found.function, found.x) == (NormFunction.LAYER, x)
