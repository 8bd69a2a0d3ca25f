"""Match a matmul or a convolution in a graph, and make the problem that a kernel solves.

IR-neutral. An operator that no kernel computes is not an error: it is `Rejected`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Convolution, RecurrentSteps, Unpack
from boltgen.graph.facts import BYTES, axis_of, is_static_call, only_reader, swaps_matrices
from boltgen.graph.graph import DEPTHWISE_KERNEL, GROUPED, RECURRENT, UNPACK, Expr, Graph
from boltgen.ir.dtypes import CONVERTED, FLOAT8, DType, IndexType, Layout
from boltgen.ir.elementwise import BinaryOp
from boltgen.ir.recurrence import Cell
from boltgen.passes.movement.sink_gathers import Taken, taken_rows
from boltgen.problems.cells import localised
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.problem import Problem
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.region import Rejected
from boltgen.problems.workload import Workload

MATMUL = "matmul"
CONV2D, CONV3D = "nn.conv2d", "nn.conv3d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A problem, where its operands are, and the operators before it that its kernel replaces.

    `operand_b` is None of a problem without B, `ends` of one whose rows are in no groups, `taken`
    of one whose rows `a` has in order: others take them of `a`. `inner` are operators before the
    one at `index` that are a part of it, and that nothing else reads. `applied` is what the
    operator itself does to the problem's result, with rows. `further` are the problem's further
    inputs.
    """

    index: int
    problem: Problem
    a: int
    operand_b: int | None
    ends: int | None = None
    taken: Taken | None = None
    absorbed: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()
    applied: tuple[tuple[BinaryOp, int], ...] = ()
    further: tuple[int, ...] = ()

    @property
    def b(self) -> int:
        """B of a product.

        Raises:
            ValueError: there is none.
        """
        if self.operand_b is None:
            raise ValueError(f"{self.problem.short} has no B")
        return self.operand_b


def with_taken(graph: Graph, anchor: Anchor, taken: Taken) -> Anchor:
    """Return `anchor` with its rows gathered from a matrix by its kernel."""
    problem: Any = anchor.problem
    made = replace(
        problem,
        a_rows=graph[taken.x].static_shape[0],
        rows_dtype=IndexType(graph[taken.rows].dtype),
    )
    return replace(anchor, problem=made, a=taken.x, taken=taken)


# By operator, the function that makes its problem of a graph, an index and the accumulator's type.
# A kind of problems from elsewhere adds its own.
MATCHERS: dict[str, Callable[[Graph, int, DType], Anchor]] = {}
# The operators that a kernel is built around.
ANCHORS = MATCHERS.keys()


class NotOffloadableError(Exception):
    """Carries the reason out of the checks of a match."""


def match_anchor(graph: Graph, index: int, accumulate: DType = DType.F32) -> Anchor | Rejected:
    """Return the problem of the operator at `index`, one of `ANCHORS`, or why there is none.

    It is summed in `accumulate`.
    """
    try:
        _check_static(graph, index)
        _check_dtypes(graph, index)
        found = MATCHERS[graph[index].op](graph, index, accumulate)
        # Raises where a symbolic extent does not decide which workload it is: 2s - 1 may decide a
        # quotient, and a kernel knows a symbol of its own for it.
        localised(Workload.of(found.problem))
    except (NotOffloadableError, InvalidProblemError) as error:
        return Rejected(operator=graph[index].op.removeprefix("nn."), reason=str(error))
    return found


def _check_static(graph: Graph, index: int) -> None:
    for role, at in (("operand", i) for i in (*graph[index].args, index)):
        shape = graph[at].shape
        where = "its result" if at == index else f"an {role}"
        if shape is None:
            raise NotOffloadableError(f"{where} has no known rank")
        for axis, extent in enumerate(shape):
            if isinstance(extent, str):
                shown = ", ".join(map(str, shape))
                raise NotOffloadableError(
                    f"dimension {axis} of {where}, ({shown}), is the symbolic '{extent}', which "
                    "kernels cannot be chosen for: give the model's inputs fixed shapes"
                )


