"""Bring recurrent layers through TVM as calls of one function, and read these calls.

TVM 0.27 has no recurrent layer: its ONNX converter lacks LSTM, GRU and RNN. `CONVERTERS` makes of
each the product of all steps' inputs, and a call of a function whose name says how the steps go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from boltgen.frontend.onnx import cell_of
from boltgen.graph.graph import RECURRENT, GraphBuilder
from boltgen.ir.recurrence import Cell

_op = relax.op
_PREFIX = "boltgen.recurrent"
_ROLES = ("bias", "states", "lengths")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a layer: the attributes of `RECURRENT`, and its further inputs' names."""

    cell: Cell
    backwards: bool
    keeps_last: bool
    roles: tuple[str, ...]

    @property
    def callee(self) -> str:
        """The function's name, which has all of it."""
        flags = [name for name in ("backwards", "keeps_last") if getattr(self, name)]
        return ":".join((_PREFIX, self.cell.value, *flags, *self.roles))

    @classmethod
    def named(cls, callee: str) -> Steps | None:
        """The steps that a function's name says, or None if it is another function."""
        prefix, *words = callee.split(":")
        if prefix != _PREFIX:
            return None
        return cls(
            cell=Cell(words[0]),
            backwards="backwards" in words,
            keeps_last="keeps_last" in words,
            roles=tuple(role for role in _ROLES if role in words),
        )


def recurrent_steps(builder: GraphBuilder, call: ir.Call, args: Sequence[int]) -> int | None:
    """Return the result of a call of `CONVERTERS`, or None if it calls another function."""
    if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_dps_packed":
        return None
    steps = Steps.named(str(getattr(call.args[0], "global_symbol", "")))
    if steps is None or not all(builder[each].is_static for each in args):
        return None
    rows, batch, _ = builder.shape(args[0])
    directions, _, hidden = builder.shape(args[1])
    last = steps.cell.states if steps.keeps_last else 0
    return builder.operator(
        RECURRENT,
        args,
        (rows + last, batch, directions * hidden),
        builder.dtype(args[0]),
        cell=steps.cell.value,
        backwards=steps.backwards,
        keeps_last=steps.keeps_last,
        roles=steps.roles,
    )


@dataclass(frozen=True, slots=True)
class _Converter:
    """A converter of LSTM, GRU or RNN, as TVM's table has them by operator.

    `frontend.onnx.rewrites.recurrent` says which forms come here.
    """

    node: str

    def get_converter(self, opset: int) -> Callable[..., ir.Expr]:
        """The function that converts a node; the forms are the same in all operator sets."""
        del opset
        return self._convert

    def _convert(
        self, bb: relax.BlockBuilder, inputs: Any, attr: Mapping[str, Any], params: object
    ) -> ir.Expr:
        del params
        return convert_layer(bb, self.node, inputs, attr)


CONVERTERS = {node: _Converter(node) for node in ("LSTM", "GRU", "RNN")}


