"""Ask every layer about a number type that it does not take; run by `test_dry_run_type`.

The arguments: whether the type's row has conversions, or is one of the floats of 8 bits; its name.
Prints one line for each layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np

from boltgen.arch import arch_named
from boltgen.errors import BoltgenError
from boltgen.families.registry import FAMILIES
from boltgen.families.roofline import tensor_tflops
from boltgen.graph.graph import INPUT, Expr, Graph
from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.elementwise import SOFTMAX, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.recurrence import Cell
from boltgen.options.checks import accumulator
from boltgen.passes.regions.anchor import match_anchor
from boltgen.problems.accumulation import accumulation_rounding
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.layout_transform.problem import Form, ImageLayout, Move, nhwc
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.reference import compare
from boltgen.problems.region import Rejected
from boltgen.problems.workload import Layer, Workload

NAME = sys.argv[2]
ASKED = DType(NAME)
TYPES = {"in_dtype": ASKED, "out_dtype": DType.F32}
PRODUCT = {"m": 64, "n": 64, "k": 64}
ARCH = arch_named("sm_90a")
ZEROS = np.zeros(1)


def loaded() -> object:
    """An epilogue that loads the type."""
    builder = ElementwiseBuilder()
    builder.load(LoadKind.TENSOR, ASKED)
    return builder.build()


def cast() -> object:
    """An epilogue that rounds to the type."""
    builder = ElementwiseBuilder()
    builder.cast(0, ASKED)
    return builder.build()


def stored() -> object:
    """An epilogue with a result of the type besides D."""
    builder = ElementwiseBuilder()
    builder.store(0)
    builder.store(0, dtype=ASKED)
    return builder.build()


def multiplied() -> object:
    """A matmul of a model."""
    operand = Expr(op=INPUT, shape=(64, 64), dtype=NAME)
    product = Expr(op="matmul", args=(0, 1), shape=(64, 64), dtype="float32")
    found = match_anchor(Graph((operand, operand, product), frozenset()), 2)
    if isinstance(found, Rejected):
        raise BoltgenError(found.reason)
    return found


# Layers that refuse the type until kernels convert it.
UNCONVERTED: Mapping[str, Callable[[], object]] = {
    "matmul": lambda: Gemm(**PRODUCT, **TYPES),
    "result": lambda: Gemm(**PRODUCT, out_dtype=ASKED),
    "convolution": lambda: Conv2d(n=1, h=8, w=8, c=64, k=64, r=1, s=1, **TYPES),
    "depthwise convolution": lambda: Depthwise(n=1, h=8, w=8, c=64, r=1, s=1, **TYPES),
    "grouped matmul": lambda: GroupedGemm(groups=2, **PRODUCT, **TYPES),
    "norm": lambda: Norm(rows=4, columns=64, function=NormFunction.SOFTMAX, in_dtype=ASKED),
    "group norm": lambda: GroupNorm(n=1, h=8, w=8, c=64, groups=8, out_dtype=ASKED),
    "recurrent layer": lambda: Recurrent(
        cell=Cell.GRU, steps=2, batch_rows=1, hidden=16, in_dtype=ASKED
    ),
    "layout transform": lambda: Move(
        source=Form(layout=ImageLayout.NCHW, dtype=DType.F32), target=nhwc(ASKED)
    ),
    "load": loaded,
    "cast": cast,
    "store": stored,
    "kernel text": lambda: ASKED.cutlass,
    "adapter": lambda: ASKED.adapter,
    "profiler": lambda: ASKED.profiler,
    "comparison": lambda: compare(ZEROS.astype(ASKED.numpy), ZEROS, ZEROS),
    "middle end": multiplied,
}
# The layers among these that take floats of 8 bits.
MULTIPLY = {"matmul", "convolution", "depthwise convolution", "grouped matmul", "recurrent layer"}
TAKE_NARROW = MULTIPLY | {"kernel text", "adapter", "comparison", "middle end"}
# Layers that refuse it whatever its conversions are.
ALWAYS: Mapping[str, Callable[[], object]] = {
    "accumulator": lambda: Gemm(**PRODUCT, acc_dtype=ASKED),
    "option": lambda: accumulator("accumulate", NAME),
    "rate of sums": lambda: tensor_tflops(ASKED, ARCH),
}


def rounded_sums() -> object:
    """The oracle's bound of sums in the type, of a problem that cannot be made."""
    problem = Gemm(**PRODUCT)
    object.__setattr__(problem, "acc_dtype", ASKED)
    return accumulation_rounding(problem)


def by_family() -> Mapping[str, Callable[[], object]]:
    """The families that multiply, each asked about a workload that it computes of FP16."""
    product = Gemm(**PRODUCT, **TYPES)
    gate = ElementwiseBuilder()
    gate.unary(UnaryOp.RELU, 0)
    scores = Layer(problem=product)
    after = Layer(problem=Gemm(**PRODUCT, in_dtype=ASKED, out_dtype=DType.F32), prologue=SOFTMAX)
    clipped = ElementwiseBuilder()
    clipped.unary(UnaryOp.CLIP, 0, -2.0, 2.0)
    narrow = Layer(
        problem=Gemm(**PRODUCT, in_dtype=ASKED, out_dtype=ASKED), epilogue=clipped.build()
    )
    plain, chain = Workload(layers=(scores,)), Workload(layers=(narrow, scores))
    workloads = {
        "cutlass2": plain,
        "cutlass3": plain,
        "skinny": plain,
        "prologue": Workload(layers=(Layer(problem=product, prologue=gate.build()),)),
        "depthwise": Workload.of(Depthwise(n=1, h=8, w=8, c=64, r=3, s=3, **TYPES)),
        "grouped": Workload.of(
            GroupedGemm(groups=2, **PRODUCT, **TYPES, ends_dtype=IndexType.INT32)
        ),
        "b2b": chain,
        "b2b_sm90": chain,
        "attention": Workload(layers=(scores, after)),
        "attention_sm90": Workload(layers=(scores, after)),
    }

    return {name: refusing(name, workload) for name, workload in workloads.items()}


def refusing(name: str, workload: Workload) -> Callable[[], object]:
    """Return a question whether a family computes a workload."""

    def ask() -> object:
        reason = FAMILIES.named(name).rejects(workload, ARCH)
        if reason is not None:
            raise BoltgenError(reason)
        return name

    return ask


def main() -> None:
    """Print what each layer says; leave with an error where one does not name the type."""
    kind = sys.argv[1]
    asked = {**ALWAYS, "rounding of sums": rounded_sums}
    if kind != "unconverted":
        asked |= by_family()
    if kind == "unconverted":
        asked |= UNCONVERTED
    if kind == "narrow":
        asked |= {name: ask for name, ask in UNCONVERTED.items() if name not in TAKE_NARROW}
        images = Workload.of(Conv2d(n=1, h=8, w=8, c=64, k=64, r=3, s=3, **TYPES))
        cell = Recurrent(cell=Cell.GRU, steps=2, batch_rows=1, hidden=16, in_dtype=ASKED)
        del asked["cutlass3"]
        asked["recurrent"] = refusing("recurrent", Workload.of(cell))
        asked |= {f"images by {name}": refusing(name, images) for name in ("cutlass2", "cutlass3")}
    for layer, ask in asked.items():
        try:
            made = ask()
        except BoltgenError as error:
            if not any(name in str(error) for name in (NAME, ASKED.short)):
                raise SystemExit(f"{layer} does not name {NAME}: {error}") from error
            print(f"{layer}: {error}")
        else:
            raise SystemExit(f"{layer} takes {NAME}: {made}")


if __name__ == "__main__":
    main()
