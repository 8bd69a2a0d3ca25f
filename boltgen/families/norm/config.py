"""Configurations of norms of rows; their fields are the free parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NormConfig:
    """One kernel: `threads` per row, `vectors` of the row per thread, `rows` per threadblock.

    If `streamed`, a thread holds `vectors` at a time, and a row may have any number of them.
    """

    family: ClassVar[str] = "norm"

    threads: int
    vectors: int
    rows: int
    streamed: bool = field(default=False, metadata={"absent_at_default": True})

    @property
    def tile(self) -> str:
        """Rows, and threads per row, as text."""
        return f"{self.rows}x{self.threads}"

    @property
    def block(self) -> int:
        """Threads per threadblock."""
        return self.threads * self.rows

    def columns(self, vector: int) -> int:
        """Return the elements of a row that its threads hold at a time, for vectors of `vector`."""
        return self.threads * self.vectors * vector

    def __str__(self) -> str:
        return f"{self.tile}v{self.vectors}{'s' if self.streamed else ''}"