def _check_dtypes(graph: Graph, index: int) -> None:
    operands = {graph[arg].dtype for arg in graph[index].args[:2]}
    if graph[index].dtype == DType.I32.value:
        _check_integers(graph, index)
        return
    if operands.issubset(FLOAT8) and len(operands) == 1 and graph[index].op == MATMUL:
        return
    known = [name for name in CONVERTED if DType(name).accumulators()]
    for dtype in sorted(operands):
        if dtype not in known:
            raise NotOffloadableError(
                f"an operand is {dtype}; tensor-core kernels take {' or '.join(known)}"
            )
    if len(operands) > 1:
        raise NotOffloadableError(f"its operands are {' and '.join(sorted(operands))}")
    stored = (*operands, DType.F32.value)
    if graph[index].dtype not in stored:
        raise NotOffloadableError(f"its result is {graph[index].dtype}, not {' or '.join(stored)}")


def _check_integers(graph: Graph, index: int) -> None:
    a, b = (graph[arg].dtype for arg in graph[index].args[:2])
    if a not in BYTES or b != DType(a).weight.value:
        raise NotOffloadableError(
            f"its operands are {a} and {b}; kernels of integers take int8 or uint8, and weights of "
            "int8"
        )


def _summed(accumulate: DType, operand: DType) -> DType:
    """Return the type of a product's sums; `accumulate` is of floats."""
    return DType.I32 if operand.is_whole else accumulate


