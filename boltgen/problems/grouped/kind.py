"""Grouped matmuls as a kind of problems."""

from __future__ import annotations

from boltgen.problems.grouped.oracle import enclose_groups
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.kind import Kind

KIND = Kind(problem_type=GroupedGemm, enclose=enclose_groups)
