"""Every shape, epilogue and config that kernel tests use, and how they are combined.

Kernels are compiled by the dozen, so the full product of all dimensions is out of reach. `covering`
chooses combinations such that every pair of values of any two dimensions occurs together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boltgen.arch import arch_named
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.grouped.config import GroupedConfig
from boltgen.families.mma_sync.legality import violations
from boltgen.families.mma_sync.traits import ConvIterator
from boltgen.families.move import MoveConfig
from boltgen.families.norm.config import NormConfig
from boltgen.families.prologue.config import PrologueConfig
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.registry import kernel_spec
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.space import Shape
from boltgen.ir.dtypes import FLOAT_TYPES, DType, IndexType, Layout
from boltgen.ir.elementwise import BinaryOp, Cast, ElementwiseGraph, Load, LoadKind, Node, Unary
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.recurrence import Cell
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.layout_transform.problem import Move
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.problem import Problem
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32

# The types of a problem that there are, by the names of its fields.
PROBLEM_TYPES = tuple(
    {"in_dtype": operand, "acc_dtype": accumulator, "out_dtype": result}
    for operand in FLOAT_TYPES
    for accumulator in operand.accumulators()
    for result in (operand, F32)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """A kernel and a problem that it must compute.

    `swizzle`, `split_k` and `raster` are those of the launch; `batched_operands` tells whether the
    epilogue's operands differ between products of a batch.
    """

    name: str
    spec: KernelSpec
    problem: Problem
    swizzle: int = 1
    split_k: int = 1
    raster: int = 0
    batched_operands: bool = False

    @property
    def epilogue(self) -> ElementwiseGraph:
        """What the kernel does to the product."""
        epilogue: ElementwiseGraph = self.spec.traits.epilogue
        return epilogue


# --- epilogues -----------------------------------------------------------------------------------


def graph_of(build: Callable[[ElementwiseBuilder], object]) -> ElementwiseGraph:
    """What `build` adds to an empty graph."""
    builder = ElementwiseBuilder()
    build(builder)
    return builder.build()


def _bias(b: ElementwiseBuilder, dtype: DType = F16) -> int:
    return b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, dtype))


def _bias_then(op: UnaryOp, *constants: float) -> ElementwiseGraph:
    return graph_of(lambda b: b.unary(op, _bias(b), *constants))


def _residual_before(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.ADD, _bias(b), b.load(LoadKind.TENSOR))
    return b.unary(UnaryOp.RELU, x)


def _residual_after(b: ElementwiseBuilder) -> int:
    x = b.unary(UnaryOp.HARDSWISH, _bias(b, F32))
    return b.binary(BinaryOp.ADD, b.load(LoadKind.TENSOR), x)


def _two_tensors(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.TENSOR))
    x = b.unary(UnaryOp.LEAKY_RELU, x, 0.1)
    return b.binary(BinaryOp.SUBTRACT, b.load(LoadKind.TENSOR, F32), x)


def _per_channel(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.ROW))
    x = b.binary(BinaryOp.ADD, x, b.load(LoadKind.ROW, F32))
    x = b.unary(UnaryOp.CLIP, x, 0.0, 6.0)
    x = b.binary(BinaryOp.MULTIPLY, x, b.load(LoadKind.ROW))
    return b.binary(BinaryOp.SUBTRACT, x, b.load(LoadKind.ROW))


def _columns(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.DIVIDE, 0, b.load(LoadKind.COLUMN, F32))
    return b.unary(UnaryOp.SOFTPLUS, b.unary(UnaryOp.NEGATE, x))


def _scalars(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.MULTIPLY, 0, b.scalar(0.1))
    x = b.binary(BinaryOp.MAXIMUM, x, b.scalar(-0.75))
    x = b.binary(BinaryOp.MINIMUM, b.scalar(1.5), x)
    return b.unary(UnaryOp.MISH, b.unary(UnaryOp.EXP, x))


def _casts(b: ElementwiseBuilder) -> int:
    x = b.cast(_bias(b), F16)
    x = b.cast(b.unary(UnaryOp.HARDSIGMOID, x, 0.2, 0.5), F16)
    return b.binary(BinaryOp.MULTIPLY, x, b.cast(0, F32))


def _square_root(b: ElementwiseBuilder) -> int:
    x = b.binary(BinaryOp.ADD, b.unary(UnaryOp.ABS, 0), b.scalar(0.5))
    x = b.binary(BinaryOp.ADD, b.unary(UnaryOp.SQRT, x), b.unary(UnaryOp.RSQRT, x))
    return b.unary(UnaryOp.LOG, x)


def _tanh_erf(b: ElementwiseBuilder) -> int:
    x = b.unary(UnaryOp.TANH, b.binary(BinaryOp.MULTIPLY, 0, b.scalar(0.25)))
    x = b.unary(UnaryOp.SIGMOID, b.unary(UnaryOp.ERF, x))
    return b.binary(BinaryOp.ADD, x, b.load(LoadKind.TENSOR))


def _of_slices(b: ElementwiseBuilder) -> int:
    """A gate of each image, for prologues."""
    return b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.SLICE_ROW))


_NAMED: Mapping[str, ElementwiseGraph] = {
    "identity": ElementwiseGraph(),
    "relu": graph_of(lambda b: b.unary(UnaryOp.RELU, 0)),
    "bias_relu": _bias_then(UnaryOp.RELU),
    "bias_gelu_erf": _bias_then(UnaryOp.GELU_ERF),
    "bias_gelu_tanh": _bias_then(UnaryOp.GELU_TANH),
    "bias_silu": _bias_then(UnaryOp.SILU),
    "residual_before": graph_of(_residual_before),
    "residual_after": graph_of(_residual_after),
    "two_tensors": graph_of(_two_tensors),
    "per_channel": graph_of(_per_channel),
    "columns": graph_of(_columns),
    "scalars": graph_of(_scalars),
    "casts": graph_of(_casts),
    "square_root": graph_of(_square_root),
    "tanh_erf": graph_of(_tanh_erf),
}


def _others(b: ElementwiseBuilder) -> int:
    """Every function that occurs in no other epilogue."""
    seen = {n.op for graph in _NAMED.values() for n in graph.nodes if isinstance(n, Unary)}
    x = _bias(b)
    for op in UnaryOp:
        if op not in seen:
            x = b.unary(op, x, *op.function.parameters.values())
    return x


EPILOGUES: Mapping[str, ElementwiseGraph] = {**_NAMED, "others": graph_of(_others)}

# --- configs -------------------------------------------------------------------------------------

_SM80 = Shape(16, 8, 16)
_SM75 = Shape(16, 8, 8)


def _config(
    threadblock: tuple[int, int, int],
    warp: tuple[int, int, int],
    stages: int,
    swizzle: int = 1,
    instruction: Shape = _SM80,
) -> Cutlass2Config:
    return Cutlass2Config(
        threadblock=Shape(*threadblock),
        warp=Shape(*warp),
        instruction=instruction,
        stages=stages,
        swizzle=swizzle,
    )


# By what they exercise. Alignment 1 is two bytes, less than an asynchronous copy moves, so it
# needs two stages. Source: PTX ISA, cp.async (cp-size is 4, 8 or 16).
CONFIGS: Mapping[str, tuple[str, Cutlass2Config]] = {
    "sm80_small": ("sm_80", _config((64, 64, 32), (32, 32, 32), stages=3)),
    "sm80_square": ("sm_80", _config((128, 128, 32), (64, 64, 32), stages=4, swizzle=2)),
    "sm80_deep": ("sm_80", _config((128, 64, 64), (32, 32, 64), stages=3, swizzle=4)),
    "sm80_sliced": ("sm_80", _config((64, 64, 64), (32, 64, 32), stages=5)),
    "sm80_two_stage": ("sm_80", _config((64, 128, 32), (32, 64, 32), stages=2)),
    "sm80_wide_warp": ("sm_80", _config((64, 128, 32), (32, 128, 32), stages=2)),
    "sm75_small": ("sm_75", _config((64, 64, 32), (32, 32, 32), 2, instruction=_SM75)),
    "sm75_square": ("sm_75", _config((128, 128, 32), (64, 64, 32), 2, 8, instruction=_SM75)),
}

DTYPES: Mapping[str, tuple[DType, DType]] = {  # accumulator, output
    "f32_f16": (F32, F16),
    "f16_f16": (F16, F16),
    "f32_f32": (F32, F32),
    "f32_bf16": (F32, BF16),
}

# --- problems ------------------------------------------------------------------------------------

# Extents with exactly that power of two in them: several tiles of every config, and a ragged edge.
_N = {8: 136, 4: 140, 2: 138, 1: 137}
_K = {8: 104, 4: 108, 2: 102, 1: 101}
_C = {8: 40, 4: 12, 2: 6, 1: 3}

OPERATIONS = ("gemm_row", "gemm_column", "batched", "conv", "conv_strided", "conv_analytic")


def problem_for(operation: str, align_in: int, align_out: int, dtypes: str) -> Problem:
    """A problem whose operands have those alignments (of FP16)."""
    accumulator, output = DTYPES[dtypes]
    types: dict[str, Any] = {"acc_dtype": accumulator, "out_dtype": output}
    if output is BF16:
        types["in_dtype"] = BF16
    n, k, c = _N[align_out], _K[align_in], _C[align_in]
    match operation:
        case "gemm_row":
            return Gemm(m=150, n=n, k=k, b_layout=Layout.ROW, **types)
        case "gemm_column":
            return Gemm(m=150, n=n, k=k, b_layout=Layout.COLUMN, **types)
        case "batched":
            return Gemm(batch=3, m=70, n=n, k=k, b_layout=Layout.COLUMN, **types)
        case "conv":
            padding = (1, 1, 1, 1)
            return Conv2d(n=2, h=9, w=11, c=c, k=n, r=3, s=3, padding=padding, **types)
        case "conv_strided" | "conv_analytic":
            return Conv2d(
                n=2,
                h=19,
                w=17,
                c=c,
                k=n,
                r=3,
                s=2,
                stride=(2, 1),
                padding=(0, 1, 3, 2),
                dilation=(1, 2),
                **types,
            )
    raise AssertionError(operation)


def _allowed(combination: Mapping[str, Any]) -> bool:
    """Whether a kernel exists: alignment 1 needs two stages."""
    smallest = combination.get("align_in", 8)
    if combination.get("operation") == "gemm_row":  # rows of B are rows of the output
        smallest = min(smallest, combination.get("align_out", 8))
    config = combination.get("config")
    return smallest > 1 or config is None or CONFIGS[config][1].stages == 2


def covering(
    dimensions: Mapping[str, Sequence[str | int]],
    allowed: Callable[[Mapping[str, Any]], bool],
) -> list[dict[str, str | int]]:
    """Combinations in which every allowed pair of values of two dimensions occurs, greedily few."""
    names = list(dimensions)
    open_pairs = {
        ((p, x), (q, y))
        for p, q in itertools.combinations(names, 2)
        for x in dimensions[p]
        for y in dimensions[q]
        if allowed({p: x, q: y})
    }
    rows: list[dict[str, str | int]] = []
    while open_pairs:
        first = min(open_pairs, key=repr)
        row: dict[str, str | int] = dict(first)
        for name in names:
            if name in row:
                continue
            fitting = [x for x in dimensions[name] if allowed({**row, name: x})]
            pairs = {
                x: sum(_pair(names, (name, x), other) in open_pairs for other in row.items())
                for x in fitting
            }
            row[name] = max(fitting, key=pairs.__getitem__)
        covered = {_pair(names, x, y) for x, y in itertools.combinations(row.items(), 2)}
        if not covered & open_pairs:
            raise AssertionError(f"no combination has {first}")
        open_pairs -= covered
        rows.append(row)
    return rows


def _pair(names: list[str], x: Any, y: Any) -> Any:
    return (x, y) if names.index(x[0]) < names.index(y[0]) else (y, x)


DIMENSIONS: Mapping[str, Sequence[str | int]] = {
    "epilogue": tuple(EPILOGUES),
    "config": tuple(CONFIGS),
    "operation": OPERATIONS,
    "align_in": (8, 4, 2, 1),
    "align_out": (8, 4, 2, 1),
    "dtypes": ("f32_f16", "f16_f16", "f32_f32"),  # BF16 has cases of its own
}


def with_traits(spec: KernelSpec, **changes: Any) -> KernelSpec:
    """The spec of a kernel that is compiled for something else."""
    return replace(spec, traits=replace(spec.traits, **changes))


def move_spec(move: Move, arch: str) -> KernelSpec:
    """The kernel of a move."""
    return KernelSpec(family=MoveConfig.family, arch=arch, traits=move, config=MoveConfig())


def make_case(
    *, epilogue: str, config: str, operation: str, align_in: int, align_out: int, dtypes: str
) -> KernelCase:
    """The kernel and problem of one combination."""
    arch, tiles = CONFIGS[config]
    problem = problem_for(operation, align_in, align_out, dtypes)
    spec = kernel_spec(Workload.of(problem, EPILOGUES[epilogue]), tiles, arch)
    if operation == "conv_analytic":
        spec = with_traits(spec, conv_iterator=ConvIterator.ANALYTIC)
    return KernelCase(
        name=f"{config}-{operation}-{epilogue}-a{align_in}{align_out}-{dtypes}",
        spec=spec,
        problem=problem,
        swizzle=tiles.swizzle,
        batched_operands=operation == "batched" and align_out >= 4,
    )


def covering_cases() -> list[KernelCase]:
    """A kernel for every pair of epilogue, config, operation, alignments and dtypes."""
    return [make_case(**row) for row in covering(DIMENSIONS, _allowed)]  # type: ignore[arg-type]


# --- what the covering does not reach ------------------------------------------------------------


def _case(name: str, problem: Problem, config: str, epilogue: str, **changes: Any) -> KernelCase:
    arch, tiles = CONFIGS[config]
    # A batch that shares B would be folded: the kernel is the same, and takes the batch as well.
    spec = kernel_spec(Workload.of(problem, EPILOGUES[epilogue]), tiles, arch)
    return KernelCase(name=name, spec=spec, problem=problem, swizzle=tiles.swizzle, **changes)


def split_k_cases() -> list[KernelCase]:
    """Serial split-K: slices that divide K and that do not, more slices than K has tiles."""
    gemm = Gemm(m=150, n=136, k=264, b_layout=Layout.COLUMN)
    half = replace(gemm, acc_dtype=F16)
    ragged = Gemm(m=70, n=137, k=333)
    conv = Conv2d(n=1, h=9, w=8, c=72, k=136, r=3, s=3, padding=(1, 1, 1, 1))
    table: list[tuple[str, Problem, int, str, str]] = [
        ("gemm2", gemm, 2, "sm80_small", "residual_before"),
        ("gemm3", gemm, 3, "sm80_small", "residual_before"),
        ("gemm40", gemm, 40, "sm80_small", "residual_before"),
        ("gemm_half", half, 4, "sm80_small", "bias_gelu_erf"),
        ("gemm_sliced", gemm, 3, "sm80_sliced", "columns"),
        ("gemm_ragged", ragged, 5, "sm80_two_stage", "per_channel"),
        ("gemm_sm75", gemm, 3, "sm75_small", "two_tensors"),
        ("conv2", conv, 2, "sm80_small", "residual_before"),
        ("conv5", conv, 5, "sm80_small", "residual_before"),
        ("conv_sm75", conv, 3, "sm75_small", "bias_relu"),
    ]
    return [
        _case(f"split-{name}", problem, config, epilogue, split_k=slices)
        for name, problem, slices, config, epilogue in table
    ]


def batch_stride_cases() -> list[KernelCase]:
    """Operands that all products of a batch share: a batch stride of 0."""
    problem = Gemm(batch=3, m=70, n=136, k=72, b_layout=Layout.ROW)
    return [
        _case(
            f"batch-{'a' * a}{'b' * b}{'e' * e}",
            replace(problem, a_batched=a, b_batched=b),
            "sm80_small",
            "residual_before",
            batched_operands=e,
        )
        for a, b, e in itertools.product((True, False), repeat=3)
        if a or b
    ]


def tiny_cases() -> list[KernelCase]:
    """One kernel at sizes around its tile, its vectors and nothing."""
    extents = (1, 2, 63, 64, 65, 129)
    sizes = [(m, n, k) for m in extents for n in extents for k in (1, 31, 33, 64)]
    gemms = [
        _case(f"tiny-{m}x{n}x{k}", Gemm(m=m, n=n, k=k), "sm80_two_stage", "bias_relu")
        for m, n, k in sizes[:: len(sizes) // 24]
    ]
    convs = [
        _case(f"tiny-conv-{i}", problem, "sm80_two_stage", "bias_relu")
        for i, problem in enumerate(
            (
                Conv2d(n=1, h=1, w=1, c=1, k=1, r=1, s=1, stride=(2, 2)),
                Conv2d(n=1, h=1, w=1, c=3, k=5, r=3, s=3, padding=(1, 1, 1, 1)),
                Conv2d(n=3, h=5, w=4, c=7, k=9, r=5, s=1, padding=(2, 0, 2, 0)),
                Conv2d(n=1, h=7, w=7, c=1, k=1, r=7, s=7),
                Conv2d(n=1, h=2, w=33, c=1, k=3, r=1, s=32, padding=(0, 31, 0, 31)),
            )
        )
    ]
    return [at_alignment(case, 1) for case in (*gemms, *convs)]


def first_layer_cases() -> list[KernelCase]:
    """Images of three channels padded to half a vector, and to one: all of a pixel at once."""
    resnet = Conv2d(n=2, h=23, w=21, c=4, k=24, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3))
    repvgg = Conv2d(n=1, h=20, w=18, c=8, k=40, r=3, s=3, stride=(2, 2), padding=(1, 1, 1, 1))
    dilated = replace(resnet, r=3, s=5, padding=(0, 2, 1, 0), dilation=(2, 1))
    table = [
        ("resnet", resnet, "sm80_small"),
        ("repvgg", repvgg, "sm80_small"),
        ("dilated", dilated, "sm80_small"),
        ("resnet_sm75", resnet, "sm75_small"),
    ]
    return [_case(f"first-{name}", problem, config, "bias_relu") for name, problem, config in table]


# Bolt, table 3: H, W, channels, filters, filter, padding. The batch is cut to 1.
TABLE_3 = (
    (20, 26, 46, 32, (3, 3), (1, 1)),
    (20, 26, 46, 32, (5, 5), (2, 2)),
    (14, 19, 46, 32, (5, 7), (0, 0)),
    (11, 15, 46, 32, (5, 7), (0, 0)),
    (20, 26, 174, 64, (3, 3), (1, 1)),
    (20, 26, 174, 64, (5, 5), (2, 2)),
)


def table_3_problem(row: int, channels: int | None = None) -> Conv2d:
    """A convolution of the table, with its own channels or with others."""
    h, w, c, k, (r, s), (pad_h, pad_w) = TABLE_3[row]
    padding = (pad_h, pad_w, pad_h, pad_w)
    return Conv2d(n=1, h=h, w=w, c=channels or c, k=k, r=r, s=s, padding=padding)


def table_3_cases() -> list[KernelCase]:
    """Each convolution as the model has it, and padded to whole vectors."""
    return [
        _case(f"table3-{row}-{channels}", table_3_problem(row, channels), "sm80_small", "bias_relu")
        for row, (_, _, c, *_) in enumerate(TABLE_3)
        for channels in (c, c + 2)
    ]


# Sixteen warps, and tiles between the powers of two, whose rows of D are shared by other spans of
# lanes than CUTLASS's. Source of both: the winners in benchmarks/data.
WIDE_CONFIGS: Mapping[str, tuple[str, Cutlass2Config]] = {
    "sm75_sixteen_deep": ("sm_75", _config((128, 128, 64), (32, 32, 64), 2, instruction=_SM75)),
    "sm75_sixteen": ("sm_75", _config((128, 128, 32), (32, 32, 32), 2, instruction=_SM75)),
    "sm75_96x128": ("sm_75", _config((96, 128, 64), (96, 32, 64), 2, instruction=_SM75)),
    "sm75_192x64": ("sm_75", _config((192, 64, 32), (96, 32, 32), 2, instruction=_SM75)),
    "sm80_sixteen": ("sm_80", _config((128, 128, 64), (32, 32, 64), stages=3)),
    "sm80_16x64": ("sm_80", _config((16, 64, 64), (16, 64, 64), stages=3)),
    "sm80_96x64": ("sm_80", _config((96, 64, 32), (48, 32, 32), stages=4)),
    "sm80_64x96": ("sm_80", _config((64, 96, 64), (32, 48, 64), stages=3)),
    "sm80_128x96": ("sm_80", _config((128, 96, 32), (32, 96, 32), stages=4)),
    "sm80_160x128": ("sm_80", _config((160, 128, 32), (80, 64, 32), stages=3)),
    "sm80_128x160": ("sm_80", _config((128, 160, 32), (64, 80, 32), stages=3)),
    "sm80_64x160": ("sm_80", _config((64, 160, 64), (16, 160, 64), stages=3)),
    "sm80_192x128": ("sm_80", _config((192, 128, 32), (48, 64, 32), stages=3)),
    "sm80_128x192": ("sm_80", _config((128, 192, 32), (64, 48, 32), stages=3)),
    "sm80_64x192": ("sm_80", _config((64, 192, 32), (32, 96, 32), stages=3)),
}
# Two tiles of every configuration in each dimension, and a ragged edge.
_WIDE_GEMM = Gemm(m=390, n=392, k=136, b_layout=Layout.COLUMN)
_WIDE_CONV = Conv2d(n=2, h=14, w=15, c=24, k=392, r=3, s=3, padding=(1, 1, 1, 1))
_WIDE_PROBLEMS: Mapping[str, Problem] = {
    "gemm": _WIDE_GEMM,
    "conv": _WIDE_CONV,
    "gemm_4": replace(_WIDE_GEMM, n=388, out_dtype=F32),
    "gemm_2": replace(_WIDE_GEMM, n=390, acc_dtype=F16),
    "conv_1": replace(_WIDE_CONV, k=391, acc_dtype=F16),
    "gemm_row": replace(_WIDE_GEMM, b_layout=Layout.ROW),
}


def wide_cases() -> list[KernelCase]:
    """The wide configurations by turns with every problem for which they are legal."""
    cases = []
    for index, (name, (arch, tiles)) in enumerate(WIDE_CONFIGS.items()):
        turn = itertools.islice(itertools.cycle(_WIDE_PROBLEMS.items()), index, None)
        legal = (
            (text, problem)
            for text, problem in itertools.islice(turn, len(_WIDE_PROBLEMS))
            if not violations(problem, tiles, arch_named(arch))
        )
        for text, problem in itertools.islice(legal, 2):
            workload = Workload.of(problem, EPILOGUES["residual_before"])
            spec = kernel_spec(workload, tiles, arch)
            slices = 1 + index % 2
            cases.append(
                KernelCase(name=f"wide-{name}-{text}", spec=spec, problem=problem, split_k=slices)
            )
    return cases


def at_alignment(case: KernelCase, alignment: int) -> KernelCase:
    """The case with a kernel of lower alignments than its problem would allow."""
    changes = dict.fromkeys(("alignment_a", "alignment_b", "alignment_d"), alignment)
    return replace(case, spec=with_traits(case.spec, **changes))


BLACKWELL = ("sm_100", "sm_103", "sm_120", "sm_121")


def newer_arch_cases() -> list[KernelCase]:
    """sm_80's kernels, compiled for the archs after it."""
    problems = {"gemm": problem_for("gemm_row", 8, 8, "f32_f16")}
    problems["conv"] = problem_for("conv", 8, 8, "f32_f16")
    cases = []
    for arch, (name, problem) in itertools.product(
        ("sm_86", "sm_89", "sm_90", "sm_90a", *BLACKWELL), problems.items()
    ):
        case = _case(f"{arch}-{name}", problem, "sm80_square", "residual_after")
        cases.append(replace(case, spec=replace(case.spec, arch=arch)))
    return cases


