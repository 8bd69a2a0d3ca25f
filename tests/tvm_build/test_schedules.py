"""TVM's part of a model: a thread for each result of a window, or for a vector of channels, a warp
for each short row, TVM's own rules for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from benchmarks.cases.relax_modules import build
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.device.choose import activate
from boltgen.settings import settings_from
from boltgen.tvm_build.lowering import reductions
from boltgen.tvm_build.lowering.schedules import pipeline, unscheduled
from boltgen.tvm_build.relax_link import build_library, cuda_target

op = relax.op
Body = Callable[[relax.Expr], relax.Expr]
# Of a channel each.
FILTERS = np.random.default_rng(2).standard_normal((24, 3, 3, 1)).astype(np.float32)


def run(
    body: Body, shape: tuple[int, ...], dtype: str, *, holes: bool = False
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """A random input, what `body` makes of it, and the number of threads of each launch.

    With `holes`, the input has a NaN in its first row.
    """
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    settings = settings_from()
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    module = build({"x": (shape, dtype)}, body)
    executable, _ = build_library(module, arch_named("sm_80"), tools, cache)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    if holes:
        x[0, 2] = np.nan
    argument = tvm.runtime.tensor(x, tvm.cuda(0))
    vgpu.clear_launches()
    result = machine["main"](argument).numpy()
    return x, result, [int(np.prod(each.grid + each.block)) for each in vgpu.launches()]


def windows(x: np.ndarray, size: int, padding: int, fill: float) -> np.ndarray:
    """NHWC to (N, P, Q, C, size, size), with stride 2."""
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(x, edges, constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))[:, ::2, ::2]


def pool(name: str, size: int, padding: int, x: relax.Expr) -> relax.Expr:
    pooled = getattr(op.nn, f"{name}_pool2d")
    return pooled(x, (size, size), (2, 2), (padding, padding), layout="NHWC")


def depthwise(x: relax.Expr) -> relax.Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    return op.nn.conv2d(x, relax.const(FILTERS), (2, 2), 1, groups=24, **layouts)


WINDOWS = {
    "max": (
        lambda x: op.nn.relu(pool("max", 3, 1, x)),
        lambda x: np.maximum(windows(x, 3, 1, -np.inf).max((-2, -1)), 0),
        0.0,
    ),
    "average": (
        lambda x: op.nn.relu(pool("avg", 3, 1, x)),
        lambda x: np.maximum(np.nanmean(windows(x, 3, 1, np.nan), (-2, -1)), 0),
        9,
    ),
    "one": (lambda x: op.nn.relu(pool("max", 1, 0, x)), lambda x: np.maximum(x[:, ::2, ::2], 0), 0),
    "depthwise": (
        depthwise,
        lambda x: np.einsum("npqcrs,crs->npqc", windows(x, 3, 1, 0), FILTERS[..., 0]),
        9,
    ),
    "mean": (
        lambda x: op.multiply(op.mean(x, [1, 2]), relax.const(2.0, "float32")),
        lambda x: 2 * x.mean((1, 2)),
        49,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_has_a_thread_for_each_result(name: str) -> None:
    body, reference, terms = WINDOWS[name]
    x, result, (threads,) = run(body, (2, 7, 7, 24), "float32")
    wanted = reference(x)
    # Each of so many sums rounds to FP32; no partial sum is above the sum of magnitudes.
    bound = (terms + 2) * 2**-24 * terms * np.abs(x).max() * max(1, np.abs(FILTERS).max())
    np.testing.assert_allclose(result, wanted, rtol=0, atol=bound)
    assert result.size <= threads < result.size + 256


def test_a_window_in_fp16_is_padded_and_widened_in_the_same_kernel() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return op.astype(pool("max", 3, 1, x), "float32")

    x, result, (threads,) = run(body, (1, 14, 14, 40), "float16")
    np.testing.assert_array_equal(result, windows(x, 3, 1, -np.inf).max((-2, -1)))
    assert result.size <= threads < result.size + 256


def images(shape: tuple[int, ...]) -> np.ndarray:
    """FP16 with NaN and both infinities in some places; FP32 sums of the others are exact."""
    x = np.random.default_rng(1).integers(-9, 10, shape).astype(np.float16)
    x.ravel()[::97], x.ravel()[5::89], x.ravel()[7::83] = np.nan, -np.inf, np.inf
    return x


def wide_depthwise(x: relax.Expr) -> relax.Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
    channels = int(x.ty.shape[-1])
    filters = relax.const(np.round(FILTERS[:channels]).astype(np.float16))
    return op.nn.relu(op.nn.conv2d(x, filters, (2, 2), 1, groups=channels, **layouts))


def full(x: np.ndarray, axes: tuple[int, int]) -> np.ndarray:
    """Sums in FP32; infinities of both signs are NaN."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32).sum(axes)


def depthwise_windows(x: np.ndarray) -> np.ndarray:
    filters = np.round(FILTERS[: x.shape[-1], ..., 0]).astype(np.float32)
    with np.errstate(invalid="ignore"):
        products = windows(x.astype(np.float32), 3, 1, 0) * filters
    return np.maximum(full(products, (-2, -1)), 0)


