"""Configurations of norms of rows. Only free parameters are fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NormConfig:
    """One kernel: a row has `threads`, each thread `vectors` of it, a threadblock `rows`."""

    family: ClassVar[str] = "norm"

    threads: int
    vectors: int
    rows: int

    @property
    def tile(self) -> str:
        """Rows, and threads of each."""
        return f"{self.rows}x{self.threads}"

    @property
    def block(self) -> int:
        """Threads per threadblock."""
        return self.threads * self.rows

    def columns(self, vector: int) -> int:
        """Elements that a row may have, of vectors of so many."""
        return self.threads * self.vectors * vector

    def __str__(self) -> str:
        return f"{self.tile}v{self.vectors}"
