"""The steps of recurrent layers as a kind of problems."""

from __future__ import annotations

from boltgen.problems.kind import Kind
from boltgen.problems.recurrent.oracle import enclose_steps
from boltgen.problems.recurrent.problem import Recurrent

KIND = Kind(problem_type=Recurrent, enclose=enclose_steps)
