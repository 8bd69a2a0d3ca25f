"""Convert LSTM, GRU and RNN of torch.export programs, layer by layer, to calls of steps.

PyTorch would unroll them. Forms without a kernel are left to PyTorch: projections, and dropout
between layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tvm import ir, relax

from boltgen.frontend.relax.recurrent import convert_layer

_op = relax.op
# By operator: ONNX's name, and the places of ONNX's gates among PyTorch's.
# Source: torch.nn.LSTM (i, f, g, o), torch.nn.GRU (r, z, n).
_LAYERS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "lstm.input": ("LSTM", (0, 3, 1, 2)),
    "gru.input": ("GRU", (1, 0, 2)),
    "rnn_tanh.input": ("RNN", (0,)),
    "rnn_relu.input": ("RNN", (0,)),
}


def kept_operators(program: Any) -> Iterator[Any]:
    """Yield the recurrent operators of a program, if all their nodes have forms with kernels."""
    found: dict[Any, bool] = {}
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op == "call_function" and _name(node.target) in _LAYERS:
                found[node.target] = found.get(node.target, True) and _has_steps(node)
    yield from (target for target, has_steps in found.items() if has_steps)


def _name(target: Any) -> str:
    return str(target).removeprefix("aten.")


def _has_steps(node: Any) -> bool:
    x, _, parameters, has_biases, layers, dropout, train, both, _ = node.args
    of_each = 4 if has_biases else 2
    is_plain = len(parameters) == of_each * layers * (1 + both)  # projections are further ones
    return is_plain and not (train and dropout) and x.meta["val"].dim() == 3


def _is_zero(node: Any) -> bool:
    """Whether a first state is zeros, as PyTorch's modules make it."""
    name = _name(getattr(node, "target", ""))
    return name == "zeros.default" or (name == "full.default" and not node.args[1])


def _converted(kind: str, node: Any, importer: Any) -> relax.Expr:
    """The results of all layers: the last layer's hidden states, and the last states of each."""
    x, states, parameters, has_biases, layers, _, _, both, batch_first = importer.retrieve_args(
        node
    )
    emit = importer.block_builder.emit
    operator, order = _LAYERS[kind]
    given = node.args[1] if operator == "LSTM" else [node.args[1]]
    states = list(states) if operator == "LSTM" else [states]
    states = [None if _is_zero(each) else state for each, state in zip(given, states, strict=True)]
    read = {user.args[1] for user in node.users if user.users}
    attributes = {
        "direction": "bidirectional" if both else "forward",
        "linear_before_reset": 1,
        "activations": ("Relu",) * (1 + both) if kind == "rnn_relu.input" else (),
        "tvm_custom": {"num_outputs": max(read, default=0) + 1},
    }
    x = emit(_op.permute_dims(x, (1, 0, 2))) if batch_first else x
    of_each, lasts = (4 if has_biases else 2) * (1 + both), list[list[relax.Expr]]()
    for layer in range(layers):
        own = parameters[layer * of_each : (layer + 1) * of_each]
        first = [_part(emit, state, layer, 1 + both) for state in states]
        inputs = _operands(emit, x, own, order, both=both)
        results = convert_layer(
            importer.block_builder, operator, [*inputs, None, *first, None, None], attributes
        )
        y, *last = results.fields if isinstance(results, ir.Tuple) else (results,)
        lasts.append(list(last))
        steps, directions, batch, hidden = y.ty.shape.values
        y = emit(_op.permute_dims(y, (0, 2, 1, 3)))
        x = emit(_op.reshape(y, (steps, batch, directions * hidden)))
    y = emit(_op.permute_dims(x, (1, 0, 2))) if batch_first else x
    joined = [
        emit(_op.concat(list(each), 0)) if layers > 1 else each[0]
        for each in zip(*lasts, strict=True)
    ]
    # A result that nothing reads is as good as another.
    count = 3 if operator == "LSTM" else 2
    return ir.Tuple([y, *joined, *[y] * (count - 1 - len(joined))])


def _part(emit: Callable[..., Any], state: Any, layer: int, directions: int) -> Any:
    """A layer's first states, (directions, batch, hidden)."""
    if state is None:
        return None
    begin = layer * directions
    return emit(_op.strided_slice(state, [0], [begin], [begin + directions], assume_inbound=True))


def _operands(
    emit: Callable[..., Any], x: Any, own: Sequence[Any], order: Sequence[int], *, both: bool
) -> list[Any]:
    """X, W, R and B of ONNX's operator, of parameters of one direction after the other."""
    of_direction = len(own) // (1 + both)

    def stacked(place: int) -> Any:
        parts = [_ordered(emit, each, order) for each in own[place::of_direction]]
        wide = [emit(_op.expand_dims(each, 0)) for each in parts]
        return emit(_op.concat(wide, 0)) if len(wide) > 1 else wide[0]

    bias = emit(_op.concat([stacked(2), stacked(3)], 1)) if of_direction > 2 else None
    return [x, stacked(0), stacked(1), bias]


def _ordered(emit: Callable[..., Any], parameter: Any, order: Sequence[int]) -> Any:
    """A parameter's gates in ONNX's order."""
    hidden = int(parameter.ty.shape.values[0]) // len(order)
    gates = [
        emit(_op.strided_slice(parameter, [0], [at * hidden], [(at + 1) * hidden])) for at in order
    ]
    return emit(_op.concat(gates, 0)) if len(gates) > 1 else gates[0]


CONVERTERS = {kind: partial(_converted, kind) for kind in _LAYERS}
