"""Group norms of images as a kind of problems."""

from __future__ import annotations

from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.kind import Kind
from boltgen.problems.norm.oracle import enclose_rows

KIND = Kind(problem_type=GroupNorm, enclose=enclose_rows)
