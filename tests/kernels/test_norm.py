"""Norms of rows on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.families.norm.config import NormConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.oracle import enclose_results
from boltgen.problems.reference import compare
from boltgen.problems.workload import Layer, Workload
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    Change,
    assert_refused,
    setting,
)

F16, BF16, F32, I8, U8 = DType.F16, DType.BF16, DType.F32, DType.I8, DType.U8
LAYER, RMS, SOFTMAX = NormFunction.LAYER, NormFunction.RMS, NormFunction.SOFTMAX


def affine(dtype: DType, op: UnaryOp | None = None) -> ElementwiseGraph:
    """Scale and shift of a layer norm, and an activation."""
    b = ElementwiseBuilder()
    scaled = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.ROW, dtype))
    shifted = b.binary(BinaryOp.ADD, scaled, b.load(LoadKind.ROW, dtype))
    if op is not None:
        b.unary(op, shifted)
    return b.build()


def quantised(dtype: DType, low: float, zero: float = 0.0) -> ElementwiseGraph:
    """Scale and shift of a layer norm, as integers of 8 bits from `low` on around a zero point."""
    b = ElementwiseBuilder()
    scaled = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.ROW, dtype))
    shifted = b.binary(BinaryOp.ADD, scaled, b.load(LoadKind.ROW, dtype))
    steps = b.unary(UnaryOp.ROUND, b.binary(BinaryOp.DIVIDE, shifted, b.scalar(0.037)))
    b.unary(UnaryOp.CLIP, b.binary(BinaryOp.ADD, steps, b.scalar(zero)), low, low + 255)
    return b.build()


def scaled(dtype: DType) -> ElementwiseGraph:
    """The scale of an RMS norm."""
    b = ElementwiseBuilder()
    b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.ROW, dtype))
    return b.build()


def residual(dtype: DType, *, stored: bool) -> ElementwiseGraph:
    """A full tensor that is added before, and maybe the sum as a result."""
    b = ElementwiseBuilder()
    total = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.TENSOR, dtype))
    if stored:
        b.store(total)
        b.store(total, dtype=dtype)
    return b.build()


def kept(dtype: DType) -> ElementwiseGraph:
    """A itself as a result: the rows that are taken of it."""
    b = ElementwiseBuilder()
    b.store(0)
    b.store(0, dtype=dtype)
    return b.build()


def residual_after() -> ElementwiseGraph:
    """A number of each row, and a full tensor."""
    b = ElementwiseBuilder()
    by_row = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.COLUMN, F32))
    b.binary(BinaryOp.ADD, by_row, b.load(LoadKind.TENSOR, F16))
    return b.build()


def _layer(
    rows: int,
    columns: int,
    function: NormFunction,
    epilogue: ElementwiseGraph | None = None,
    prologue: ElementwiseGraph | None = None,
    **types: Any,
) -> Layer:
    epsilon = 0.0 if function is SOFTMAX else 1e-5
    return Layer(
        problem=Norm(rows=rows, columns=columns, function=function, epsilon=epsilon, **types),
        epilogue=epilogue or ElementwiseGraph(),
        prologue=prologue or ElementwiseGraph(),
    )


def _config(threads: int, vectors: int, rows: int) -> NormConfig:
    return NormConfig(threads=threads, vectors=vectors, rows=rows)


# Rows in a part of a warp, one warp and several; every type; every kind of operand.
KERNELS: Mapping[str, tuple[NormConfig, Layer]] = {
    "layer": (_config(32, 3, 4), _layer(9, 768, LAYER, affine(F16))),
    "layer_gelu": (_config(64, 3, 2), _layer(5, 1024, LAYER, affine(F32, UnaryOp.GELU_ERF))),
    "to_int8": (_config(32, 3, 4), _layer(9, 768, LAYER, quantised(F16, -128), out_dtype=I8)),
    "to_uint8": (
        _config(128, 8, 1),
        _layer(3, 999, RMS, quantised(BF16, 0, 117), in_dtype=BF16, out_dtype=U8),
    ),
    "rms_ragged": (_config(128, 8, 1), _layer(3, 1000 - 1, RMS, scaled(F16))),
    "softmax": (_config(32, 8, 8), _layer(17, 197, SOFTMAX)),
    "softmax_narrow": (_config(4, 2, 32), _layer(33, 10, SOFTMAX, in_dtype=F32)),
    "long": (_config(512, 2, 1), _layer(3, 4104, LAYER, affine(F16))),
    "longest": (_config(1024, 4, 1), _layer(2, 4093, SOFTMAX, in_dtype=F32, out_dtype=F32)),
    # Groups of channels of an image: 24 of 7 x 7 pixels, and 32 of 32 x 32, the longest of rows.
    "group": (_config(256, 6, 1), _layer(5, 24 * 49, LAYER, in_dtype=F16, out_dtype=F32)),
    "longest_group": (_config(512, 8, 1), _layer(2, 32768, LAYER)),
    # Longer than registers hold, of threads that are few here so that rows need not be long.
    "streamed": (
        NormConfig(threads=256, vectors=2, rows=1, streamed=True),
        _layer(2, 9000, LAYER, affine(F16), residual(F16, stored=True)),
    ),
    "streamed_rms": (
        NormConfig(threads=128, vectors=4, rows=2, streamed=True),
        _layer(3, 5000, RMS, scaled(F16), residual(F16, stored=True)),
    ),
    "streamed_softmax": (
        NormConfig(threads=256, vectors=8, rows=1, streamed=True),
        _layer(3, 5001, SOFTMAX),
    ),
    "residual": (
        _config(32, 4, 4),
        _layer(6, 776, LAYER, affine(F16), residual(F16, stored=False)),
    ),
    "residual_out": (
        _config(256, 2, 1),
        _layer(
            4, 4096, RMS, scaled(BF16), residual(BF16, stored=True), in_dtype=BF16, out_dtype=BF16
        ),
    ),
    "wide": (
        _config(16, 4, 8),
        _layer(
            11, 252, RMS, residual_after(), residual(F32, stored=True), in_dtype=F32, out_dtype=F16
        ),
    ),
    "widening": (
        _config(8, 3, 16),
        _layer(18, 168, LAYER, affine(BF16), in_dtype=BF16, out_dtype=F32),
    ),
    # Rows of an embedding's table, alone and with those of positions, and what others read of them.
    "embedding": (
        _config(32, 3, 4),
        _layer(21, 768, RMS, scaled(F16), a_rows=9, rows_dtype=IndexType.INT64),
    ),
    "embedding_out": (
        _config(64, 6, 2),
        _layer(7, 299, RMS, scaled(F16), kept(F16), a_rows=50, rows_dtype=IndexType.INT32),
    ),
    "embeddings": (
        _config(16, 3, 8),
        _layer(
            19,
            376,
            LAYER,
            affine(F16),
            residual(F16, stored=True),
            a_rows=30,
            rows_dtype=IndexType.INT64,
        ),
    ),
}


def _workload(name: str) -> Workload:
    return Workload(layers=(KERNELS[name][1],))


def _spec(name: str, arch: str = "sm_80") -> KernelSpec:
    return kernel_spec(_workload(name), KERNELS[name][0], arch)


# Of sm_75 a few.
_CASES = [
    *((name, "sm_80") for name in KERNELS),
    *((name, "sm_75") for name in ("embedding", "embedding_out", "embeddings")),
]


@pytest.fixture(scope="module")
def norm_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries([_spec(*case) for case in _CASES], tmp_path_factory.mktemp("norm"))


@pytest.mark.parametrize(("name", "on"), _CASES)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str, on: str, checking: Cuda, norm_kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload, arch = KERNELS[name][0], _workload(name), arch_named(on)
    assert not violations(workload, config, arch)
    spec = _spec(name, on)
    library = norm_kernels[spec]
    checking.become(on)
    for sized in (workload, *boundaries(workload, config, arch)):
        job = Job(symbol=kernel_symbol(spec), workload=sized, launch=launch(sized, config))
        device = Device(ctypes.CDLL("libcudart.so.13"), checking.vgpu.last_error)
        worst = run_job(device, ctypes.CDLL(str(library.path)), job)
        device.free_all()
        assert worst <= 1.0
    assert not checking.vgpu.findings()


@pytest.mark.parametrize("name", ["layer", "rms_ragged", "softmax", "long", "streamed_softmax"])
def test_nan_and_infinity_are_the_oracles_and_stay_in_their_row(
    name: str,
    checking: Cuda,
    norm_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    config, workload = KERNELS[name][0], _workload(name)
    problem, loads = workload.single.problem, workload.single.loads
    rows, columns = problem.matrix
    a = rng.uniform(-1.5, 1.5, (rows, columns)).astype(np.float16)
    a[0, columns - 1], a[1, 0] = np.nan, np.inf
    operands = tuple(rng.uniform(0.5, 1.5, columns).astype(load.dtype.numpy) for load in loads)
    args: Any = arguments("boltgen_norm_args", launch(workload, config).sizes)
    checking.become("sm_80")
    args.a, d = checking.upload(a), np.empty((rows, columns), np.float16)
    args.d = checking.upload(d)
    for index, operand in enumerate(operands):
        args.operands[index].pointer = checking.upload(operand)
    norm_kernels[_spec(name)].launch(kernel_symbol(_spec(name)), args)
    checking.synchronise()
    actual = checking.download(args.d, d)
    checking.free_all()
    (expected,) = enclose_results(workload, a, [LayerInputs(operands=operands)])
    agreement = compare(actual, expected.exact, expected.bound)
    assert agreement.within, str(agreement)
    assert np.isnan(actual[0]).all()
    assert np.isnan(actual[1, 0])
    assert np.isfinite(actual[2:]).all()


def test_integers_that_are_no_rows_take_the_nearest(
    checking: Cuda, norm_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    """And nothing is read beside the table, whose other rows are NaN here."""
    config, workload = KERNELS["embedding"][0], _workload("embedding")
    rows = np.resize(np.array([-(2**63), -1, 0, 8, 9, 2**32 + 1, 2**63 - 1]), 21)
    a = rng.uniform(-1.5, 1.5, (9, 768)).astype(np.float16)
    a[1:8] = np.nan
    scale, d = rng.uniform(0.5, 1.5, 768).astype(np.float16), np.empty((21, 768), np.float16)
    args: Any = arguments("boltgen_norm_args", launch(workload, config).sizes)
    assert args.a_rows == 9
    checking.become("sm_80")
    args.a, args.d, args.operands[0].pointer = map(checking.upload, (a, d, scale))
    args.taken = checking.upload(rows)
    spec = _spec("embedding")
    norm_kernels[spec].launch(kernel_symbol(spec), args)
    checking.synchronise()
    actual = checking.download(args.d, d)
    checking.free_all()
    (expected,) = enclose_results(workload, a, [LayerInputs(operands=(scale,), rows=rows)])
    agreement = compare(actual, expected.exact, expected.bound)
    assert agreement.within, str(agreement)
    assert np.isfinite(actual).all()
    assert not checking.vgpu.findings()


def test_rows_that_are_taken_of_none_are_refused(
    norm_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("embedding"), launch(_workload("embedding"), KERNELS["embedding"][0]).sizes
    args: Any = arguments("boltgen_norm_args", sizes)
    args.a = args.d = args.operands[0].pointer = ADDRESS
    assert_refused(norm_kernels[spec], spec, args, INVALID, "taken is a null pointer")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(columns=776), INVALID, "columns is 776; it must be at most 768"),
        (setting(columns=764), MISALIGNED, "columns is 764; this kernel needs a multiple of 8"),
        (setting(ldd=760), INVALID, "ldd is 760; it must be at least 768"),
        (setting(rows=0), INVALID, "rows is 0; it must be at least 1"),
    ],
    ids=["columns", "alignment", "stride", "rows"],
)
def test_bad_arguments_are_refused(
    change: Change,
    code: int,
    message: str,
    norm_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, sizes = _spec("layer"), launch(_workload("layer"), KERNELS["layer"][0]).sizes
    args: Any = arguments("boltgen_norm_args", sizes)
    args.a = args.d = args.operands[0].pointer = args.operands[1].pointer = ADDRESS
    change(args)
    assert_refused(norm_kernels[spec], spec, args, code, message)
