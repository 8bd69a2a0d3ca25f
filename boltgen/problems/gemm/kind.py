"""Matmuls as a kind of problems."""

from __future__ import annotations

from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.kind import Kind

KIND = Kind(problem_type=Gemm)