def in_bf16(graph: ElementwiseGraph) -> ElementwiseGraph:
    """`graph` with BF16 in the place of FP16."""
    is_half: dict[Node, Node] = {Load(kind, F16): Load(kind, BF16) for kind in LoadKind}
    nodes = (
        replace(node, dtype=BF16) if isinstance(node, Cast) and node.dtype is F16 else node
        for node in graph.nodes
    )
    return ElementwiseGraph(tuple(is_half.get(node, node) for node in nodes))


def bf16_cases() -> list[KernelCase]:
    """Both operations, both outputs, every alignment, split-K, and images of four channels."""
    gemm = Gemm(m=150, n=136, k=264, b_layout=Layout.COLUMN, in_dtype=BF16, out_dtype=BF16)
    conv = Conv2d(
        n=2, h=9, w=11, c=40, k=136, r=3, s=3, padding=(1, 1, 1, 1), in_dtype=BF16, out_dtype=BF16
    )
    table: list[tuple[str, Problem, str, str, int]] = [
        ("gemm", gemm, "sm80_square", "bias_gelu_erf", 1),
        ("gemm_split", gemm, "sm80_small", "residual_before", 3),
        ("gemm_f32", replace(gemm, out_dtype=F32), "sm80_wide_warp", "two_tensors", 1),
        ("gemm_ragged", replace(gemm, m=70, n=137, k=101), "sm80_two_stage", "casts", 1),
        ("gemm_row", replace(gemm, n=140, b_layout=Layout.ROW), "sm80_deep", "per_channel", 1),
        ("conv", conv, "sm80_square", "residual_after", 1),
        ("conv_image", replace(conv, c=4, r=5), "sm80_small", "bias_relu", 1),
    ]
    cases = []
    for name, problem, config, epilogue, slices in table:
        arch, tiles = CONFIGS[config]
        spec = kernel_spec(Workload.of(problem, in_bf16(EPILOGUES[epilogue])), tiles, arch)
        cases.append(
            KernelCase(
                name=f"bf16-{name}",
                spec=spec,
                problem=problem,
                swizzle=tiles.swizzle,
                split_k=slices,
            )
        )
    return cases


