"""Convolutions of volumes as a kind of problems."""

from __future__ import annotations

from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.kind import Kind

KIND = Kind(problem_type=Conv3d)
