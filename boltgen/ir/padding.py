"""What padding is chosen by: the times of kernels and of moves, wherever they come from."""

from __future__ import annotations

from typing import Protocol

from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Problem


class PaddingCosts(Protocol):
    """Times in microseconds on one architecture."""

    def kernel_us(self, problem: Problem, epilogue: Epilogue) -> float:
        """The best kernel for a problem; infinite where there is none."""

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """A pass over memory that reads and writes so many bytes."""
