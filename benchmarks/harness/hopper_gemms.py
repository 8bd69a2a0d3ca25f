"""GEMMs for sm_90a from CUTLASS's collective builder (cutlass_hopper.cu), and problems for them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.harness.cutlass_libraries import cutlass_library
from benchmarks.harness.driver import Array, Buffer, Driver
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.accumulation import narrow_error
from boltgen.problems.gemm.problem import Gemm

# Type of A and B, and of C and D.
GEMMS: dict[str, tuple[np.dtype[Any], np.dtype[Any]]] = {
    "pingpong_f16": (np.dtype(np.float16), np.dtype(np.float16)),
    "pingpong_e4m3": (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.float16)),
    "cooperative_s8": (np.dtype(np.int8), np.dtype(np.float32)),
}


def build_gemms() -> Path:
    """The library with a function for each of GEMMS, through the user's cache."""
    return cutlass_library(Path(__file__).with_name("cutlass_hopper.cu"), "sm_90a")


@dataclass(frozen=True)
class Product:
    """D = A B^T + C / 2 on the device: A is [m, k], B [n, k], and D poisoned."""

    name: str
    m: int
    n: int
    k: int
    a: Array
    b: Array
    c: Array
    buffers: tuple[Buffer, ...]  # A, B, C, D

    @staticmethod
    def random(driver: Driver, name: str, m: int, n: int, k: int) -> Product:
        """Draw operands, and put them on the device."""
        operand, output = GEMMS[name]
        rng = np.random.default_rng(m + n + k)

        def draw(*shape: int) -> Array:
            if operand == np.int8:
                return rng.integers(-128, 128, shape, dtype=np.int8)
            values: Array = rng.standard_normal(shape).astype(operand)
            return values

        a, b = draw(m, k), draw(n, k)
        c = rng.standard_normal((m, n)).astype(output)
        poison = np.full((m, n), np.nan, output)
        raw = (x.view(np.uint8) if x.itemsize == 1 else x for x in (a, b))
        buffers = tuple(driver.buffer(x) for x in (*raw, c, poison))
        return Product(name, m, n, k, a, b, c, buffers)

    def launch(self, library: ctypes.CDLL) -> int:
        """Run it and wait; 0, or CUDA's or CUTLASS's error."""
        # CUTLASS asks for the last error of the thread, which may be that of an earlier test.
        ctypes.CDLL("libcudart.so.13").cudaGetLastError()
        addresses = (ctypes.c_void_p(buffer.address) for buffer in self.buffers)
        status: int = getattr(library, self.name)(self.m, self.n, self.k, *addresses)
        return status

    def errors(self, found: Array) -> tuple[Array, Array]:
        """How far off each element is, and how far it may be.

        k products are added one by one in f32, or, of 8-bit floats, as an H100 adds them. Sums are
        rounded to the output's type.
        """
        a, b, c = (x.astype(np.float64) for x in (self.a, self.b, self.c))
        exact = a @ b.T + c / 2
        terms = np.abs(a) @ np.abs(b).T + np.abs(c) / 2
        half_ulp = 2.0**-11 if GEMMS[self.name][1] == np.float16 else 2.0**-24
        bound = (self.k + 1) * 2.0**-24 * terms + half_ulp * np.abs(exact) + 2.0**-25
        if self.a.dtype == DType.E4M3.numpy:
            problem = Gemm(
                m=self.m, n=self.n, k=self.k, b_layout=Layout.COLUMN, in_dtype=DType.E4M3
            )
            bound = bound + narrow_error(problem, a, b)
        return np.abs(found.astype(np.float64) - exact), bound
