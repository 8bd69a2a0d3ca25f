"""Operators whose schedules of TVM's own are for tensor cores (wmma), under every check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import boltgen.relay  # noqa: F401 - TVM then compiles CUDA with boltgen's nvcc
from boltgen.device.choose import activate
from boltgen.device.vgpu import Vgpu

import tvm  # isort: skip
from tvm import autotvm, relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

Array = np.ndarray[Any, Any]
TARGET = tvm.target.Target("cuda -arch=sm_80", host="llvm")
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def vgpu() -> Iterator[Vgpu]:
    loaded = activate("vgpu").vgpu
    assert loaded is not None
    loaded.set_option("check", "all")
    yield loaded
    loaded.set_option("check", "none")


def operand(shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "int8":
        return RNG.integers(-128, 128, shape, dtype=np.int8)
    return RNG.standard_normal(shape).astype(dtype)


def dense(x: Any, w: Any, out: str) -> Any:
    return relay.nn.dense(x, w, out_dtype=out)


def batched(x: Any, w: Any, out: str) -> Any:
    return relay.nn.batch_matmul(x, w, out_dtype=out)


def convolution(x: Any, w: Any, out: str) -> Any:
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": out}
    return relay.nn.conv2d(x, w, padding=(1, 1), channels=48, kernel_size=(3, 3), **layouts)


def exact(x: Array, w: Array) -> Array:
    """The operator on FP64: of images and filters where there are four axes, else x times w.T."""
    a, b = torch.tensor(x.astype(np.float64)), torch.tensor(w.astype(np.float64))
    if a.ndim < 4:
        found: Array = (a @ b.transpose(-1, -2)).numpy()
        return found
    images, filters = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
    convolved = torch.nn.functional.conv2d(images, filters, padding=1)
    found = convolved.permute(0, 2, 3, 1).numpy()
    return found


@dataclass(frozen=True)
class Case:
    make: Callable[[Any, Any, str], Any]
    x: tuple[int, ...]
    w: tuple[int, ...]
    dtype: str
    out: str
    terms: int  # of a sum


CASES = [
    Case(dense, (32, 128), (48, 128), "float16", "float32", 128),
    Case(dense, (32, 128), (48, 128), "float16", "float16", 128),
    Case(dense, (32, 128), (48, 128), "int8", "int32", 128),
    Case(batched, (3, 32, 64), (3, 48, 64), "float16", "float16", 64),
    Case(convolution, (16, 4, 4, 32), (3, 3, 32, 48), "float16", "float32", 9 * 32),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.make.__name__}-{case.out}")
def test_what_tvm_schedules_for_tensor_cores(vgpu: Vgpu, case: Case) -> None:
    x, w = operand(case.x, case.dtype), operand(case.w, case.dtype)
    variables = [relay.var(n, shape=a.shape, dtype=case.dtype) for n, a in (("x", x), ("w", w))]
    module = tvm.IRModule.from_expr(relay.Function(variables, case.make(*variables, case.out)))
    # Not the root context, in which TVM downloads schedules of its own accord.
    with autotvm.apply_history_best([]), tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target=TARGET)
    assert "wmma::mma_sync" in built.get_lib().imported_modules[0].get_source()
    executor = graph_executor.GraphModule(built["default"](tvm.cuda(0)))
    executor.run(x=x, w=w)
    wanted = exact(x, w)
    # Sums of so many products in the accumulator's precision, whose operands are exact.
    is_exact = case.out == "int32"
    rounding = 0.0 if is_exact else case.terms * float(np.finfo(case.out).eps) / 2
    error = np.abs(executor.get_output(0).numpy() - wanted)
    assert (error <= rounding * exact(np.abs(x.astype(np.float64)), np.abs(w.astype(float)))).all()
    assert [finding.message for finding in vgpu.findings()] == []
