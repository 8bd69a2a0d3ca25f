"""Write the neutral graph in an IR: the part that both IRs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from boltgen.graph.attributes import Attributes, Clip
from boltgen.graph.graph import Expr, Structure

# Writes an operator that a pass has made, on operands of the IR.
Writer: TypeAlias = Callable[[Expr, Sequence[Any]], Any]


def joined(structure: Structure, values: Sequence[Any], tuple_: Callable[[list[Any]], Any]) -> Any:
    """Return the values of a structure, with tuples joined by the IR's `tuple_`."""
    if isinstance(structure, int):
        return values[structure]
    return tuple_([joined(part, values, tuple_) for part in structure])


_PLAIN = (
    *("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "image.resize2d", "take"),
    *("mean", "sum", "variance", "std", "max", "min", "nn.softmax", "nn.log_softmax"),
)


def shared_writers(op: Any) -> Mapping[str, Writer]:
    """Return writers for the operators that the IR's functions `op` take in the same way."""

    def plainly(expr: Expr, args: Sequence[Any]) -> Any:
        """Pass attributes on by their names; layout and dtype of the result follow from others."""
        function = op
        for part in expr.op.split("."):
            function = getattr(function, part)
        given = expr.attrs.named()
        return function(
            *args, **{name: given[name] for name in given.keys() - {"out_layout", "out_dtype"}}
        )

    return {
        "reshape": lambda expr, args: op.reshape(*args, expr.shape),
        "broadcast_to": lambda expr, args: op.broadcast_to(*args, expr.shape),
        "clip": lambda expr, args: op.clip(*args, *expr.attrs.of(Clip).named().values()),
        **dict.fromkeys(_PLAIN, plainly),
    }


def elementwise_name(expr: Expr) -> str:
    """Return the name of an operator that has no attributes, and so no writer of its own."""
    assert type(expr.attrs) is Attributes, f"{expr.op} has no writer for its attributes"
    return expr.op
