"""`.sat` and `.relu` of half-precision fma, in the manual's spelling and in CUTLASS's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver
from tests.vgpu.lanes import COUNT, run_instruction

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def expected(modifier: str, dtype: np.dtype[np.generic], values: list[Array]) -> Array:
    a, b, c = (value.astype(np.float64) for value in values)
    result = (a * b + c).astype(dtype).astype(np.float64)
    if modifier == "relu":
        return np.where(result < 0, 0, result).astype(dtype)
    return np.clip(np.nan_to_num(result, nan=0.0), 0, 1).astype(dtype)


@pytest.mark.parametrize("behind", [False, True], ids=["before the type", "behind it"])
@pytest.mark.parametrize("packed", [False, True], ids=["one", "two"])
@pytest.mark.parametrize(("kind", "modifier"), [("f16", "relu"), ("f16", "sat"), ("bf16", "relu")])
def test_fma(driver: Driver, kind: str, modifier: str, packed: bool, behind: bool) -> None:
    rng = np.random.default_rng(3)
    dtype = DTYPES[kind]
    count = COUNT * (2 if packed else 1)
    values = [rng.normal(0, 1, count).astype(dtype) for _ in range(3)]
    words = "u4" if packed else "u2"
    columns = [[int(word) for word in value.view(words)] for value in values]
    spelled = kind + ("x2" if packed else "")
    spelled = f"{spelled}.{modifier}" if behind else f"{modifier}.{spelled}"
    register = "u32" if packed else "u16"
    plain, _ = run_instruction(
        driver, f"fma.rn.{spelled} %d, %a, %b, %c;", (register,) * 3, register, columns
    )
    found = plain.view(dtype)
    np.testing.assert_array_equal(found, expected(modifier, dtype, values))