# By name: what is computed, its reference, and how many channels a thread has.
VECTORS = {
    "max": (
        lambda x: pool("max", 3, 1, x),
        lambda x: windows(x, 3, 1, -np.inf).max((-2, -1)),
        8,
    ),
    "max without padding": (
        lambda x: op.nn.relu(op.astype(pool("max", 2, 0, x), "float32")),
        lambda x: np.maximum(windows(x, 2, 0, 0).max((-2, -1)), 0).astype(np.float32),
        8,
    ),
    "sum": (
        lambda x: op.sum(op.astype(x, "float32"), [1, 2]),
        lambda x: full(x, (1, 2)),
        8,
    ),
    "depthwise": (wide_depthwise, depthwise_windows, 8),
    "one number": (lambda x: pool("max", 1, 0, x), lambda x: x[:, ::2, ::2], 1),
    "along channels": (lambda x: op.max(x, [-1]), lambda x: x.max(-1), 1),
    "NCHW": (
        lambda x: op.nn.max_pool2d(op.permute_dims(x, [0, 3, 1, 2]), (3, 3), (2, 2), (1, 1)),
        lambda x: windows(x, 3, 1, -np.inf).max((-2, -1)).transpose(0, 3, 1, 2),
        1,
    ),
}


@pytest.mark.parametrize("channels", [24, 20, 22, 23])
@pytest.mark.parametrize("name", VECTORS)
def test_a_thread_reads_channels_by_vectors(
    name: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, reference, lanes = VECTORS[name]
    monkeypatch.setattr(reductions, "_LEAST_THREADS", 1)
    lanes = 1 if lanes == 1 else {24: 8, 20: 4, 22: 2, 23: 1}[channels]
    x = images((3, 7, 7, channels))
    result, threads, findings = checked(body, x)
    np.testing.assert_array_equal(result, reference(x))
    assert findings == []
    if name != "along channels":  # it has threadblocks of TVM's
        assert -(-result.size // lanes) <= threads < result.size // lanes + 256


def checked(body: Body, x: np.ndarray) -> tuple[np.ndarray, int, list]:
    """The result of `body`, the threads of its last launch, and what the virtual GPU found."""
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    settings = settings_from()
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    module = build({"x": (x.shape, str(x.dtype))}, body)
    executable, _ = build_library(module, arch_named("sm_80"), tools, cache)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    argument = tvm.runtime.tensor(x, tvm.cuda(0))
    vgpu.set_option("check", "all")
    vgpu.clear_findings()
    vgpu.clear_launches()
    try:
        result = machine["main"](argument).numpy()
        last = vgpu.launches()[-1]
        return result, int(np.prod(last.grid + last.block)), vgpu.findings()
    finally:
        vgpu.set_option("check", "none")


def test_a_wide_window_has_a_thread_for_a_vector() -> None:
    """169 steps: TVM would launch 8 threadblocks, and read a channel after another."""
    x = images((1, 9, 9, 192))
    body = partial(op.nn.max_pool2d, pool_size=(13, 13), padding=(6, 6), layout="NHWC")
    result, threads, findings = checked(body, x)
    edges = ((0, 0), (6, 6), (6, 6), (0, 0))
    padded = np.pad(x, edges, constant_values=-np.inf)
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (13, 13), (1, 2)).max((-2, -1))
    np.testing.assert_array_equal(result, wanted)
    assert findings == []
    assert result.size <= threads < result.size + 256


def test_few_results_keep_a_thread_each() -> None:
    """Vectors would leave most of the GPU without threads."""
    x = images((1, 7, 7, 24))
    result, threads, _ = checked(lambda x: pool("max", 3, 1, x), x)
    assert result.size <= threads < result.size + 256


def test_many_results_have_a_thread_each_however_many_steps_it_takes() -> None:
    x, result, (threads,) = run(lambda x: op.max(x, [1]), (1, 100, (1 << 16) + 1), "float16")
    np.testing.assert_array_equal(result, x.max(1))
    assert result.size <= threads < result.size + 256


def exponentials(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max(-1, keepdims=True))


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def layer_norm(x: relax.Expr) -> relax.Expr:
    n = int(x.ty.shape[-1])
    ones, zeros = (relax.const(np.full(n, value, np.float32)) for value in (1.0, 0.0))
    return op.nn.layer_norm(x, ones, zeros, [-1])


ROWS = {
    "softmax": (
        lambda x: op.nn.softmax(x, -1),
        lambda x: exponentials(x) / exponentials(x).sum(-1, keepdims=True),
    ),
    "log_softmax": (
        lambda x: op.nn.log_softmax(x, -1),
        lambda x: np.log(exponentials(x) / exponentials(x).sum(-1, keepdims=True)),
    ),
    "layer_norm": (layer_norm, normalised),
}


@pytest.mark.parametrize("length", [7, 32, 40, 256])
@pytest.mark.parametrize("name", ROWS)
def test_a_short_row_has_a_warp(name: str, length: int) -> None:
    body, reference = ROWS[name]
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("check", "all")
    vgpu.clear_findings()
    try:
        x, result, (threads,) = run(body, (2, 5, 3, length), "float32")
        assert vgpu.findings() == []
    finally:
        vgpu.set_option("check", "none")
    wanted = reference(x.astype(np.float64))
    # Sums of so many terms, each rounded to FP32, of a magnitude that numbers of a normal
    # distribution have; an exponential, or a logarithm, of x has an error of 2 + 1.2 |x| ulp at
    # most. Source: CUDA C++ Programming Guide, "Intrinsic Functions", __expf and __logf.
    terms = length + 2 * (2 + 1.2 * np.ptp(x))
    bound = 2**-23 * terms * max(1.0, np.abs(wanted).max()) * max(1.0, np.abs(x).max())
    np.testing.assert_allclose(result, wanted, rtol=0, atol=bound)
    assert threads == 32 * 32, "30 rows, in threadblocks of four warps"


def test_a_row_in_fp16_is_narrowed_in_the_same_kernel() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return op.astype(op.nn.softmax(x, -1), "float16")

    x, result, (threads,) = run(body, (4, 40), "float32")
    wanted = exponentials(x) / exponentials(x).sum(-1, keepdims=True)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, wanted, rtol=2**-10, atol=2**-24)
    assert threads == 4 * 32


