"""NaN and infinities in small models: every operator that compares, and every place of a NaN.

A row is a form (an operator set of ONNX, or PyTorch), an operator and a place of NaN or infinities.
One model of a form has all of its operators. It runs as TVM computes it on the host and, with
`--compile`, compiled for sm_80 on the virtual GPU. Right is what NumPy computes of an operator of
ONNX, as its definition says, and what PyTorch computes of its own.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch
import tvm
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import boltgen
from benchmarks.record import write
from boltgen.frontend.relax.importer import import_model
from boltgen.tvm_build.relax_link import host_machine

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Array, Array], Sequence[Array]]
NAN, INF, SIDE = np.nan, np.inf, 8
OPSETS = (13, 17, 20)
# Numbers go through FP16 where a function follows.
RTOL, ATOL = 2e-3, 1e-3
_TARGET = "no result that is wrong"

CONSTANTS = {
    "quarter": np.float32(0.25),
    "low": np.float32(-1),
    "high": np.float32(2),
    "zero": np.float32(0),
    "lowest": np.float32(-INF),
    "axis": np.array([1]),
    "three": np.array([3]),
    "image": np.array([1, 1, SIDE, SIDE]),
    "flat": np.array([4, 16]),
}
# Tensors that several operators read.
_BEFORE = (
    "picture = Reshape(x, image) wide = Reshape(x, flat) same = Equal(x, x) "
    "is_nan = IsNaN(x) more = Greater(x, z)"
)


@dataclass(frozen=True, slots=True)
class Operator:
    """An expression of ONNX for operator sets from `since` to `until`, and NumPy's value of it."""

    text: str
    value: Callable[[Array, Array], Any]
    since: int = 13
    until: int = 99


def _pooled(x: Array, size: int, step: int, pad: int) -> Array:
    wide = np.pad(x, pad, constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size))
    return np.asarray(windows[::step, ::step].max((2, 3))[None, None])


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _rows(name: str, value: Callable[[Array], Array]) -> dict[str, Operator]:
    """A reduction of rows, whose axes are an attribute until operator set 17."""
    found = lambda x, _: value(x)  # noqa: E731
    return {
        f"{name} by attribute": Operator(f"{name}<axes=[1], keepdims=0>(x)", found, until=17),
        f"{name} by input": Operator(f"{name}<keepdims=0>(x, axis)", found, since=18),
    }


