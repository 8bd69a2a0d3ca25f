"""The problems of the race: tensors, the result that is expected, and the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

Array = np.ndarray[Any, Any]
# Tensors by name, in the order in which boltgen's kernels take them: A, then every layer's B and
# operands.
Arrays = Mapping[str, Array]


class Problem(Protocol):
    """One problem that several contestants compute.

    `work` is the number that instructions are divided by: multiplications with an addition, or
    elements where there are no products.
    """

    unit: ClassVar[str]  # of `work`, for the table
    inputs: ClassVar[int]  # tensors that `draw` returns

    @property
    def name(self) -> str:
        """The problem in a few words, with its extents."""
        ...

    @property
    def work(self) -> int:
        """Multiply-adds, or elements."""
        ...

    @property
    def workload(self) -> Workload:
        """The problem in boltgen's terms."""
        ...

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Draw the tensors."""
        ...

    def expected(self, arrays: Arrays) -> Array:
        """Compute the result in FP32."""
        ...


def drawn(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Draw an FP16 tensor from a normal distribution."""
    found: Array = (rng.standard_normal(shape, np.float32) * scale).astype(np.float16)
    return found


@dataclass(frozen=True)
class Matmul:
    """D = A B, B column-major: what a linear layer without bias computes."""

    unit: ClassVar[str] = "multiply-add"
    inputs: ClassVar[int] = 2

    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """`matmul 1280x3072x768`."""
        return f"matmul {self.m}x{self.n}x{self.k}"

    @property
    def work(self) -> int:
        """M N K."""
        return self.m * self.n * self.k

    @cached_property
    def workload(self) -> Workload:
        """One GEMM, FP16 with sums in FP32."""
        return Workload.of(
            Gemm(m=self.m, n=self.n, k=self.k, b_layout=Layout.COLUMN, out_dtype=DType.F16)
        )

    def draw(self, rng: np.random.Generator) -> Arrays:
        """A: (M, K); B: (N, K)."""
        return {
            "a": drawn(rng, self.m, self.k),
            "b": drawn(rng, self.n, self.k, scale=self.k**-0.5),
        }

    def expected(self, arrays: Arrays) -> Array:
        """Multiply in FP32."""
        found: Array = arrays["a"].astype(np.float32) @ arrays["b"].astype(np.float32).T
        return found
