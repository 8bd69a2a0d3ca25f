"""The part of the problem's interface that is equal for all problems without an operand B."""

from __future__ import annotations

from boltgen.errors import InvalidProblemError
from boltgen.problems.dense import Dense
from boltgen.problems.gemm.problem import Gemm


class WithoutB(Dense):
    """A base of problems that read A alone, such as norms: no matmul, one of a batch, no FLOPs.

    A problem that differs overrides the property.
    """

    __slots__ = ()

    @property
    def gemm(self) -> Gemm:
        """Raise InvalidProblemError: the problem is not a matmul."""
        raise InvalidProblemError(f"{self} is no matrix product")

    @property
    def has_b(self) -> bool:
        """False."""
        return False

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Empty: there is no B."""
        return (0,)

    @property
    def alignment_b(self) -> int:
        """One: there is no B."""
        return 1

    @property
    def flops(self) -> int:
        """Zero: only the operations of matmuls are counted."""
        return 0

    @property
    def b_bytes(self) -> int:
        """Zero: there is no B."""
        return 0

    def padding_of_b(self, channels: int, filters: int) -> tuple[int, ...]:
        """Return (0,): there is no B."""
        del channels, filters
        return (0,)