def convert_layer(
    bb: relax.BlockBuilder, node: str, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> ir.Expr:
    """Emit the steps of a layer that has ONNX's operands and attributes, None for absent ones.

    The result is Y, or a tuple with Y_h and Y_c as far as `num_outputs` wants them.
    """
    return _Conversion(bb, node, inputs, attributes).run()


class _Conversion:
    """One layer, from ONNX's operands to Y, Y_h and, of an LSTM, Y_c.

    Source: ONNX's Operators.md. x is (steps, batch, inputs), W (directions, gates * hidden,
    inputs), and states are (directions, batch, hidden).
    """

    def __init__(
        self, bb: relax.BlockBuilder, node: str, inputs: Any, attr: Mapping[str, Any]
    ) -> None:
        self._emit = bb.emit
        self._inputs = [inputs[place] for place in range(7)]
        self._outputs = int(attr["tvm_custom"]["num_outputs"])
        self._backwards = _text(attr.get("direction", "forward")) == "reverse"
        names = [_text(each) for each in attr.get("activations", ())]
        late = bool(attr.get("linear_before_reset", 0))
        self._cell = cell_of(node, names, resets_late=late)
        x, w = self._inputs[:2]
        self._dtype = str(x.ty.dtype)
        self._directions, self._width, _ = (int(each) for each in w.ty.shape.values)
        self._hidden = self._width // self._cell.gates
        self._steps, self._batch, _ = x.ty.shape.values

    def run(self) -> ir.Expr:
        """Return the outputs that the node has."""
        a, further = self._projected()
        if (states := self._states()) is not None:
            further["states"] = states
        if (lengths := self._lengths()) is not None:
            further["lengths"] = lengths
        made = Steps(
            cell=self._cell,
            backwards=self._backwards,
            keeps_last=self._outputs > 2 or (self._outputs > 1 and lengths is not None),
            roles=tuple(further),
        )
        last = self._cell.states if made.keeps_last else 0
        columns = self._directions * self._hidden
        out_ty = relax.TensorType((self._steps + last, self._batch, columns), self._dtype)
        operands = ir.Tuple([a, self._inputs[2], *further.values()])
        callee = relax.ExternFunc(made.callee)
        whole = self._emit(relax.call_dps_packed(callee, operands, out_ty=out_ty))
        y = self._cut(whole, 0, self._steps) if last else whole
        y = self._emit(_op.reshape(y, (self._steps, self._batch, self._directions, self._hidden)))
        results = [self._emit(_op.permute_dims(y, (0, 2, 1, 3)))]
        if last:
            results += [self._last(whole, place) for place in range(last)]
        elif self._outputs > 1:
            results.append(self._ends(y))
        results = results[: self._outputs]
        return ir.Tuple(results) if len(results) > 1 else results[0]

    def _projected(self) -> tuple[ir.Expr, dict[str, ir.Expr]]:
        """The product of the inputs and W, with all biases but the one of a late reset gate."""
        x, w, _, b = self._inputs[:4]
        rows = self._directions * self._width
        right = self._emit(_op.reshape(w, (rows, int(w.ty.shape.values[2]))))
        a = self._emit(_op.matmul(x, self._emit(_op.permute_dims(right, (1, 0)))))
        if b is None:
            return a, {}
        of_x, of_h = (self._cut(b, i * self._width, (i + 1) * self._width, 1) for i in range(2))
        further = {}
        if self._cell is Cell.GRU:
            before = self._cut(of_h, 0, 2 * self._hidden, 1)
            further["bias"] = self._cut(of_h, 2 * self._hidden, self._width, 1)
            of_h = self._emit(_op.concat([before, self._zeros(self._directions, self._hidden)], 1))
        bias = self._emit(_op.reshape(self._emit(_op.add(of_x, of_h)), (rows,)))
        return self._emit(_op.add(a, bias)), further

    def _states(self) -> ir.Expr | None:
        given = self._inputs[5 : 5 + self._cell.states]
        if all(each is None or _is_filled(each, 0) for each in given):
            return None
        shape = (1, self._batch, self._directions * self._hidden)
        parts = []
        for each in given:
            if each is None:
                parts.append(self._emit(_op.zeros(shape, self._dtype)))
                continue
            if self._directions > 1:
                by_rows = self._emit(_op.permute_dims(each, (1, 0, 2)))
            else:
                by_rows = each
            parts.append(self._emit(_op.reshape(by_rows, shape)))
        return self._emit(_op.concat(parts, 0)) if len(parts) > 1 else parts[0]

    def _lengths(self) -> ir.Expr | None:
        given = self._inputs[4]
        is_known = isinstance(self._steps, tirx.IntImm)
        if given is None or (is_known and _is_filled(given, int(self._steps))):
            return None
        return self._emit(_op.astype(given, "int32"))

    def _last(self, whole: ir.Expr, place: int) -> ir.Expr:
        """A last state, (directions, batch, hidden)."""
        own = self._cut(whole, self._steps + place, self._steps + place + 1)
        apart = _op.reshape(own, (self._batch, self._directions, self._hidden))
        return self._emit(_op.permute_dims(self._emit(apart), (1, 0, 2)))

    def _ends(self, y: ir.Expr) -> ir.Expr:
        """The last hidden state of each direction, without lengths: its last step."""
        ends = []
        for place in range(self._directions):
            is_backwards = self._backwards or place == 1
            step = 0 if is_backwards else self._steps - 1
            own = self._cut(self._cut(y, step, step + 1), place, place + 1, 2)
            ends.append(self._emit(_op.reshape(own, (1, self._batch, self._hidden))))
        return self._emit(_op.concat(ends, 0)) if len(ends) > 1 else ends[0]

    def _cut(self, x: ir.Expr, begin: Any, end: Any, axis: int = 0) -> ir.Expr:
        return self._emit(_op.strided_slice(x, [axis], [begin], [end], assume_inbound=True))

    def _zeros(self, *shape: int) -> ir.Expr:
        return relax.const(np.zeros(shape, self._dtype))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _is_filled(expr: object, number: int) -> bool:
    """Whether a constant has this number alone."""
    return isinstance(expr, ir.GenericConst) and bool((expr.value.numpy() == number).all())
