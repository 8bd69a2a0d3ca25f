"""Norms of rows as a kind of problems."""

from __future__ import annotations

from boltgen.problems.kind import Kind
from boltgen.problems.norm.oracle import enclose_rows
from boltgen.problems.norm.problem import Norm

KIND = Kind(problem_type=Norm, enclose=enclose_rows)