def _match_convolution(graph: Graph, index: int, accumulate: DType) -> Anchor:
    expr = graph[index]
    attrs = expr.attrs.of(Convolution)
    x, weight = expr.args
    channels = graph[x].static_shape[attrs.data_layout.index("C")]
    of_volumes = expr.op == CONV3D
    if of_volumes and attrs.groups != 1:
        raise NotOffloadableError(
            f"it is of volumes with groups={attrs.groups}: kernels exist for one group only"
        )
    is_depthwise = 1 < attrs.groups == channels
    wanted, kernel = ("NDHWC", "ODHWI") if of_volumes else ("NHWC", "OHWI")
    kernel = DEPTHWISE_KERNEL if is_depthwise else kernel
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    if layouts != (wanted, kernel, wanted):
        raise NotOffloadableError(
            f"its layouts are {layouts[0]}, {layouts[1]} and {layouts[2]}; kernels take {wanted} "
            f"activations and {kernel} weights (normalisation converts them)"
        )
    image = dict(zip(wanted, graph[x].static_shape, strict=True))
    extents = dict(zip(kernel, graph[weight].static_shape, strict=True))
    given: dict[str, Any] = {
        **{"n": image["N"], "h": image["H"], "w": image["W"], "c": image["C"]},
        **{"r": extents["H"], "s": extents["W"]},
        "stride": tuple(attrs.strides),
        "padding": tuple(attrs.padding),
        "dilation": tuple(attrs.dilation),
        "in_dtype": DType(graph[x].dtype),
        "out_dtype": DType(expr.dtype),
    }
    if is_depthwise:
        return _depthwise(graph, index, extents["O"] // image["C"], given)
    if of_volumes:
        given |= {"depth": image["D"], "t": extents["D"]}
        problem: Problem = Conv3d(**given, k=extents["O"], acc_dtype=accumulate)
    else:
        problem = Conv2d(
            **given,
            k=extents["O"],
            groups=attrs.groups,
            acc_dtype=_summed(accumulate, DType(graph[x].dtype)),
        )
    return Anchor(index=index, problem=problem, a=x, operand_b=weight)


def _depthwise(graph: Graph, index: int, multiplier: int, given: Mapping[str, Any]) -> Anchor:
    """Match a depthwise convolution, and the joining of its input with its result, if nothing else
    reads the result.
    """
    x, weight = graph[index].args
    problem = Depthwise(**given, multiplier=multiplier)
    reader = only_reader(graph, index)
    if reader is not None and _is_concat_of(graph, reader, (x, index)):
        is_last = axis_of(graph[reader]) == len(graph[reader].static_shape) - 1
        if is_last and problem.has_place_for_input:
            problem = replace(problem, with_input=True)
            return Anchor(index=reader, problem=problem, a=x, operand_b=weight, inner=(index,))
    return Anchor(index=index, problem=problem, a=x, operand_b=weight)


def _is_concat_of(graph: Graph, index: int, args: tuple[int, ...]) -> bool:
    expr = graph[index]
    return expr.op == "concat" and expr.args == args and is_static_call(graph, index)


def _stored_b(graph: Graph, b: int) -> tuple[int, tuple[int, ...], Layout]:
    """Return the tensor that B is in memory, the operators that make B from it, and its layout."""
    if swaps_matrices(graph[b]):
        return graph[b].args[0], (b,), Layout.COLUMN
    return b, (), Layout.ROW


def _match_matmul(graph: Graph, index: int, accumulate: DType) -> Anchor:
    a, b = graph[index].args
    b, absorbed, layout = _stored_b(graph, b)
    a_shape, b_shape = graph[a].static_shape, graph[b].static_shape
    weights = None
    if graph[b].op == UNPACK and layout is Layout.COLUMN:
        weights = graph[b].attrs.of(Unpack).weights
        absorbed, (b,) = (b, *absorbed), graph[b].args
    if len(a_shape) < 2 or len(b_shape) < 2:
        raise NotOffloadableError("an operand is a vector; kernels multiply matrices")
    m, k = a_shape[-2:]
    n = b_shape[-2] if layout is Layout.COLUMN else b_shape[-1]
    inner = b_shape[-1] if layout is Layout.COLUMN else b_shape[-2]
    if inner != k:
        raise NotOffloadableError(f"its operands' K differ: {k} and {inner}")
    types: dict[str, Any] = {
        "in_dtype": DType(graph[a].dtype),
        "acc_dtype": _summed(accumulate, DType(graph[a].dtype)),
        "out_dtype": DType(graph[index].dtype),
        "weights": weights,
    }
    a_batch, b_batch = a_shape[:-2], b_shape[:-2]
    batch = prod(b_batch)
    if batch == 1:
        problem = Gemm(m=prod(a_batch) * m, n=n, k=k, b_layout=layout, **types)
    else:
        rank = max(len(a_batch), len(b_batch))
        a_full = (1,) * (rank - len(a_batch)) + a_batch
        b_full = (1,) * (rank - len(b_batch)) + b_batch
        if prod(a_batch) > 1 and a_full != b_full:
            raise NotOffloadableError(
                f"its batch dimensions {a_batch} and {b_batch} broadcast in part; kernels step "
                "through a batch with one constant stride"
            )
        problem = Gemm(
            batch=batch,
            m=m,
            n=n,
            k=k,
            b_layout=layout,
            a_batched=prod(a_batch) > 1,
            **types,
        )
    return Anchor(index=index, problem=problem, a=a, operand_b=b, absorbed=absorbed)


def _match_grouped(graph: Graph, index: int, accumulate: DType) -> Anchor:
    a, b, ends = graph[index].args
    m, k = graph[a].static_shape
    groups, _, n = graph[b].static_shape
    b, absorbed, layout = _stored_b(graph, b)
    problem = GroupedGemm(
        groups=groups,
        m=m,
        n=n,
        k=k,
        b_layout=layout,
        ends_dtype=IndexType(graph[ends].dtype),
        in_dtype=DType(graph[a].dtype),
        acc_dtype=accumulate,
        out_dtype=DType(graph[index].dtype),
    )
    found = Anchor(index=index, problem=problem, a=a, operand_b=b, ends=ends, absorbed=absorbed)
    taken = taken_rows(graph, a)
    return found if taken is None else with_taken(graph, found, taken)


def recurrent_problem(graph: Graph, expr: Expr, dtype: DType, out_dtype: DType) -> Recurrent:
    """The problem of a recurrent layer's steps, in these types.

    Raises:
        InvalidProblemError: kernels take no such extents or types.
    """
    attrs = expr.attrs.of(RecurrentSteps)
    steps, rows, _ = graph[expr.args[0]].static_shape
    directions, _, hidden = graph[expr.args[1]].static_shape
    return Recurrent(
        cell=Cell(attrs.cell),
        steps=steps,
        batch_rows=rows,
        hidden=hidden,
        directions=directions,
        backwards=attrs.backwards,
        has_bias="bias" in attrs.roles,
        has_states="states" in attrs.roles,
        has_lengths="lengths" in attrs.roles,
        keeps_last=attrs.keeps_last,
        in_dtype=dtype,
        out_dtype=out_dtype,
    )


def _match_recurrent(graph: Graph, index: int, _: DType) -> Anchor:
    expr = graph[index]
    a, *further = expr.args
    problem = recurrent_problem(graph, expr, DType(graph[a].dtype), DType(expr.dtype))
    return Anchor(index=index, problem=problem, a=a, operand_b=None, further=tuple(further))


MATCHERS.update(
    {
        CONV2D: _match_convolution,
        CONV3D: _match_convolution,
        MATMUL: _match_matmul,
        GROUPED: _match_grouped,
        RECURRENT: _match_recurrent,
    }
)
