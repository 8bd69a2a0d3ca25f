"""Translate a function to the neutral graph: the part that both IRs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boltgen.frontend.imported import TensorType
from boltgen.graph.attributes import NONE, Attributes, BatchNorm, Indexed
from boltgen.graph.graph import CONSTANT, INPUT, PART, Array, Expr, GraphBuilder, Structure
from boltgen.ir.dtypes import FLOAT8


class Translation:
    """A function under translation.

    `tensor_type` gives shape and dtype of the IR's types; the IR's type of tuples is `tuple_type`.
    """

    def __init__(self, tensor_type: Callable[[Any], TensorType], tuple_type: type) -> None:
        self._builder = GraphBuilder()
        self._tensor_type = tensor_type
        self._tuple_type: Any = tuple_type

    def _input(self, param: Any, type_: Any) -> Structure:
        return self._kept(param, type_, INPUT, ())

    def _constant_of(self, origin: Any, array: Array | None, type_: Any) -> int:
        """Add a constant, with its elements if NumPy represents them as the IR does."""
        shape, dtype = self._tensor_type(type_)
        is_known = array is not None and (array.dtype.kind in "fiub" or dtype in FLOAT8)
        if array is not None and is_known and str(array.dtype) == dtype:
            return self._builder.constant(array, origin)
        return self._builder.add(Expr(op=CONSTANT, shape=shape, dtype=dtype, origin=origin))

    def _kept(
        self,
        origin: Any,
        type_: Any,
        name: str,
        args: tuple[int, ...],
        attrs: Attributes = NONE,
        *,
        pinned: bool = False,
    ) -> Structure:
        """An expression that is written again by its author's."""
        made = self._typed(name, args, type_, attrs, origin=origin, pinned=pinned)
        return self._parts(self._builder.add(made), type_)

    def _typed(
        self,
        name: str,
        args: tuple[int, ...],
        type_: Any,
        attrs: Attributes = NONE,
        **more: Any,
    ) -> Expr:
        shape, dtype = self._tensor_type(type_)
        return Expr(op=name, args=args, shape=shape, dtype=dtype, attrs=attrs, **more)

    def _of_inference(
        self, origin: Any, type_: Any, name: str, args: tuple[int, ...], attrs: Attributes
    ) -> Structure | None:
        """Translate an operator that has more results in training; None for other operators."""
        if name == "nn.dropout":  # nothing at inference, where nobody reads the mask
            return (args[0], args[0])
        if not isinstance(attrs, BatchNorm) or attrs.training:
            return None
        made = self._typed(name, args, type_.fields[0], attrs, origin=origin)
        return (self._builder.add(made), args[3], args[4])

    def _parts(self, index: int, type_: Any) -> Structure:
        """A value, or a tuple of the parts that it holds."""
        if not isinstance(type_, self._tuple_type):
            return index
        parts = []
        for position, field in enumerate(type_.fields):
            part = self._typed(PART, (index,), field, Indexed(position))
            parts.append(self._parts(self._builder.add(part), field))
        return tuple(parts)
