"""LSTM, GRU and RNN as products over time: one product for the inputs of all steps, then a step
each for what depends on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import UnsupportedError, rewrites
from boltgen.frontend.onnx.scope import Builder, attribute, operand, result

# More steps than this make more operators than TVM compiles in minutes.
MOST_STEPS = 1024

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
# The attributes of each activation, with its defaults.
# Source: ONNX's Operators.md, LSTM; Affine, LeakyRelu, ... are in the list of equations.
PARAMETERS: dict[str, dict[str, float]] = {
    "Sigmoid": {},
    "Tanh": {},
    "Relu": {},
    "Softsign": {},
    "Softplus": {},
    "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Elu": {"alpha": 1.0},
}
Activation = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """One direction of one layer, ready to be unrolled; names of values.

    Weights are (inputs, gates x hidden), gates in ONNX's order; `state_bias` has what GRU adds
    to the product of its state before the reset gate.
    """

    build: Builder
    hidden: int
    weight: str
    bias: str
    state_bias: str
    peepholes: Sequence[str]
    activations: Sequence[Activation]
    limit: float | None
    couples: bool
    resets_late: bool

    def clipped(self, value: str) -> str:
        """A sum before its activation, within the limit that the node sets."""
        if self.limit is None:
            return value
        bounds = [self.build.constant(bound, np.float32) for bound in (-self.limit, self.limit)]
        return self.build("Clip", [value, *bounds])

    def gates(self, value: str, count: int) -> list[str]:
        """A value's gates, cut along the last axis."""
        if count == 1:
            return [value]
        lengths = self.build.constant([self.hidden] * count)
        return self.build.many("Split", [value, lengths], [""] * count, axis=-1)

    def product(self, state: str | None, weight: str) -> str | None:
        """A state's product with its weight; a state that is None is zero."""
        return self.build("MatMul", [state, weight]) if state else None

    def sum(self, value: str, *others: str | None) -> str:
        """The sum of what is there."""
        for other in others:
            value = self.build("Add", [value, other]) if other else value
        return value