def all_cases() -> list[KernelCase]:
    """Every kernel case; their names differ."""
    return [
        *covering_cases(),
        *split_k_cases(),
        *batch_stride_cases(),
        *tiny_cases(),
        *newer_arch_cases(),
        *first_layer_cases(),
        *table_3_cases(),
        *wide_cases(),
        *bf16_cases(),
    ]


def _residual_norm() -> Layer:
    """A layer norm of a sum, which is a result too."""
    before, after = ElementwiseBuilder(), ElementwiseBuilder()
    total = before.binary(BinaryOp.ADD, 0, before.load(LoadKind.TENSOR))
    before.store(total)
    before.store(total, dtype=DType.F16)
    scaled = after.binary(BinaryOp.MULTIPLY, 0, after.load(LoadKind.ROW))
    after.binary(BinaryOp.ADD, scaled, after.load(LoadKind.ROW))
    problem = Norm(rows=40, columns=768, function=NormFunction.LAYER, epsilon=1e-5)
    return Layer(problem=problem, prologue=before.build(), epilogue=after.build())


def _of_integers() -> ElementwiseGraph:
    """Sums of integers and a correction for each column, by a scale for each column."""
    graph = ElementwiseBuilder(whole=True)
    whole = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW, DType.I32))
    scale = graph.load(LoadKind.ROW, DType.F32)
    graph.binary(BinaryOp.MULTIPLY, graph.cast(whole, DType.F32), scale)
    return graph.build()


