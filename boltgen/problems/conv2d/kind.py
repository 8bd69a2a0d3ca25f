"""Convolutions as a kind of problems."""

from __future__ import annotations

from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.kind import Kind

KIND = Kind(problem_type=Conv2d)