ONNX: Mapping[str, Operator] = {
    "Max": Operator("Max(x, z)", np.maximum),
    "Min": Operator("Min(x, z)", np.minimum),
    "Max of a number": Operator("Max(quarter, x)", lambda x, z: np.maximum(x, 0.25)),
    "Min of three": Operator("Min(x, z, quarter)", lambda x, z: np.minimum(np.minimum(x, z), 0.25)),
    **_rows("ReduceMax", lambda x: x.max(1)),
    **_rows("ReduceMin", lambda x: x.min(1)),
    "ReduceMax of columns": Operator(
        "ReduceMax<axes=[0], keepdims=1>(x)", lambda x, z: x.max(0)[None], until=17
    ),
    "ReduceMax of long rows": Operator(
        "ReduceMax<axes=[1]>(wide)", lambda x, z: x.reshape(4, 16).max(1)[:, None], until=17
    ),
    "Relu": Operator("Relu(x)", lambda x, z: np.maximum(x, 0)),
    "Sign": Operator("Sign(x)", lambda x, z: np.sign(x)),
    "Abs": Operator("Abs(x)", lambda x, z: np.abs(x)),
    "Clip": Operator("Clip(x, low, high)", lambda x, z: np.clip(x, -1, 2)),
    "Clip from below": Operator("Clip(x, low)", lambda x, z: np.maximum(x, -1)),
    "Clip from above": Operator("Clip(x, , high)", lambda x, z: np.minimum(x, 2)),
    "LeakyRelu": Operator("LeakyRelu<alpha=0.1>(x)", lambda x, z: np.where(x > 0, x, 0.1 * x)),
    "PRelu": Operator("PRelu(x, quarter)", lambda x, z: np.where(x > 0, x, 0.25 * x)),
    "HardSigmoid": Operator("HardSigmoid(x)", lambda x, z: np.clip(0.2 * x + 0.5, 0, 1)),
    "HardSwish": Operator("HardSwish(x)", lambda x, z: x * np.clip(x / 6 + 0.5, 0, 1), since=14),
    "Elu": Operator("Elu(x)", lambda x, z: np.where(x > 0, x, np.expm1(x))),
    "Celu": Operator("Celu(x)", lambda x, z: np.maximum(x, 0) + np.minimum(np.expm1(x), 0)),
    "Selu": Operator(
        "Selu(x)",
        lambda x, z: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    "Softplus": Operator("Softplus(x)", lambda x, z: np.logaddexp(x, 0)),
    "Sigmoid": Operator("Sigmoid(x)", lambda x, z: 1 / (1 + np.exp(-x))),
    "Tanh": Operator("Tanh(x)", lambda x, z: np.tanh(x)),
    "Exp": Operator("Exp(lesser)", lambda x, z: np.exp(np.minimum(x, 2))),
    "Log": Operator("Log(x)", lambda x, z: np.log(x)),
    "Sqrt": Operator("Sqrt(x)", lambda x, z: np.sqrt(x)),
    "Floor": Operator("Floor(x)", lambda x, z: np.floor(x)),
    "Round": Operator("Round(x)", lambda x, z: np.round(x)),
    "ThresholdedRelu": Operator("ThresholdedRelu(x)", lambda x, z: np.where(x > 1, x, 0)),
    "ArgMax": Operator("ArgMax<axis=1>(x)", lambda x, z: x.argmax(1)[:, None]),
    "ArgMin": Operator("ArgMin<axis=1>(x)", lambda x, z: x.argmin(1)[:, None]),
    "IsNaN": Operator("IsNaN(x)", lambda x, z: np.isnan(x)),
    "IsInf": Operator("IsInf(x)", lambda x, z: np.isinf(x)),
    "Equal": Operator("Equal(x, z)", lambda x, z: x == z),
    "Less": Operator("Less(x, z)", lambda x, z: x < z),
    "GreaterOrEqual": Operator("GreaterOrEqual(x, z)", lambda x, z: x >= z),
    "unlike itself": Operator("Not(same)", lambda x, z: np.isnan(x)),
    "Where NaN": Operator("Where(is_nan, quarter, x)", lambda x, z: np.where(np.isnan(x), 0.25, x)),
    "Where lowest": Operator("Where(more, x, lowest)", lambda x, z: np.where(x > z, x, -INF)),
    "Add lowest": Operator("Add(x, lowest)", lambda x, z: x - INF),
    "times zero": Operator("Mul(x, zero)", lambda x, z: x * 0),
    "zero over": Operator("Div(zero, x)", lambda x, z: np.divide(0, x)),
    "over zero": Operator("Div(x, zero)", lambda x, z: np.divide(x, 0)),
    "less itself": Operator("Sub(x, x)", lambda x, z: x - x),
    "over itself": Operator("Div(x, x)", lambda x, z: x / x),
    "TopK": Operator("TopK(x, three)", lambda x, z: np.sort(x, 1)[:, :-4:-1]),
    "MaxPool": Operator(
        "MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(picture)",
        lambda x, z: _pooled(x, 3, 1, 1),
    ),
    "MaxPool apart": Operator(
        "MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(picture)",
        lambda x, z: _pooled(x, 2, 2, 0),
    ),
    "GlobalMaxPool": Operator(
        "GlobalMaxPool(picture)", lambda x, z: x.max()[None, None, None, None]
    ),
    # The maximum in a softmax may be any number: exp(x - m) is NaN for NaN, and so are the sum of
    # its row and every quotient.
    "Softmax": Operator("Softmax(x)", lambda x, z: _softmax(x)),
    "LogSoftmax": Operator("LogSoftmax(x)", lambda x, z: np.log(_softmax(x))),
    "ReduceMean": Operator("ReduceMean<axes=[1]>(x)", lambda x, z: x.mean(1)[:, None], until=17),
}

TORCH: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 1.0, 0.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "silu": F.silu,
    "sign": torch.sign,
    "clamp": lambda x: torch.clamp(x, 0, 1),
    "clamp to infinity": lambda x: torch.clamp(x, -1, INF),
    "clamp to a tensor": lambda x: torch.clamp(x, min=torch.zeros(SIDE)),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "minimum": lambda x: torch.minimum(x, x.flip(0)),
    "amax": lambda x: torch.amax(x, -1),
    "amin": lambda x: torch.amin(x, 0),
    "max of rows": lambda x: torch.max(x, -1).values,
    "place of max": lambda x: torch.max(x, -1).indices,
    "place of min": lambda x: torch.min(x, -1).indices,
    "argmax": lambda x: torch.argmax(x, -1),
    "argmin": lambda x: torch.argmin(x, -1),
    "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=-1)),
    "sort": lambda x: torch.sort(x, -1).values,
    "sort downwards": lambda x: torch.sort(x, -1, descending=True).values,
    "topk": lambda x: torch.topk(x, 3).values,
    "topk of the least": lambda x: torch.topk(x, 3, largest=False).values,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "unlike itself": lambda x: x != x,  # noqa: PLR0124
    "like itself": lambda x: x == x,  # noqa: PLR0124
    "nan_to_num": torch.nan_to_num,
    "nan_to_num by numbers": lambda x: torch.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-2.0),
    "masked_fill": lambda x: x.masked_fill(torch.isnan(x), -INF),
    "where": lambda x: torch.where(x > 0, x, torch.full_like(x, -INF)),
    "times zero": lambda x: x * 0.0,
    "zero over": lambda x: 0.0 / x,
    "over zero": lambda x: x / 0.0,
    "less itself": lambda x: x - x,
    "full": lambda x: torch.full((2, SIDE), -INF) + x[:2],
    "max_pool1d": lambda x: F.max_pool1d(x[None], 2),
    "max_pool2d": lambda x: F.max_pool2d(x[None, None], 3, 1, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None, None], (2, 2)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (SIDE,)),
    "cumsum": lambda x: x.cumsum(-1),
    "any": lambda x: torch.any(x, -1),
    "scatter_reduce": lambda x: torch.zeros(SIDE, SIDE).scatter_reduce(
        1, torch.zeros(SIDE, SIDE, dtype=torch.long), x, "amax"
    ),
}


