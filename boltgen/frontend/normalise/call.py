"""What a normalisation rule sees of an operator, and what all rules need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from boltgen.frontend.normalise.dialect import Attributes, Dialect, IRExpr
from boltgen.frontend.normalise.values import Order, Store, Value, identity

# An argument, or a result: a tensor, a tuple, or what is neither and stays as it is.
Item: TypeAlias = "Value | tuple[Item, ...] | IRExpr"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """One operator: its arguments as values, and the logical shape and dtype of its result.

    `original` is the author's call, or None where the author wrote none; `attrs` has its attributes
    under the neutral names.
    """

    name: str
    original: IRExpr
    attrs: Attributes
    args: tuple[Item, ...]
    shape: tuple[int, ...]
    dtype: str
    single_use: bool
    store: Store
    allow_nonfinite: bool

    def tensor(self, position: int) -> Value:
        """The argument at `position`, which is a tensor."""
        value = self.args[position]
        assert isinstance(value, Value)
        return value

    @property
    def tensors(self) -> list[Value]:
        """The arguments that are tensors."""
        return [arg for arg in self.args if isinstance(arg, Value)]

    def result(self, expr: IRExpr, order: Order | None = None, *, wide: bool = False) -> Value:
        """The operator's result, computed by `expr` in `order`.

        What was computed in FP32 is narrowed at once where several operators read it, so that one
        narrow copy serves them; where one does, that one decides. `wide` values stay FP32.
        """
        value = self.store.of_expr(expr, self.shape, self.dtype, order)
        value.keep_wide = wide
        value.single_use = self.single_use
        if value.is_float and value.stored == "float32" and not wide and not self.single_use:
            self.store.get(value, value.order, "float16")
            value.stored = "float16"
        return value

    @property
    def dialect(self) -> Dialect:
        """What writes operators."""
        return self.store.dialect

    def again(self, args: list[IRExpr]) -> IRExpr:
        """The same operator on other arguments."""
        if self.original is None:
            return self.dialect.elementwise(self.name, *args)
        return self.dialect.again(self.original, args)


# A rule returns None where it does not apply; then the operator is kept as the author wrote it.
Rule: TypeAlias = Callable[[OperatorCall], "Item | None"]


def common_order(values: list[Value], shape: tuple[int, ...]) -> Order:
    """The order in which an elementwise result of `shape` moves the fewest bytes."""
    candidates = [
        value
        for value in values
        if value.constant is None
        and value.flat is None
        and len(value.shape) == len(shape)
        and value.order != identity(len(shape))
    ]
    full = [value for value in candidates if value.shape == shape]
    return (full or candidates)[0].order if candidates else identity(len(shape))
