"""The operator that a normalisation rule rewrites, and the context of all rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from boltgen.graph.attributes import Attributes
from boltgen.graph.graph import Expr, GraphBuilder
from boltgen.passes.precision.reach import BEYOND, WITHIN, Reach
from boltgen.passes.precision.values import Order, Store, Value, identity


@dataclass(frozen=True, slots=True)
class Other:
    """An expression that is no tensor of known shape; it passes through as it is."""

    index: int


# An argument, or a result.
Item: TypeAlias = "Value | Other"


class DeclinedError(Exception):
    """Says, in a sentence for people, why an operator stays as its author wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The state that all operators of a function share.

    In a `is_mixed` function some products have FP16 operands: then its author made FP32 what is
    FP32, and it stays so. With `writes_volumes` the IR computes convolutions of volumes in NDHWC.
    """

    store: Store
    allow_nonfinite: bool = False
    is_mixed: bool = False
    writes_volumes: bool = True
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Keep a sentence for people, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """One operator: its arguments as values, and the logical shape and dtype of its result.

    `original` is the author's operator, or None if the author wrote none; `attrs` has its
    attributes under the neutral names. `is_angle` tells that a sine or cosine is taken of the
    result, `is_score` that nothing but a softmax is, `is_distance` that the result of a bounded
    function has to keep its distance to the bound. An `is_large` result was seen to leave FP16's
    range; `size` is less than 1 if the result was seen to be small, or if a large factor follows.
    """

    name: str
    original: Expr | None
    attrs: Attributes
    args: tuple[Item, ...]
    shape: tuple[int, ...]
    dtype: str
    single_use: bool
    context: Context
    is_angle: bool = False
    is_score: bool = False
    is_distance: bool = False
    is_large: bool = False
    size: float = 1.0

    @property
    def is_kept_wide(self) -> bool:
        """Return whether the result is FP32 regardless of its operands."""
        return self.is_angle or self.is_large

    @property
    def store(self) -> Store:
        """The store, which converts values."""
        return self.context.store

    @property
    def narrow(self) -> str:
        """The dtype of the operands of matmuls and convolutions."""
        return self.context.store.narrow

    @property
    def builder(self) -> GraphBuilder:
        """The builder, which writes operators."""
        return self.context.store.builder

    def tensor(self, position: int) -> Value:
        """The argument at `position`, which is a tensor."""
        value = self.args[position]
        assert isinstance(value, Value)
        return value

    @property
    def tensors(self) -> list[Value]:
        """The arguments that are tensors."""
        return [arg for arg in self.args if isinstance(arg, Value)]

    def scaled(self, reach: Reach) -> Reach:
        """Adjust `reach` by the known size of the result."""
        return replace(reach, size=min(reach.size, self.size))

    def compute_dtype(self, reach: Reach = WITHIN) -> str:
        """The dtype in which a floating result of this `reach` is computed and stored."""
        reach = self.scaled(reach)
        is_authored = self.context.is_mixed and self.dtype == "float32"
        wide = reach.is_beyond or is_authored or self.is_kept_wide or self.is_distance
        return "float32" if wide else self.narrow

    def result(
        self,
        expr: int,
        order: Order | None = None,
        *,
        reach: Reach = WITHIN,
        narrow_early: bool = False,
    ) -> Value:
        """The operator's result, computed by `expr` in `order`.

        With `narrow_early`, what was computed in FP32 is narrowed at once where several operators
        read it, so that one narrow copy serves them; where one does, that one decides.
        """
        value = self.store.of_expr(expr, self.shape, self.dtype, order)
        value.reach = BEYOND if self.is_kept_wide and value.is_float else self.scaled(reach)
        value.single_use = self.single_use
        is_wide = value.is_float and value.stored == "float32"
        may_narrow = is_wide and self.compute_dtype(value.reach) == self.narrow
        if narrow_early and may_narrow and not self.single_use:
            self.store.get(value, value.order, self.narrow)
            value.stored = self.narrow
        return value

    def again(self, args: Sequence[int], shape: tuple[int, ...], dtype: str) -> int:
        """The same operator on other arguments."""
        if self.original is None:
            return self.builder.elementwise(self.name, *args, attrs=self.attrs)
        return self.builder.add(replace(self.original, args=tuple(args), shape=shape, dtype=dtype))


# A rule returns None if it does not apply, or raises `DeclinedError`; then the operator is kept as
# the author wrote it.
Rule: TypeAlias = Callable[[OperatorCall], "Item | None"]


def common_order(values: list[Value], shape: tuple[int, ...], *, is_score: bool = False) -> Order:
    """The order in which an elementwise result of `shape` moves the fewest bytes.

    A softmax takes the rows of what `is_score`.
    """
    candidates = [
        value
        for value in values
        if value.constant is None
        and value.flat is None
        and len(value.shape) == len(shape)
        and value.order != identity(len(shape))
    ]
    full = [value for value in candidates if value.shape == shape]
    # Matmuls and norms write and read rows; most images lie otherwise.
    is_of_rows = len(shape) == 3 or is_score or not full
    if is_of_rows and any(_is_written(value, shape) for value in values):
        return identity(len(shape))
    return (full or candidates)[0].order if candidates else identity(len(shape))


def _is_written(value: Value, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor of this shape is computed in the order in which it is written."""
    is_plain = value.shape == shape and value.order == identity(len(shape))
    return is_plain and value.constant is None and value.flat is None