def _rnn(cell: _Cell, x: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    return cell.activations[0](cell.clipped(cell.sum(x, cell.product(h, cell.weight)))), None


def _gru(cell: _Cell, x: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    b, n = cell.build, cell.hidden
    gate, last = cell.activations
    x_gates, x_last = cell.build.many("Split", [x, b.constant([2 * n, n])], ["", ""], axis=-1)
    if cell.resets_late and h:
        gates, state = b.many(
            "Split", [b("MatMul", [h, cell.weight]), b.constant([2 * n, n])], ["", ""], axis=-1
        )
    else:
        weight, state_weight = b.many(
            "Split", [cell.weight, b.constant([2 * n, n])], ["", ""], axis=-1
        )
        gates, state = cell.product(h, weight) or "", ""
    z, r = cell.gates(gate(cell.clipped(cell.sum(x_gates, gates))), 2)
    if cell.resets_late:
        late = cell.sum(state, cell.state_bias) if state else cell.state_bias
        inner = b("Mul", [r, late]) if late else ""
    else:
        inner = b("MatMul", [b("Mul", [r, h]), state_weight]) if h else ""
    new = last(cell.clipped(cell.sum(x_last, inner)))
    # (1 - z) * new + z * h
    kept = b("Sub", [new, b("Mul", [z, new])])
    return (cell.sum(kept, b("Mul", [z, h])) if h else kept), None


def _lstm(cell: _Cell, x: str, h: str | None, c: str | None) -> tuple[str, str | None]:
    b = cell.build
    f_act, g_act, h_act = cell.activations
    i, o, f, g = cell.gates(cell.sum(x, cell.product(h, cell.weight)), 4)
    p_i, p_o, p_f = cell.peepholes or ("", "", "")

    def seen(value: str, weight: str, state: str | None) -> str:
        return cell.sum(value, b("Mul", [weight, state])) if weight and state else value

    i = f_act(cell.clipped(seen(i, p_i, c)))
    if cell.couples:
        f = b("Sub", [b.constant(1.0, np.float32), i])
    else:
        f = f_act(cell.clipped(seen(f, p_f, c)))
    new = b("Mul", [i, g_act(cell.clipped(g))])
    new = cell.sum(new, b("Mul", [f, c])) if c else new
    o = f_act(cell.clipped(seen(o, p_o, new)))
    return b("Mul", [o, h_act(new)]), new


_STEP = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


@rewrites("LSTM", "GRU", "RNN", why="it is unrolled into products over its known time steps")
def recurrent(node: Any, build: Builder) -> bool:
    """Unroll a recurrent layer whose number of time steps and of hidden units is known."""
    batch_first = bool(attribute(node, "layout", 0))
    extents = build.scope.extents(node.input[0])
    weights = build.scope.shape(node.input[2])
    if extents is None or weights is None or len(extents) != 3 or len(weights) != 3:
        return False
    steps = extents[1 if batch_first else 0]
    if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
        raise UnsupportedError(
            f"it has {steps} time steps",
            f"give its time dimension a length of at most {MOST_STEPS} with --shape",
        )
    activations = _activations(node, build, weights[0])
    if activations is None or build.scope.dtype(node.input[0]) != np.float32:
        return False
    x = build("Transpose", [node.input[0]], perm=[1, 0, 2]) if batch_first else node.input[0]
    made = [
        _direction(node, build, x=x, steps=steps, place=place, activations=activations[place])
        for place in range(weights[0])
    ]
    _results(node, build, made, batch_first=batch_first)
    return True


def _activations(node: Any, build: Builder, directions: int) -> list[list[Activation]] | None:
    """The activations of each direction, or None where one is not known."""
    default = DEFAULT[node.op_type] * directions
    names = attribute(node, "activations", default) or default
    rows = {key: list(attribute(node, f"activation_{key}", [])) for key in ("alpha", "beta")}
    if len(names) != len(default):
        return None
    found: list[Activation] = []
    known = {name.lower(): name for name in PARAMETERS}
    for given in names:
        name = known.get(given.lower())
        if name is None:
            return None
        parameters = dict(PARAMETERS[name])
        for key, default_value in parameters.items():
            parameters[key] = rows[key].pop(0) if rows[key] else default_value
        found.append(lambda x, n=name, p=parameters: build(n, [x], **p))  # type: ignore[misc]
    count = len(DEFAULT[node.op_type])
    return [found[place * count : (place + 1) * count] for place in range(directions)]


@dataclass(frozen=True, slots=True)
class _Made:
    """A direction's states of all steps, in order of time, and the last ones; (batch, hidden)."""

    states: list[str]
    last: str
    last_cell: str | None


def _direction(
    node: Any,
    build: Builder,
    *,
    x: str,
    steps: int,
    place: int,
    activations: Sequence[Activation],
) -> _Made:
    shape = build.scope.shape(node.input[2])
    assert shape is not None
    hidden, gates = shape[2], GATES[node.op_type]
    resets_late = bool(attribute(node, "linear_before_reset", 0))
    bias, state_bias = _biases(node, build, place, gates * hidden, late=resets_late)
    projected = build("MatMul", [x, _weight(build, node.input[1], place)])
    projected = build("Add", [projected, bias]) if bias else projected
    peepholes = _part(build, operand(node, 7), place)
    cell = _Cell(
        build=build,
        hidden=hidden,
        weight=_weight(build, node.input[2], place),
        bias=bias,
        state_bias=state_bias,
        peepholes=build.many("Split", [peepholes, build.constant([hidden] * 3)], [""] * 3, axis=-1)
        if peepholes
        else (),
        activations=activations,
        limit=attribute(node, "clip"),
        couples=bool(attribute(node, "input_forget", 0)),
        resets_late=resets_late,
    )
    direction = attribute(node, "direction", "forward")
    backwards = direction == "reverse" or place == 1
    order = range(steps)[::-1] if backwards else range(steps)
    return _unrolled(node, cell, projected, place, list(order))


def _unrolled(node: Any, cell: _Cell, projected: str, place: int, order: list[int]) -> _Made:
    build = cell.build
    axis = attribute(node, "layout", 0)  # of the directions; 1 where the batch comes first
    h: str | None = _part(build, operand(node, 5), place, axis) or None
    c: str | None = _part(build, operand(node, 6), place, axis) or None
    lengths = _lengths(node, build, len(order))
    states = [""] * len(order)
    for step in order:
        x = build("Gather", [projected, build.constant(step)], axis=0)
        new_h, new_c = _STEP[node.op_type](cell, x, h, c)
        states[step] = new_h
        if lengths:
            zero = build.constant(0.0, np.float32)
            mask = build("Less", [build.constant(step, np.int32), lengths])
            states[step] = build("Where", [mask, new_h, zero])
            new_h = build("Where", [mask, new_h, h or zero])
            new_c = build("Where", [mask, new_c, c or zero]) if new_c else None
        h, c = new_h, new_c
    assert h is not None
    return _Made(states, h, c)


def _lengths(node: Any, build: Builder, steps: int) -> str:
    """Sequence lengths as (batch, 1), or "" where every sequence has all steps."""
    name = operand(node, 4)
    known = build.scope.constant(name) if name else None
    if not name or (known is not None and (known >= steps).all()):
        return ""
    return build("Unsqueeze", [name, build.constant([1])])


def _part(build: Builder, name: str, place: int, axis: int = 0) -> str:
    """One direction of a parameter or a state, or "" where it is left out."""
    return build("Gather", [name, build.constant(place)], axis=axis) if name else ""


def _weight(build: Builder, name: str, place: int) -> str:
    shape = build.scope.shape(name)
    assert shape is not None
    ends = [build.constant([place]), build.constant([place + 1]), build.constant([0])]
    one = build("Slice", [name, *ends]) if shape[0] > 1 else name
    flat = build("Squeeze", [one, build.constant([0])])
    return build("Transpose", [flat], perm=[1, 0])


def _biases(node: Any, build: Builder, place: int, width: int, *, late: bool) -> tuple[str, str]:
    """What is added to the projected inputs, and to GRU's state before its reset; "" if nothing."""
    both = _part(build, operand(node, 3), place)
    if not both:
        return "", ""
    halves = build.constant([width, width])
    inputs, states = build.many("Split", [both, halves], ["", ""], axis=-1)
    if node.op_type != "GRU" or not late:
        return build("Add", [inputs, states]), ""
    cut = build.constant([width // 3 * 2, width // 3])
    gates, last = build.many("Split", [states, cut], ["", ""], axis=-1)
    nothing = build.constant(np.zeros(width // 3), np.float32)
    padded = build("Concat", [gates, nothing], axis=-1)
    return build("Add", [inputs, padded]), last


def _results(node: Any, build: Builder, made: list[_Made], *, batch_first: bool) -> None:
    """Y: (steps, directions, batch, hidden), and the last states: (directions, batch, hidden)."""
    axis = 1 if batch_first else 0
    if y := result(node, 0):
        rows = []
        for each in made:
            wide = [build("Unsqueeze", [state, build.constant([0])]) for state in each.states]
            joined = build("Concat", wide, axis=0) if len(wide) > 1 else wide[0]
            rows.append(build("Unsqueeze", [joined, build.constant([1])]))
        joined = build("Concat", rows, axis=1) if len(rows) > 1 else rows[0]
        if batch_first:
            build("Transpose", [joined], out=y, perm=[2, 0, 1, 3])
        else:
            build.rename(joined, y)
    for place, lasts in (
        (1, [each.last for each in made]),
        (2, [each.last_cell for each in made if each.last_cell]),
    ):
        if name := result(node, place):
            wide = [build("Unsqueeze", [last, build.constant([axis])]) for last in lasts]
            build("Concat", wide, out=name, axis=axis)