def places() -> Mapping[str, Array]:
    """Inputs by where their NaN and infinities are."""
    plain = np.random.default_rng(0).uniform(-4, 4, (SIDE, SIDE)).astype(np.float32)

    def with_(*changes: tuple[Any, float]) -> Array:
        made: Array = plain.copy()
        for place, number in changes:
            made[place] = number
        return made

    return {
        "none": plain,
        "NaN first": with_(((slice(None), 0), NAN)),
        "NaN last": with_(((slice(None), -1), NAN)),
        "a NaN": with_(((3, 5), NAN)),
        "inf": with_(((2, 2), INF), ((5, 7), INF)),
        "-inf": with_(((2, 2), -INF), ((5, 7), -INF)),
        "rows": with_((0, -INF), (2, INF), (4, NAN)),
        "all": with_(((0, 0), NAN), ((0, 1), INF), ((0, 2), -INF), ((6, 3), INF), ((6, 4), NAN)),
    }


def other(x: Array) -> Array:
    """A second operand, whose NaN and infinities are elsewhere."""
    return np.ascontiguousarray(np.roll(x, 3, 0)[:, ::-1])


class Torch(nn.Module):
    """Functions of PyTorch as one model; other forms of a function take the second operand."""

    def __init__(self, functions: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        """Their results."""
        return (*(function(x) for function in self.functions.values()), z * 1.0)


def onnx_model(operators: Mapping[str, Operator], opset: int) -> onnx.ModelProto:
    """All expressions as one model."""
    names = [f"y{place}" for place in range(len(operators))]
    body = " ".join(
        f"{'values, places' if each.text.startswith('TopK') else name} = {each.text}"
        + (f" {name} = Identity(values)" if each.text.startswith("TopK") else "")
        for name, each in zip(names, operators.values(), strict=True)
    )
    ends = ", ".join(f"float[] {name}" for name in names)
    given = f"float[{SIDE}, {SIDE}]"
    graph = onnx.parser.parse_graph(
        f"special ({given} x, {given} z) => ({ends}) {{{_BEFORE} lesser = Min(x, high) {body}}}"
    )
    for end in graph.output:
        end.type.Clear()
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()
    )
    version = onnx.helper.make_opsetid("", opset)
    made = onnx.helper.make_model(graph, opset_imports=[version], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@dataclass(frozen=True, slots=True)
class Form:
    """The names of operators, one model of all for `boltgen.compile`, and what is right."""

    names: Sequence[str]
    source: tuple[Any, Any]
    right: Run


def form_of_onnx(operators: Mapping[str, Operator], opset: int) -> Form:
    """Return the form with the operators that operator set `opset` has."""
    known = {name: each for name, each in operators.items() if each.since <= opset <= each.until}

    def right(x: Array, z: Array) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(each.value(x, z)) for each in known.values()]

    return Form(list(known), (onnx_model(known, opset), None), right)


