"""Write the neutral graph in an IR: the part that both IRs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from boltgen.graph.graph import REASON, Expr, Structure

# Writes an operator that a pass has made, on operands of the IR.
Writer: TypeAlias = Callable[[Expr, Sequence[Any]], Any]


def joined(structure: Structure, values: Sequence[Any], tuple_: Callable[[list[Any]], Any]) -> Any:
    """Return the values of a structure, with tuples joined by the IR's `tuple_`."""
    if isinstance(structure, int):
        return values[structure]
    return tuple_([joined(part, values, tuple_) for part in structure])


def shared_writers(op: Any) -> Mapping[str, Writer]:
    """Return writers for the operators that the IR's functions `op` take in the same way."""

    def plainly(*left_out: str) -> Writer:
        """Pass attributes on by their names."""

        def write(expr: Expr, args: Sequence[Any]) -> Any:
            function = op
            for part in expr.op.split("."):
                function = getattr(function, part)
            return function(
                *args, **{k: v for k, v in expr.attrs.items() if k not in (REASON, *left_out)}
            )

        return write

    return {
        "reshape": lambda expr, args: op.reshape(*args, expr.shape),
        "clip": lambda expr, args: op.clip(*args, expr.attrs["low"], expr.attrs["high"]),
        **dict.fromkeys(
            ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"), plainly("out_layout")
        ),
        **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), plainly()),
        **dict.fromkeys(("nn.softmax", "nn.log_softmax"), plainly()),
        "image.resize2d": plainly("out_dtype"),
        "take": plainly(),
    }
