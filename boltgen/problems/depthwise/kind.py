"""Depthwise convolutions as a kind of problems."""

from __future__ import annotations

from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.kind import Kind

KIND = Kind(problem_type=Depthwise)