def form_of_torch(functions: Mapping[str, Callable[[Tensor], Tensor]]) -> Form:
    """All of them."""
    module, given = Torch(functions).eval(), (torch.zeros(SIDE, SIDE), torch.zeros(SIDE, SIDE))

    def right(x: Array, z: Array) -> Sequence[Array]:
        return [each.numpy() for each in module(torch.from_numpy(x), torch.from_numpy(z))][:-1]

    return Form(list(functions), (module, given), right)


def on_host(model: Any, given: Any) -> Run:
    """The model as TVM computes it on the host."""
    source = torch.export.export(model, given) if given else model
    machine = host_machine(import_model(source).module)

    def run(x: Array, z: Array) -> Sequence[Array]:
        return [each.numpy() for each in machine["main"](*map(tvm.runtime.tensor, (x, z)))]

    return run


def on_vgpu(model: Any, given: Any) -> Run:
    """The model compiled for sm_80."""
    artifact = boltgen.compile(model, given, arch="sm_80", check="none")
    return lambda x, z: list(artifact.run({"x": x, "z": z}, device="vgpu").values())


def is_right(actual: Array, wanted: Array) -> bool:
    """Whether shapes agree, and numbers but for roundings; NaN is NaN."""
    if actual.shape != wanted.shape:
        return False
    have, want = (each.astype(np.float64) for each in (actual, wanted))
    return bool(np.allclose(have, want, RTOL, ATOL, equal_nan=True))


def main() -> None:
    """Run what the arguments name, and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="on the virtual GPU too")
    devices = {"host": on_host}
    if parser.parse_args().compile:
        devices["virtual GPU"] = on_vgpu
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    forms = {f"ONNX {opset}": form_of_onnx(ONNX, opset) for opset in OPSETS}
    for title, form in {**forms, "PyTorch": form_of_torch(TORCH)}.items():
        for device, made in devices.items():
            run, count = made(*form.source), counts.setdefault(f"{title}, {device}", Counter())
            for place, x in places().items():
                z = other(x)
                # The last result of PyTorch's model is no operator's.
                for name, have, want in zip(form.names, run(x, z), form.right(x, z), strict=False):
                    says = is_right(np.asarray(have), want)
                    count["right" if says else "wrong"] += 1
                    if not says:
                        wrong.append(f"{title}, {device}: {name}, {place}")
    figures = {
        "rows": sum(each.total() for each in counts.values()),
        "by form": {form: dict(each) for form, each in counts.items()},
        "wrong": wrong,
    }
    write("nan_models", figures, _TARGET)


if __name__ == "__main__":
    main()
