"""Small ONNX models in which a small number matters: guards, bounds, weights and activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from benchmarks.cases.onnx_models import model, node

ROWS, WIDTH, COLUMNS = 8, 64, 32
Constants = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that make a value of others, and their constants."""

    nodes: Sequence[onnx.NodeProto]
    constants: Constants


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one input `x` and its result `y`; errors below `absolute` are right."""

    name: str
    model: onnx.ModelProto
    x: np.ndarray[Any, Any]
    absolute: float = 1e-40


def weight(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """A weight that keeps the size of what it multiplies."""
    fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
    noise = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(noise / fan_in**0.5, np.float32)


def rows(*, small: float) -> np.ndarray[Any, Any]:
    """Noise, with one row of zeros, one of equal numbers and one that is small."""
    x = np.random.default_rng(5).standard_normal((ROWS, WIDTH)).astype(np.float32)
    x[3], x[4] = 0.0, 0.5
    x[5] *= small
    return x


def f32(value: float, *shape: int) -> np.ndarray[Any, Any]:
    """FP32 constants of one value."""
    return np.full(shape, value, np.float32)


# r = what is guarded, of h.
REDUCTIONS = {
    "l2": [node("ReduceL2", ["h"], ["r"], axes=[1])],
    "sqrt-sum": [
        node("Mul", ["h", "h"], ["hh"]),
        node("ReduceSum", ["hh", "axis"], ["ss"]),
        node("Sqrt", ["ss"], ["r"]),
    ],
    "amax": [node("Abs", ["h"], ["ha"]), node("ReduceMax", ["ha"], ["r"], axes=[1])],
    "l1": [node("ReduceL1", ["h"], ["r"], axes=[1])],
    "mean-abs": [node("Abs", ["h"], ["ha"]), node("ReduceMean", ["ha"], ["r"], axes=[1])],
    "abs": [node("Abs", ["h"], ["r"])],
}


def guards(e: float) -> dict[str, Part]:
    """g = r, but at least e."""
    name = {"e": f32(e)}
    return {
        "clip": Part([node("Clip", ["r", "e"], ["g"])], name),
        "max": Part([node("Max", ["r", "e"], ["g"])], name),
        "max-matrix": Part([node("Max", ["e", "r"], ["g"])], {"e": f32(e, 1, 1)}),
        "max-column": Part([node("Max", ["r", "e"], ["g"])], {"e": f32(e, ROWS, 1)}),
        "add": Part([node("Add", ["r", "e"], ["g"])], name),
        "add-left": Part([node("Add", ["e", "r"], ["g"])], {"e": f32(e, 1)}),
        "subtract": Part([node("Sub", ["r", "e"], ["g"])], {"e": f32(-e)}),
        "where-less": Part(
            [node("Less", ["r", "e"], ["c"]), node("Where", ["c", "e", "r"], ["g"])], name
        ),
        "where-zero": Part(
            [node("Equal", ["r", "zero"], ["c"]), node("Where", ["c", "e", "r"], ["g"])],
            {"e": f32(e), "zero": f32(0)},
        ),
        "minimum": Part(
            [
                node("Neg", ["r"], ["n"]),
                node("Min", ["n", "e"], ["m"]),
                node("Neg", ["m"], ["g"]),
            ],
            {"e": f32(-e)},
        ),
        "expanded": Part(
            [
                node("Shape", ["r"], ["s"]),
                node("Expand", ["e", "s"], ["ee"]),
                node("Max", ["r", "ee"], ["g"]),
            ],
            name,
        ),
        "folded": Part(
            [node("Mul", ["e", "half"], ["ee"]), node("Max", ["r", "ee"], ["g"])],
            {"e": f32(e * 2), "half": f32(0.5)},
        ),
        "cast": Part(
            [
                node("Cast", ["e"], ["ee"], to=onnx.TensorProto.FLOAT),
                node("Max", ["r", "ee"], ["g"]),
            ],
            {"e": np.array(e, np.float64)},
        ),
    }


# y = h over g.
USES = {
    "div": [node("Div", ["h", "g"], ["y"])],
    "expand-div": [
        node("Shape", ["h"], ["hs"]),
        node("Expand", ["g", "hs"], ["gg"]),
        node("Div", ["h", "gg"], ["y"]),
    ],
    "reciprocal": [node("Reciprocal", ["g"], ["i"]), node("Mul", ["h", "i"], ["y"])],
    "one-over": [node("Div", ["one", "g"], ["i"]), node("Mul", ["i", "h"], ["y"])],
    "power": [node("Pow", ["g", "minus"], ["i"]), node("Mul", ["h", "i"], ["y"])],
    "reshape-div": [
        node("Reshape", ["g", "flat"], ["gf"]),
        node("Unsqueeze", ["gf", "last"], ["gu"]),
        node("Tile", ["gu", "times"], ["gg"]),
        node("Div", ["h", "gg"], ["y"]),
    ],
    "sqrt": [
        node("Mul", ["g", "g"], ["q"]),
        node("Sqrt", ["q"], ["gq"]),
        node("Div", ["h", "gq"], ["y"]),
    ],
    "log": [node("Log", ["g"], ["y"])],
    "out": [node("Identity", ["g"], ["y"])],
}
SHARED: Constants = {
    "one": f32(1),
    "minus": f32(-1),
    "axis": np.array([1]),
    "flat": np.array([-1]),
    "last": np.array([1]),
    "times": np.array([1, WIDTH]),
}


def made(
    nodes: Sequence[onnx.NodeProto], constants: Constants, shape: Sequence[int] = (ROWS, WIDTH)
) -> onnx.ModelProto:
    """A model of `nodes` with the constants that they read."""
    read = {name for each in nodes for name in each.input}
    return model(nodes, {"x": shape}, {k: v for k, v in constants.items() if k in read})


def division_cases() -> Iterator[Case]:
    """Norms of rows that may be zero."""
    square = weight(1, WIDTH, WIDTH)
    origins = {
        "input": [node("Identity", ["x"], ["h"])],
        "product": [node("MatMul", ["x", "w"], ["h"])],
        "relu": [node("MatMul", ["x", "w"], ["h0"]), node("Relu", ["h0"], ["h"])],
    }
    constants = (1e-5, 1e-7, 1e-8, 1e-10, 1e-12, 1e-20, 1e-30, 1e-38)
    count = 0
    for reduction, reduced in REDUCTIONS.items():
        for guard in guards(1.0):
            for use, used in USES.items():
                count += 1
                # Each pair of spellings, with one origin and one constant of several.
                if count % 3:
                    continue
                which = count // 3
                origin = list(origins)[which % 3]
                e = constants[which % len(constants)]
                if use in {"reciprocal", "one-over", "power"}:
                    e = max(e, 1e-30)  # 1 / 1e-38 is infinite in FP32 too
                if use == "sqrt":
                    e = max(e, 1e-12)
                part = guards(e)[guard]
                if reduction == "abs" and guard == "max-column" and use == "out":
                    continue
                if use in {"expand-div", "reshape-div"} and reduction == "abs":
                    continue
                nodes = [*origins[origin], *reduced, *part.nodes, *used]
                known = {**SHARED, **part.constants, "w": square}
                name = f"guard {reduction} {guard} {use} {origin} {e:g}"
                x = rows(small=1e-6 if origin == "input" else 1e-2)
                yield Case(name, made(nodes, known), x)


def rsqrt_cases() -> Iterator[Case]:
    """Norms by a root of a sum of squares, with and without a product behind."""
    behind = {
        "out": [node("Identity", ["n"], ["y"])],
        "product": [node("MatMul", ["n", "v"], ["y"])],
    }
    for origin in ("input", "product"):
        first = (
            [node("Identity", ["x"], ["h"])]
            if origin == "input"
            else [node("MatMul", ["x", "w"], ["h"])]
        )
        for e in (1e-5, 1e-6, 1e-8, 1e-12, 1e-24):
            for centred in (False, True):
                for spelling in ("reciprocal", "divide"):
                    for last, rest in behind.items():
                        centre = [
                            node("ReduceMean", ["h"], ["m"], axes=[1]),
                            node("Sub", ["h", "m"], ["d"]),
                        ]
                        nodes = [*first, *(centre if centred else [node("Identity", ["h"], ["d"])])]
                        nodes += [
                            node("Mul", ["d", "d"], ["dd"]),
                            node("ReduceMean", ["dd"], ["vv"], axes=[1]),
                            node("Add", ["vv", "e"], ["ve"]),
                            node("Sqrt", ["ve"], ["s"]),
                        ]
                        nodes += (
                            [node("Reciprocal", ["s"], ["i"]), node("Mul", ["d", "i"], ["n"])]
                            if spelling == "reciprocal"
                            else [node("Div", ["d", "s"], ["n"])]
                        )
                        known = {
                            **SHARED,
                            "e": f32(e),
                            "w": weight(1, WIDTH, WIDTH),
                            "v": weight(2, WIDTH, COLUMNS),
                        }
                        x = rows(small=1e-2)
                        x[4] = 0.0 if origin == "product" else 0.5
                        name = f"root {origin} {spelling} {last} centred={centred} {e:g}"
                        yield Case(name, made([*nodes, *rest], known), x)


def logarithm_cases() -> Iterator[Case]:
    """Probabilities that are kept from 0 and 1, and their logarithms."""
    bounds: dict[str, Callable[[float], Part]] = {
        "clip": lambda e: Part(
            [node("Clip", ["p", "low", "high"], ["q"])], {"low": f32(e), "high": f32(1 - e)}
        ),
        "min-max": lambda e: Part(
            [node("Max", ["p", "low"], ["q0"]), node("Min", ["q0", "high"], ["q"])],
            {"low": f32(e), "high": f32(1 - e)},
        ),
        "where": lambda e: Part(
            [
                node("Less", ["p", "low"], ["c"]),
                node("Where", ["c", "low", "p"], ["q0"]),
                node("Greater", ["q0", "high"], ["d"]),
                node("Where", ["d", "high", "q0"], ["q"]),
            ],
            {"low": f32(e), "high": f32(1 - e)},
        ),
        "scaled": lambda e: Part(
            [node("Mul", ["p", "high"], ["q0"]), node("Add", ["q0", "low"], ["q"])],
            {"low": f32(e), "high": f32(1 - 2 * e)},
        ),
    }
    uses = {
        "log": [node("Log", ["q"], ["y"])],
        "log-one-minus": [node("Sub", ["one", "q"], ["u"]), node("Log", ["u"], ["y"])],
        "logit": [
            node("Sub", ["one", "q"], ["u"]),
            node("Div", ["q", "u"], ["o"]),
            node("Log", ["o"], ["y"]),
        ],
        "entropy": [
            node("Sub", ["one", "q"], ["u"]),
            node("Log", ["q"], ["a"]),
            node("Log", ["u"], ["b"]),
            node("Sub", ["a", "b"], ["y"]),
        ],
        "odds": [
            node("Sub", ["one", "q"], ["u"]),
            node("Reciprocal", ["u"], ["o"]),
            node("Log", ["o"], ["y"]),
        ],
        "out": [node("Identity", ["q"], ["q1"]), node("Sub", ["one", "q1"], ["y"])],
    }
    origins = {
        "sigmoid": [node("MatMul", ["x", "w"], ["h"]), node("Sigmoid", ["h"], ["p"])],
        "input": [node("Sigmoid", ["x"], ["p"])],
        "softmax": [node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["p"], axis=1)],
        "raw": [node("Identity", ["x"], ["p"])],
    }
    for origin, first in origins.items():
        for bound, make in bounds.items():
            for use, last in uses.items():
                for e in (1e-4, 1e-6, 1e-7):
                    if bound == "scaled" and origin == "raw":
                        continue
                    if (len(origin) + len(bound) + len(use) + round(np.log10(e))) % 2:
                        continue
                    part = make(e)
                    x = rows(small=1.0) * (1 if origin == "input" else 2)
                    x[0] = 30.0 * np.sign(x[0])
                    if origin == "raw":
                        x = np.clip(x, 0, 1)
                    eye = np.eye(WIDTH, dtype=np.float32)
                    known = {**SHARED, **part.constants, "w": eye}
                    yield Case(
                        f"log {origin} {bound} {use} {e:g}",
                        made([*first, *part.nodes, *last], known),
                        x,
                        absolute=1e-3,
                    )
    for e in (1e-5, 1e-7, 1e-9, 1e-12, 1e-20):
        for origin, first in origins.items():
            if origin == "raw":
                continue
            for name, nodes in {
                "add": [node("Add", ["p", "e"], ["q"]), node("Log", ["q"], ["y"])],
                "one-minus": [
                    node("Sub", ["one", "p"], ["u"]),
                    node("Add", ["u", "e"], ["q"]),
                    node("Log", ["q"], ["y"]),
                ],
            }.items():
                x = rows(small=1.0) * 2
                known = {**SHARED, "e": f32(e), "w": np.eye(WIDTH, dtype=np.float32)}
                yield Case(
                    f"log {origin} {name} {e:g}", made([*first, *nodes], known), x, absolute=1e-3
                )


def weight_cases() -> Iterator[Case]:
    """Small weights, of products and convolutions, that later numbers make large."""
    for scale in (1e-5, 1e-6, 1e-7, 1e-9, 1e-12, 1e-20):
        w = weight(1, WIDTH, COLUMNS) * np.float32(scale)
        up = f32(1 / scale)
        product = [node("MatMul", ["x", "w"], ["h"])]
        between = {
            "": [node("Mul", ["h", "up"], ["y"])],
            "bias": [node("Add", ["h", "b"], ["hb"]), node("Mul", ["hb", "up"], ["y"])],
            "relu": [node("Relu", ["h"], ["r"]), node("Mul", ["r", "up"], ["y"])],
            "divide": [node("Div", ["h", "down"], ["y"])],
            "out": [node("Identity", ["h"], ["y"])],
            "vector": [node("Mul", ["h", "ups"], ["y"])],
            "reshape": [node("Reshape", ["h", "flat"], ["f"]), node("Mul", ["f", "up"], ["y"])],
            "twice": [
                node("Mul", ["h", "up"], ["a"]),
                node("Relu", ["h"], ["r"]),
                node("Mul", ["r", "up"], ["b2"]),
                node("Add", ["a", "b2"], ["y"]),
            ],
            "norm": [
                node("ReduceL2", ["h"], ["n"], axes=[1]),
                node("Add", ["n", "e"], ["ne"]),
                node("Div", ["h", "ne"], ["y"]),
            ],
            "product": [node("Mul", ["h", "up"], ["u"]), node("MatMul", ["u", "v"], ["y"])],
            "late": [node("MatMul", ["h", "v"], ["u"]), node("Mul", ["u", "up"], ["y"])],
        }
        known = {
            **SHARED,
            "w": w,
            "up": up,
            "down": f32(scale),
            "b": weight(3, COLUMNS) * np.float32(scale),
            "ups": f32(1 / scale, COLUMNS),
            "e": f32(scale * 1e-3),
            "v": weight(2, COLUMNS, COLUMNS),
        }
        for name, rest in between.items():
            yield Case(
                f"weight matmul {name} {scale:g}", made([*product, *rest], known), rows(small=0.1)
            )
        gemm = [node("Gemm", ["x", "w", "b"], ["h"]), node("Mul", ["h", "up"], ["y"])]
        yield Case(f"weight gemm {scale:g}", made(gemm, known), rows(small=0.1))
        # One channel, which a vector of factors brings back.
        one = weight(1, WIDTH, COLUMNS)
        one[:, 7] *= np.float32(scale)
        factors = f32(1, COLUMNS)
        factors[7] = 1 / scale
        for name, rest in {
            "": [node("Mul", ["h", "f"], ["y"])],
            "relu": [node("Relu", ["h"], ["r"]), node("Mul", ["r", "f"], ["y"])],
        }.items():
            yield Case(
                f"weight channel {name} {scale:g}",
                made([*product, *rest], {"w": one, "f": factors}),
                rows(small=0.1),
            )
        image = np.random.default_rng(2).standard_normal((1, 16, 8, 8)).astype(np.float32)
        filters = weight(4, 16, 16, 3, 3) * np.float32(scale)
        for name, rest in {
            "": [node("Mul", ["h", "up"], ["y"])],
            "relu": [node("Relu", ["h"], ["r"]), node("Mul", ["r", "up"], ["y"])],
            "batch-norm": [
                node("BatchNormalization", ["h", "g", "z", "z", "v"], ["y"], epsilon=scale * scale)
            ],
        }.items():
            conv = [node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1])]
            constants = {
                "w": filters,
                "up": up,
                "g": f32(1, 16),
                "z": f32(0, 16),
                "v": f32(max(scale * scale, 1e-37), 16),
            }
            yield Case(
                f"weight conv {name} {scale:g}", made([*conv, *rest], constants, image.shape), image
            )


def activation_cases() -> Iterator[Case]:
    """Activations that one factor makes small, and another large again."""
    for scale in (1e-4, 1e-6, 1e-8, 1e-12):
        known = {
            **SHARED,
            "w": weight(1, WIDTH, WIDTH),
            "v": weight(2, WIDTH, COLUMNS),
            "down": f32(scale),
            "up": f32(1 / scale),
            "half": f32(scale**0.5),
            "c": f32(scale * 0.25),
        }
        product = node("MatMul", ["x", "w"], ["h"])
        for name, nodes in {
            "relu": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("Relu", ["a"], ["r"]),
                node("Mul", ["r", "up"], ["y"]),
            ],
            "divide": [
                product,
                node("Div", ["h", "up"], ["a"]),
                node("Relu", ["a"], ["r"]),
                node("Div", ["r", "down"], ["y"]),
            ],
            "halves": [
                product,
                node("Mul", ["h", "half"], ["a"]),
                node("Mul", ["a", "half"], ["b"]),
                node("Reshape", ["b", "flat"], ["f"]),
                node("Mul", ["f", "up"], ["y"]),
            ],
            "product": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("MatMul", ["a", "v"], ["b"]),
                node("Mul", ["b", "up"], ["y"]),
            ],
            "first": [
                node("Mul", ["x", "down"], ["a"]),
                node("MatMul", ["a", "v"], ["b"]),
                node("Mul", ["b", "up"], ["y"]),
            ],
            "bound": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("Min", ["a", "c"], ["m"]),
                node("Mul", ["m", "up"], ["y"]),
            ],
            "concat": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("Concat", ["a", "a"], ["m"], axis=1),
                node("Mul", ["m", "up"], ["y"]),
            ],
            "out": [product, node("Mul", ["h", "down"], ["y"])],
            "leaky": [
                product,
                node("LeakyRelu", ["h"], ["a"], alpha=scale),
                node("Min", ["a", "zero"], ["m"]),
                node("Mul", ["m", "up"], ["y"]),
            ],
            "softmax": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("Mul", ["a", "up"], ["b"]),
                node("Softmax", ["b"], ["y"], axis=1),
            ],
            "deviation": [
                product,
                node("Mul", ["h", "down"], ["a"]),
                node("ReduceL2", ["a"], ["n"], axes=[1]),
                node("Max", ["n", "c"], ["m"]),
                node("Div", ["a", "m"], ["y"]),
            ],
        }.items():
            yield Case(
                f"activation {name} {scale:g}",
                made(nodes, {**known, "zero": f32(0)}),
                rows(small=0.1),
            )


GENERATORS = (division_cases, rsqrt_cases, logarithm_cases, weight_cases, activation_cases)


def cases() -> list[Case]:
    """All of them."""
    return [case for generator in GENERATORS for case in generator()]
