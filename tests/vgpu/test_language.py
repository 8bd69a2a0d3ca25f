"""CUDA C++ beyond kernels of linear algebra: calls of all kinds, malloc, and what libdevice and the
intrinsics of halves compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array
from tests.vgpu.cuda_programs import link, run


@pytest.fixture(scope="module")
def calls(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    return link("calls", library_folder / "libcudart.so.13", folder)


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


def _digits(n: int, depth: int) -> int:
    below = _digits(n + 1, depth + 1) if depth < 5 else 0
    return below + sum(n * (k + depth) for k in range(8))


def _recursion(t: int) -> int:
    return _fibonacci(t % 9) + 100 * (t % 2) * (t // 2 % 2 == 0) + 1000 * _digits(t, 0)


def _pointers(t: int) -> int:
    a, b = t + 2, t % 5
    return [a + b, a - b, a**b][t % 3] + 7 * t


EXPECTED: dict[str, Callable[[int], int]] = {
    "recursion": _recursion,
    "pointers": _pointers,
    "objects": lambda t: t * t // 2 if t % 4 == 0 else t * t,
    "heap": lambda t: t * (t + 1) // 2,
}


@pytest.mark.parametrize("check", ["none", "all"])
def test_calls(calls: Path, library_folder: Path, check: str) -> None:
    out, err = run(calls, library_folder, device="sm_80", check=check)
    found = {}
    for line in out.splitlines():
        name, _, numbers = line.partition(":")
        found[name] = [int(x) for x in numbers.split()]
    wanted = {name: [f(t) for t in range(64)] for name, f in EXPECTED.items()}
    assert found == wanted, err
    assert "initcheck" not in err
    assert "racecheck" not in err


def test_calls_that_never_return_end_with_a_message(calls: Path, library_folder: Path) -> None:
    said, _ = run(calls, library_folder, "endless")
    assert "stack overflow: " in said
    assert "kernel 'endless'" in said


def test_memory_that_is_freed_twice_is_a_fault(calls: Path, library_folder: Path) -> None:
    said, _ = run(calls, library_folder, "twice")
    assert "free of what malloc did not return, or of what is freed" in said


# --- functions ------------------------------------------------------------------------------------

COUNT = 512
NARROW: dict[str, Any] = {"half": np.float16, "bfloat": ml_dtypes.bfloat16}
REFERENCES: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "tgamma": np.vectorize(lambda x: math.gamma(x) if x > 0 or x % 1 else math.nan),
    "lgamma": np.vectorize(lambda x: math.lgamma(x) if x > 0 or x % 1 else math.inf),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "pow": np.power,
    "atan2": np.arctan2,
    "divide": np.divide,
    "fdim": lambda x, y: np.where(x > y, x - y, 0.0),
}
PAIRS = {"pow", "fmod", "atan2", "hypot", "divide", "fdim"}
# Units in the last place (CUDA programming guide, "Mathematical functions"), and one for the
# reference, which is rounded twice.
ULPS = {"float": 8, "double": 12}


def _operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(12)
    x = rng.uniform(-4, 4, COUNT)
    x[: COUNT // 4] = rng.uniform(0.01, 30, COUNT // 4)
    x[COUNT // 4 : COUNT // 2] = rng.uniform(-1, 1, COUNT // 4)
    y = rng.uniform(0.1, 5, COUNT)
    return x, y


@pytest.fixture(scope="module")
def results(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Array]:
    folder = tmp_path_factory.mktemp("functions")
    program = link("functions", library_folder / "libcudart.so.13", folder, arch="sm_80")
    np.concatenate(_operands()).tofile(folder / "in")
    printed, _ = run(program, library_folder, str(folder / "in"), str(folder / "out"))
    names = printed.splitlines()
    values = np.fromfile(folder / "out").reshape(len(names), COUNT)
    return dict(zip(names, values, strict=True))


def test_functions_of_libdevice(results: dict[str, Array]) -> None:
    x, y = _operands()
    tested = 0
    for name, found in results.items():
        kind, _, function = name.partition(" ")
        if kind not in ULPS:
            continue
        tested += 1
        dtype = np.float32 if kind == "float" else np.float64
        a, b = (v.astype(dtype).astype(np.float64) for v in (x, y))
        reference = REFERENCES.get(function) or getattr(np, function)
        with np.errstate(all="ignore"):
            exact = reference(a, b) if function in PAIRS else reference(a)
        nan = np.isnan(exact)
        np.testing.assert_array_equal(np.isnan(found), nan, err_msg=name)
        ulp = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
        error = np.abs(found - exact) / np.maximum(ulp, np.finfo(dtype).tiny)
        # Near a zero of lgamma only the absolute error is bounded.
        if function == "lgamma":
            error = np.minimum(error, np.abs(found - exact) / np.finfo(dtype).eps)
        assert error[~nan & np.isfinite(exact)].max() <= ULPS[kind], name
    assert tested == 74


def test_intrinsics_of_halves(results: dict[str, Array]) -> None:
    x, y = _operands()
    tested = 0
    for name, found in results.items():
        kind, _, function = name.partition(" ")
        if kind not in NARROW:
            continue
        tested += 1
        dtype = NARROW[kind]
        a, b = (v.astype(np.float32).astype(dtype).astype(np.float64) for v in (x, y))
        with np.errstate(invalid="ignore"):
            exact = {
                "add": a + b,
                "mul": a * b,
                "div": a / b,
                "fma": a * b + b,
                "relu": np.maximum(a * b + a, 0),
                "max": np.maximum(a, b),
                "min_nan": np.minimum(a, b),
                "saturated": np.clip(a + b, 0, 1),
                "sqrt": np.sqrt(a),
                "floor": np.floor(a),
                "rint": np.rint(a),
            }[function]
        # Exact in double but for quotients and roots, of which a rounding to 53 bits first is no
        # midpoint of the narrow type.
        wanted = exact.astype(dtype).astype(np.float64)
        if function == "div":  # the intrinsic is of one unit in the last place
            np.testing.assert_allclose(found, wanted, rtol=float(ml_dtypes.finfo(dtype).eps))
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=name)
    assert tested == 22


def test_cooperative_groups(results: dict[str, Array]) -> None:
    values = np.trunc(_operands()[0])
    sums = np.repeat(values.reshape(-1, 8).sum(axis=1), 8)
    largest = np.repeat(values.reshape(-1, 32).max(axis=1), 32)
    positive = (values > 0).reshape(-1, 32)
    rank = np.where(positive, np.cumsum(positive, axis=1), 0).reshape(-1)
    np.testing.assert_array_equal(results["groups"], sums + 1000 * largest + 1e6 * rank)
