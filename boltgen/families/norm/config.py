"""Configurations of norms of rows. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NormConfig:
    """One kernel: a row has `threads`, each thread `vectors` of it, a threadblock `rows`.

    If it is `streamed`, a thread has so many vectors at a time, and a row any number of them.
    """

    family: ClassVar[str] = "norm"

    threads: int
    vectors: int
    rows: int
    streamed: bool = field(default=False, metadata={"absent_at_default": True})

    @property
    def tile(self) -> str:
        """Rows, and threads of each."""
        return f"{self.rows}x{self.threads}"

    @property
    def block(self) -> int:
        """Threads per threadblock."""
        return self.threads * self.rows

    def columns(self, vector: int) -> int:
        """Elements of a row that its threads have at a time, in vectors of so many."""
        return self.threads * self.vectors * vector

    def __str__(self) -> str:
        return f"{self.tile}v{self.vectors}{'s' if self.streamed else ''}"
