"""TVM's own kernels of a compiled model: which there are, and what they take at least."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx

from benchmarks.cases.relax_modules import build
from boltgen.arch import arch_named
from boltgen.artifact.coverage import RestKernel, rest_verdict
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.compiler import compile as compile_model
from boltgen.families.constants import model_constants
from boltgen.frontend.relax.symbols import with_ranges
from boltgen.settings import settings_from
from boltgen.tvm_build.relax_link import build_library
from boltgen.tvm_build.rest.relax_kernels import rest_kernels

op = relax.op
A100 = arch_named("sm_80")


def found_in(module: object) -> tuple[RestKernel, ...] | None:
    """The kernels that are counted on the way through `build_library`."""
    settings = settings_from()
    seen: list[tuple[RestKernel, ...] | None] = []
    build_library(
        module,
        A100,
        find_toolchain(settings),
        Cache(settings.cache_dir),
        look=lambda lowered: seen.append(rest_kernels(lowered)),
    )
    (found,) = seen
    return found


def test_kernels_are_counted_with_their_bytes_and_operations() -> None:
    """A kernel that is called twice is one, and a reshape between others is none."""

    def body(x: relax.Expr) -> relax.Expr:
        rows = op.nn.softmax(op.nn.softmax(x))
        return op.sum(op.reshape(rows, (8, 40)), axis=1)

    found = found_in(build({"x": ((4, 80), "float16")}, body))
    assert found is not None
    softmax, sums = found
    assert (softmax.name, softmax.count) == ("softmax", 2)
    assert (sums.name, sums.count) == ("sum", 1)
    assert softmax.bytes_moved == 2 * 320 * 2
    assert sums.bytes_moved == (320 + 8) * 2
    assert softmax.flops >= 3 * 320


def test_a_kernel_of_open_size_is_counted_in_the_middle_of_its_range() -> None:
    rows = tirx.Var("rows", "int64")
    module = build({"x": ((rows, 80), "float16")}, op.exp)
    assert found_in(with_ranges(module, {"rows": (1, 16)})) == (
        RestKernel(name="tir_exp", count=1, bytes_moved=2 * 4 * 80 * 2, flops=0, is_open=True),
    )


def test_one_kernel_of_several_open_sizes_has_the_bytes_of_all() -> None:
    short, long = (tirx.Var(name, "int64") for name in ("short", "long"))
    module = build(
        {"x": ((short, 80), "float16"), "y": ((long, 80), "float16")},
        lambda x, y: (op.sum(x, axis=1), op.sum(y, axis=1)),
    )
    found = found_in(with_ranges(module, {"short": (1, 4), "long": (4, 16)}))
    assert found is not None
    moved = sum(kernel.count * kernel.bytes_moved for kernel in found)
    assert moved == (2 + 8) * (80 + 1) * 2


def test_the_share_of_open_sizes_says_of_which() -> None:
    assert rest_verdict(2, 1.0, 3.0).endswith("25 % of the time of all")
    assert rest_verdict(2, 1.0, 3.0, is_open=True).endswith(
        "all, at sizes in the middle of their ranges"
    )


def test_a_kernel_takes_its_launch_and_the_longer_of_memory_and_arithmetic() -> None:
    constants = model_constants(A100)
    idle = RestKernel(name="k", count=3, bytes_moved=0, flops=0)
    assert idle.time_us(A100, constants) == 3 * constants.launch_us
    copy = RestKernel(name="k", count=1, bytes_moved=1555 * 10**6, flops=1)
    assert copy.time_us(A100, constants) == pytest.approx(
        constants.launch_us + 1000 * 1555 / A100.dram_gb_per_s / constants.dram_fraction
    )
    busy = RestKernel(name="k", count=1, bytes_moved=1, flops=int(A100.fp32_tflops * 1e9))
    assert busy.time_us(A100, constants) == pytest.approx(constants.launch_us + 1000)


def test_a_compiled_model_names_tvms_kernels_beside_its_regions() -> None:
    weight = np.ones((64, 64), np.float16)

    def body(x: relax.Expr) -> relax.Expr:
        product = op.matmul(x, relax.const(weight))
        return op.add(op.max(product, axis=1), op.min(product, axis=1))

    artifact = compile_model(build({"x": ((64, 64), "float16")}, body), check="none")
    rest = artifact.metadata.rest
    assert rest is not None
    # The longest first.
    counted = [(each.name, each.count) for each in rest]
    assert counted[-1] == ("add", 1) and sorted(counted) == [("add", 1), ("max", 1), ("min", 1)]
    assert rest[0].time_us > rest[2].time_us > model_constants(arch_named("sm_80")).launch_us


def test_the_share_is_of_all_time() -> None:
    assert "3 launches" in rest_verdict(3, 10.0, 30.0)
    assert "at least 10.0 us" in rest_verdict(3, 10.0, 30.0)
    assert rest_verdict(3, 10.0, 30.0).endswith("25 % of the time of all")
    assert rest_verdict(0, 0.0, 30.0) == "TVM launches no kernel of its own"