OTHERS = {
    "few results of many steps": (lambda x: op.max(x, [1, 2]), (1, 40, 40, 8)),
    "along the contiguous dimension": (lambda x: op.max(x, [-1]), (2, 8, 8, 32)),
    "long rows": (lambda x: op.nn.softmax(x, -1), (2, 8, 8, 300)),
    "rows along another dimension": (lambda x: op.nn.softmax(x, 1), (2, 8, 8, 8)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_reductions_are_left_to_tvm(name: str) -> None:
    body, shape = OTHERS[name]
    target = cuda_target(arch_named("sm_80"))
    module = build({"x": (shape, "float32")}, body)
    default = relax.backend.cuda.get_default_pipeline(target)
    ours, tvms = (tvm.transform.Sequential([each])(module) for each in (pipeline(target), default))
    tvm.ir.assert_structural_equal(ours, tvms)


def test_a_chain_that_doubles_is_cut_into_kernels_of_bounded_expressions() -> None:
    def halves(x: relax.Expr) -> relax.Expr:
        for _ in range(300):
            x = op.multiply(op.add(x, x), relax.const(0.5, "float32"))
        return x

    module = build({"x": ((4, 8), "float32")}, halves)
    module = unscheduled(module, cuda_target(arch_named("sm_80")))
    kernels = [each for each in module.functions.values() if isinstance(each, tirx.PrimFunc)]
    blocks = [len(re.findall(r"with T.sblock", each.script())) for each in kernels]
    # An operator that reads one value costs one copy more, one that reads it twice doubles them.
    assert max(blocks) <= 20
    x, result, _ = run(halves, (4, 8), "float32")
    np.testing.assert_array_equal(result, x)


def test_what_reads_each_result_once_is_fused_without_a_limit() -> None:
    def chain(x: relax.Expr) -> relax.Expr:
        for _ in range(40):
            x = op.add(x, relax.const(1.0, "float32"))
        return x

    x, result, threads = run(chain, (4, 8), "float32")
    assert len(threads) == 1
    np.testing.assert_allclose(result, x + 40, rtol=1e-5)


@pytest.mark.parametrize("columns", [6, 7])
def test_the_median_is_the_lesser_middle_or_nan_where_there_is_one(columns: int) -> None:
    # Right is PyTorch's definition: NaN if any element is.
    def of_rows(x: relax.Expr) -> relax.Expr:
        return relax.TupleGetItem(op.median(x, [1]), 0)

    x, result, _ = run(of_rows, (3, columns), "float32", holes=True)
    assert np.isnan(result[0])
    np.testing.assert_array_equal(result[1:], np.sort(x[1:])[:, (columns - 1) // 2])
    _, result, _ = run(op.median, (3, columns), "float32", holes=True)
    assert np.isnan(result)


@pytest.mark.parametrize("columns", [8, 300])
def test_a_function_whose_extents_are_formulas_has_a_schedule(columns: int) -> None:
    rows, more = tirx.Var("rows", "int64"), tirx.Var("more", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, more, columns), "float32"))
    with builder.function("main", [x]):
        wide = builder.emit(op.nn.pad(x, [0, 0, 1, 1, 0, 0]))
        late = builder.emit(op.strided_slice(wide, [1], [1], [more + 2], [1], assume_inbound=True))
        builder.emit_func_output(builder.emit(op.concat([late, late], 1)))
    settings = settings_from()
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    activate("vgpu")
    executable, _ = build_library(builder.get(), arch_named("sm_80"), tools, cache)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    for shape in ((2, 5, columns), (1, 1, columns)):
        value = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        result = machine["main"](tvm.runtime.tensor(value, tvm.cuda(0))).numpy()
        late_rows = np.pad(value, [(0, 0), (0, 1), (0, 0)])
        np.testing.assert_array_equal(result, np.concatenate([late_rows, late_rows], 1))
