"""A neutral view of a model's graph: what Relax and Relay functions are translated into.

Arrow: a frontend's translation makes it; `anchor` and `epilogue_walk` read it. Operator names and
attributes are those that both IRs share ("add", "nn.conv2d"), so one table serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

# Operator names of expressions that compute nothing.
INPUT = "input"
CONSTANT = "constant"
OPAQUE = "opaque"  # whatever the translation has no name for: tuples, branches, calls of functions


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """One value: an operator applied to earlier values.

    `shape` has a string for each symbolic dimension, and is None where the value is no tensor of
    known rank. `scalar` is the value of a constant of one element.
    """

    op: str
    args: tuple[int, ...] = ()
    shape: tuple[int | str, ...] | None = None
    dtype: str = ""
    attrs: Mapping[str, object] = field(default_factory=dict)
    scalar: float | None = None

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape, all of whose dimensions are known.

        Raises:
            ValueError: one of them is not, or there is no shape.
        """
        if self.shape is None:
            raise ValueError(f"the result of {self.op} has no known rank")
        for axis, extent in enumerate(self.shape):
            if isinstance(extent, str):
                raise ValueError(f"dimension {axis} of {self.op} is the symbolic '{extent}'")
        return tuple(extent for extent in self.shape if isinstance(extent, int))

    @property
    def is_static(self) -> bool:
        """Whether the shape is known in full."""
        return self.shape is not None and all(isinstance(extent, int) for extent in self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.static_shape)


@dataclass(frozen=True)
class Graph:
    """Expressions in an order in which each one comes after what it reads.

    `escaping` has the indices of values that are used where the graph does not show it: results of
    the function, and values that a nested function captures.
    """

    exprs: tuple[Expr, ...]
    escaping: frozenset[int]

    def __getitem__(self, index: int) -> Expr:
        return self.exprs[index]

    def __len__(self) -> int:
        return len(self.exprs)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each expression, those that read it, in order."""
        lists: list[list[int]] = [[] for _ in self.exprs]
        for index, expr in enumerate(self.exprs):
            for arg in dict.fromkeys(expr.args):
                lists[arg].append(index)
        return tuple(tuple(consumers) for consumers in lists)