def golden_specs() -> dict[str, KernelSpec]:
    """Kernels whose text is recorded in `tests/golden`: every arch and template, by file name."""
    gemm = Gemm(m=150, n=136, k=104, b_layout=Layout.COLUMN)
    conv = Conv2d(n=2, h=9, w=11, c=40, k=136, r=3, s=3, padding=(1, 1, 1, 1))
    image = replace(conv, c=4, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3))
    volume = Conv3d(n=2, depth=5, h=9, w=11, c=40, k=136, t=3, r=3, s=3, stride=(1, 2, 2))
    table: dict[str, tuple[str, Problem, str, str]] = {
        "gemm_sm75": ("sm_75", gemm, "sm75_square", "bias_gelu_erf"),
        "gemm_sm80": ("sm_80", gemm, "sm80_square", "two_tensors"),
        "gemm_sm90": ("sm_90", gemm, "sm80_deep", "scalars"),
        "conv2d_sm80": ("sm_80", conv, "sm80_square", "residual_before"),
        "conv2d_sm86": ("sm_86", conv, "sm80_small", "per_channel"),
        "conv2d_sm89": ("sm_89", conv, "sm80_deep", "residual_after"),
        "conv2d_image_sm80": ("sm_80", image, "sm80_small", "bias_relu"),
        "conv3d_sm80": ("sm_80", volume, "sm80_small", "bias_relu"),
    }
    by_wgmma = Cutlass3Config(threadblock=Shape(128, 192, 64), schedule=Schedule.PINGPONG)
    return {
        **{
            name: replace(_case(name, problem, config, epilogue).spec, arch=arch)
            for name, (arch, problem, config, epilogue) in table.items()
        },
        **{
            f"{problem.kind}_sm90a": kernel_spec(
                Workload.of(problem, EPILOGUES["residual_before"]), by_wgmma, "sm_90a"
            )
            for problem in (gemm, conv)
        },
        "integers_sm90a": kernel_spec(
            Workload.of(
                replace(gemm, in_dtype=DType.U8, acc_dtype=DType.I32, out_dtype=DType.F16, k=112),
                _of_integers(),
            ),
            replace(by_wgmma, threadblock=Shape(128, 128, 128)),
            "sm_90a",
        ),
        "skinny_sm80": kernel_spec(
            Workload.of(replace(gemm, m=12), EPILOGUES["bias_gelu_erf"]),
            SkinnyConfig(rows=16, columns=32, warps=8, steps=2),
            "sm_80",
        ),
        "depthwise_sm80": kernel_spec(
            Workload.of(
                Depthwise(n=2, h=56, w=56, c=144, r=3, s=3, padding=(1, 1, 1, 1)),
                EPILOGUES["residual_before"],
            ),
            DepthwiseConfig(threads=128, rows=1, columns=4, slab=4),
            "sm_80",
        ),
        "depthwise_with_input_sm80": kernel_spec(
            Workload.of(
                Depthwise(n=2, h=56, w=56, c=36, r=3, s=3, padding=(1, 1, 1, 1), with_input=True),
                EPILOGUES["bias_relu"],
            ),
            DepthwiseConfig(threads=128, rows=1, columns=4, slab=4),
            "sm_80",
        ),
        "grouped_gemm_sm80": kernel_spec(
            Workload.of(
                GroupedGemm(groups=8, m=150, n=136, k=104, b_layout=Layout.COLUMN),
                EPILOGUES["bias_silu"],
            ),
            GroupedConfig(gemm=CONFIGS["sm80_square"][1]),
            "sm_80",
        ),
        "gathered_grouped_gemm_sm80": kernel_spec(
            Workload.of(
                GroupedGemm(groups=8, m=150, n=136, k=104, a_rows=75, rows_dtype=IndexType.INT64),
                EPILOGUES["bias_silu"],
            ),
            GroupedConfig(gemm=CONFIGS["sm80_square"][1]),
            "sm_80",
        ),
        "prologue_gemm_sm80": kernel_spec(
            Workload(
                layers=(
                    Layer(
                        problem=replace(gemm, slice_rows=50),
                        prologue=graph_of(_of_slices),
                        epilogue=EPILOGUES["bias_silu"],
                    ),
                )
            ),
            PrologueConfig(gemm=replace(CONFIGS["sm80_small"][1], stages=2)),
            "sm_80",
        ),
        "gathered_norm_sm80": kernel_spec(
            Workload.of(
                Norm(
                    rows=150,
                    columns=768,
                    function=NormFunction.RMS,
                    epsilon=1e-6,
                    a_rows=30000,
                    rows_dtype=IndexType.INT32,
                )
            ),
            NormConfig(threads=32, vectors=3, rows=4),
            "sm_80",
        ),
        "recurrent_sm80": kernel_spec(
            Workload.of(Recurrent(cell=Cell.LSTM, steps=50, batch_rows=1, hidden=128)),
            RecurrentConfig(groups=2, resident=True),
            "sm_80",
        ),
        "norm_sm80": kernel_spec(
            Workload(layers=(_residual_norm(),)),
            NormConfig(threads=32, vectors=3, rows=4),
            "sm_80",
        ),
    }
