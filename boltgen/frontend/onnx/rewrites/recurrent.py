"""Bring LSTM, GRU and RNN to one form, or unroll them: one matmul for the inputs of all steps, then
one step each for the part that depends on the state.

The converter to Relax takes the forms that kernels know as one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from boltgen.frontend.onnx.rewrites.registry import Builder, UnsupportedError, rewrites
from boltgen.ir.recurrence import Cell

# More steps than this make more operators than TVM compiles in minutes.
MOST_STEPS = 1024

DEFAULT = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
# The attributes of each activation, with its defaults.
# Source: ONNX's Operators.md, LSTM; Affine, LeakyRelu, ... are in the list of equations.
PARAMETERS: dict[str, dict[str, float]] = {
    **{name: {} for name in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")},
    "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Elu": {"alpha": 1.0},
}
_Activation: TypeAlias = Callable[[str], str]
# A step's new state and, for an LSTM, its cell's new state.
_State: TypeAlias = "tuple[str, str | None]"


_NODES = ("LSTM", "GRU", "RNN")
_UNROLLED = "it is unrolled into products over its known time steps"


def cell_of(node: str, activations: Sequence[str], *, resets_late: bool) -> Cell:
    """The cell of a node of one of the forms that stay one operator."""
    if node == "LSTM":
        return Cell.LSTM
    if node == "GRU":
        return Cell.GRU if resets_late else Cell.GRU_RESET_FIRST
    is_relu = bool(activations) and activations[0].lower() == "relu"
    return Cell.RNN_RELU if is_relu else Cell.RNN_TANH


def _has_other_activations(build: Builder) -> bool:
    names = [name.lower() for name in build.get("activations", ())]
    default = [name.lower() for name in DEFAULT[build.node.op_type]]
    known = [default, ["relu"]] if build.node.op_type == "RNN" else [default]
    return bool(names) and names not in [each * (len(names) // len(each)) for each in known]


# Forms without a kernel, and why.
_OTHER_FORMS: Mapping[str, Callable[[Builder], bool]] = {
    "no kernel has its peepholes": lambda build: bool(build.operand(7)),
    "no kernel clips sums": lambda build: build.get("clip") is not None,
    "no kernel couples its gates": lambda build: bool(build.get("input_forget", 0)),
    "no kernel has its activations": _has_other_activations,
}


@rewrites(*_NODES, why="its batch was brought behind its steps", only="relax")
def in_one_form(build: Builder) -> list[str] | None:
    """Bring a layer to the form that the converter takes: steps first, and no unread results."""
    if any(is_other(build) for is_other in _OTHER_FORMS.values()):
        return None
    if any(build.scope.shape(build.operand(place)) is None for place in (1, 2)):
        raise UnsupportedError(
            "the sizes of its weights are not known", "make its weights constants of the model"
        )
    node, axis = build.node, build.get("layout", 0)
    read = [name if name in build.scope.read else "" for name in node.output]
    while len(read) > 1 and not read[-1]:
        read.pop()
    if not axis and read == list(node.output):
        return None
    operands = [build.operand(place) for place in range(7)]
    for place in (0, 5, 6) if axis else ():
        if operands[place]:
            operands[place] = build.Transpose(operands[place], perm=[1, 0, 2])
    attributes = {each.name: build.get(each.name) for each in node.attribute} | {"layout": None}
    named = [build.scope.fresh(f"{node.output[0]}_{i}") for i in range(len(read))]
    results = build.many(node.op_type, operands, named, **attributes)
    if axis:
        orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        pairs = zip(results, orders, strict=False)
        return [build.Transpose(name, perm=order) for name, order in pairs]
    return results


def _unrolled_form(is_other: Callable[[Builder], bool], build: Builder) -> list[str] | None:
    if not is_other(build):
        return None
    made = unrolled(build)
    if made is None:
        raise UnsupportedError(
            "its activations or its types are none that can be unrolled",
            "export the model with activations of ONNX, in float32",
        )
    return made


def unrolled(build: Builder) -> list[str] | None:
    """Unroll a recurrent layer whose number of time steps and of hidden units is known."""
    axis = build.get("layout", 0)  # the directions' axis in states; 1 if the batch comes first
    extents, weights = build.extents(), build.shape(2)
    if len(extents) != 3 or len(weights) != 3:
        return None
    steps = extents[axis]
    if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
        raise UnsupportedError(
            f"it has {steps} time steps",
            f"give its time dimension a length of at most {MOST_STEPS} with --shape",
        )
    activations = _activations(build, weights[0])
    if activations is None or build.dtype() != np.float32:
        return None
    x = build.Transpose(build.x, perm=[1, 0, 2]) if axis else build.x
    made = [_Direction(build, place, activations).run(x, steps) for place in range(weights[0])]
    y = ""
    if build.node.output[0]:
        y = _stacked(build, [_stacked(build, states, 0) for states, _, _ in made], 1)
        y = build.Transpose(y, perm=[2, 0, 1, 3]) if axis else y
    cells = [cell for _, _, cell in made if cell]
    last_cell = _stacked(build, cells, axis) if cells else ""
    return [y, _stacked(build, [last for _, last, _ in made], axis), last_cell]


rewrites(*_NODES, why=_UNROLLED, only="relay")(unrolled)
for _why, _is_other in _OTHER_FORMS.items():
    rewrites(*_NODES, why=f"{_why}: {_UNROLLED}", only="relax")(partial(_unrolled_form, _is_other))


def _stacked(build: Builder, values: Sequence[str], axis: int) -> str:
    """Values one after another along a new axis."""
    wide = [build.Unsqueeze(value, [axis]) for value in values]
    return build.Concat(*wide, axis=axis) if len(wide) > 1 else wide[0]


def _activations(build: Builder, directions: int) -> list[_Activation] | None:
    """Return the activations of all directions, or None if one is unknown."""
    default = DEFAULT[build.node.op_type] * directions
    names = build.get("activations") or default
    known = {name.lower(): name for name in PARAMETERS}
    if len(names) != len(default) or not known.keys() >= {name.lower() for name in names}:
        return None
    rows = {key: list(build.get(f"activation_{key}", [])) for key in ("alpha", "beta")}

    def activation(name: str) -> _Activation:
        own = PARAMETERS[name].items()
        given = {key: rows[key].pop(0) if rows[key] else value for key, value in own}
        return lambda x: build.many(name, [x], 1, **given)[0]

    return [activation(known[name.lower()]) for name in names]


class _Direction:
    """One direction of one layer, ready to be unrolled; attributes are names of values.

    Weights are (inputs, gates x hidden), gates in ONNX's order; `state_bias` has what GRU adds
    to the product of its state before the reset gate.
    """

    def __init__(self, build: Builder, place: int, activations: Sequence[_Activation]) -> None:
        self._build, self._place = build, place
        _, width, self._hidden = build.shape(2)
        count = len(DEFAULT[build.node.op_type])
        self._activations = activations[place * count : (place + 1) * count]
        self._resets_late = bool(build.get("linear_before_reset", 0))
        self._weight = self._transposed(2)
        self._bias, self._state_bias = "", ""
        if both := self._part(3):
            self._bias, states = build.split(both, [width, width])
            if build.node.op_type == "GRU" and self._resets_late:
                gates, self._state_bias = build.split(states, [width // 3 * 2, width // 3])
                states = build.Concat(gates, np.zeros(width // 3, np.float32), axis=-1)
            self._bias = build.Add(self._bias, states)
        peepholes = self._part(7)
        self._peepholes = build.split(peepholes, [self._hidden] * 3) if peepholes else [""] * 3

    def _part(self, operand: int, axis: int = 0) -> str:
        """This direction of a parameter or a state, or "" where it is left out."""
        name = self._build.operand(operand)
        return self._build.Gather(name, self._place, axis=axis) if name else ""

    def _transposed(self, operand: int) -> str:
        name, build = self._build.operand(operand), self._build
        if self._build.shape(operand)[0] > 1:
            name = build.Slice(name, [self._place], [self._place + 1], [0])
        return build.Transpose(build.Squeeze(name, [0]), perm=[1, 0])

    def run(self, x: str, steps: int) -> tuple[list[str], str, str | None]:
        """The states of all steps, in order of time, and the last ones; (batch, hidden)."""
        build = self._build
        projected = self._sum(build.MatMul(x, self._transposed(1)), self._bias)
        step = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[build.node.op_type]
        axis, lengths, known = build.get("layout", 0), build.operand(4), build.known(4)
        is_cut = bool(lengths) and (known is None or bool((known < steps).any()))
        lengths = build.Unsqueeze(lengths, [1]) if is_cut else ""
        h: str | None = self._part(5, axis) or None
        c: str | None = self._part(6, axis) or None
        zero, states = np.float32(0), [""] * steps
        backwards = self._place == 1 or build.get("direction", "forward") == "reverse"
        for place in range(steps)[::-1] if backwards else range(steps):
            new, cell = step(build.Gather(projected, place, axis=0), h, c)
            states[place] = new
            if lengths:
                mask = build.Less(np.int32(place), lengths)
                states[place] = build.Where(mask, new, zero)
                new = build.Where(mask, new, h or zero)
                cell = build.Where(mask, cell, c or zero) if cell else None
            h, c = new, cell
        assert h is not None
        return states, h, c

    def _clipped(self, value: str) -> str:
        """A sum before its activation, within the limit that the node sets."""
        limit = self._build.get("clip")
        if limit is None:
            return value
        return self._build.Clip(value, np.float32(-limit), np.float32(limit))

    def _sum(self, value: str, *others: str | None) -> str:
        """Sum the operands that are present."""
        for other in others:
            value = self._build.Add(value, other) if other else value
        return value

    def _product(self, state: str | None, weight: str) -> str | None:
        return self._build.MatMul(state, weight) if state else None

    # Steps. A state that is None is zero.

    def _rnn(self, x: str, h: str | None, c: str | None) -> _State:
        del c
        return self._activations[0](
            self._clipped(self._sum(x, self._product(h, self._weight)))
        ), None

    def _gru(self, x: str, h: str | None, c: str | None) -> _State:
        del c
        b, cut = self._build, [2 * self._hidden, self._hidden]
        gate, last = self._activations
        x_gates, x_last = b.split(x, cut)
        weight, state_weight = b.split(self._weight, cut)
        inner: str | None
        if self._resets_late and h:
            gates, state = b.split(b.MatMul(h, self._weight), cut)
        else:
            gates, state = self._product(h, weight) or "", ""
        z, r = b.split(gate(self._clipped(self._sum(x_gates, gates))), [self._hidden] * 2)
        if self._resets_late:
            late = self._sum(state, self._state_bias) if state else self._state_bias
            inner = b.Mul(r, late) if late else None
        else:
            inner = b.MatMul(b.Mul(r, h), state_weight) if h else None
        new = last(self._clipped(self._sum(x_last, inner)))
        # (1 - z) * new + z * h
        kept = b.Sub(new, b.Mul(z, new))
        return (b.Add(kept, b.Mul(z, h)) if h else kept), None

    def _lstm(self, x: str, h: str | None, c: str | None) -> _State:
        b = self._build
        f_act, g_act, h_act = self._activations
        gates = self._sum(x, self._product(h, self._weight))
        i, o, f, g = b.split(gates, [self._hidden] * 4)
        p_i, p_o, p_f = self._peepholes

        def gate(value: str, peephole: str, state: str | None) -> str:
            seen = b.Mul(peephole, state) if peephole and state else None
            return f_act(self._clipped(self._sum(value, seen)))

        i = gate(i, p_i, c)
        couples = self._build.get("input_forget", 0)
        f = b.Sub(np.float32(1), i) if couples else gate(f, p_f, c)
        new = b.Mul(i, g_act(self._clipped(g)))
        new = b.Add(new, b.Mul(f, c)) if c else new
        return b.Mul(gate(o, p_o, new), h_act(new)), new
