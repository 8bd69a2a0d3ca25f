"""Layout transforms as a kind of problems."""

from __future__ import annotations

from boltgen.problems.kind import Kind
from boltgen.problems.layout_transform.problem import LayoutTransform

KIND = Kind(problem_type=LayoutTransform)
