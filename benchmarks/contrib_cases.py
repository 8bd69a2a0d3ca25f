"""Single-operator models of com.microsoft in their forms, with inputs and the results wanted.

ONNX Runtime's CPU build gives the results. For operators that it lacks, `reference` states what
their documentation says in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from benchmarks.contrib_quantised_cases import quantised

Array: TypeAlias = "np.ndarray[Any, Any]"
# Inputs of an operator by name, in their order; None is one that is left out.
Inputs: TypeAlias = "Mapping[str, Array | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operator in one form. `outputs` are the places of the results that are read."""

    operator: str
    form: str
    inputs: Inputs
    constants: frozenset[str] = frozenset()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (0,)
    opset: int = 17
    domain: str = "com.microsoft"
    # Elements of each result that mean something: ONNX Runtime computes padded rows somehow.
    meaning: Callable[[Array], Array] | None = None
    reference: Callable[..., list[Array]] | None = None

    @property
    def label(self) -> str:
        """The operator and its form."""
        return f"{self.operator}: {self.form}"

    def model(self, dynamic: Mapping[str, tuple[Any, ...]] | None = None) -> Any:
        """The model; `dynamic` has other shapes for its inputs, by name."""
        given = {name: array for name, array in self.inputs.items() if array is not None}
        names = [name if name in given else "" for name in self.inputs]
        while names and not names[-1]:
            names.pop()
        outputs = [f"y{place}" if place in self.outputs else "" for place in range(self.last + 1)]
        node = helper.make_node(
            self.operator, names, outputs, name="single", domain=self.domain, **self.attributes
        )
        shapes = {name: array.shape for name, array in given.items()} | dict(dynamic or {})
        graph = helper.make_graph(
            [node],
            "graph",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), shapes[name]
                )
                for name, array in given.items()
                if name not in self.constants
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs if name],
            [
                numpy_helper.from_array(array, name)
                for name, array in given.items()
                if name in self.constants
            ],
        )
        sets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)

    @property
    def last(self) -> int:
        """The place of the last result that is read."""
        return max(self.outputs)

    @property
    def fed(self) -> dict[str, Array]:
        """The model's inputs."""
        return {
            name: array
            for name, array in self.inputs.items()
            if array is not None and name not in self.constants
        }

    def wanted(self) -> list[Array]:
        """The results that are read."""
        if self.reference is not None:
            return self.reference(*self.inputs.values(), **self.attributes)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(self.model().SerializeToString(), options)
        found: list[Array] = session.run(None, self.fed)
        return found


def noise(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Numbers of a normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def _case(operator: str, form: str, inputs: Inputs, constants: str = "", **more: Any) -> Case:
    named = frozenset(constants.split())
    return Case(operator=operator, form=form, inputs=inputs, constants=named, **more)


def _of(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"attributes": dict(given)}


def products() -> list[Case]:
    """Products and convolutions with what is fused into them."""
    a, b = noise(2, 3, 4, 8), noise(2, 3, 8, 16, seed=1)
    made = [
        _case("FusedMatMul", "plain", {"x": noise(4, 8), "w": noise(8, 16)}, "w"),
        _case("FusedMatMul", "alpha", {"x": a, "w": b}, **_of({"alpha": 0.125})),
        _case(
            "FusedMatMul", "transA",
            {"x": np.ascontiguousarray(a.swapaxes(-1, -2)), "w": b}, **_of({"transA": 1}),
        ),
        _case(
            "FusedMatMul", "transB",
            {"x": a, "w": np.ascontiguousarray(b.swapaxes(-1, -2))}, **_of({"transB": 1}),
        ),
        _case(
            "FusedMatMul", "transB of a constant", {"x": a, "w": noise(16, 8)}, "w",
            **_of({"transB": 1, "alpha": 2.0}),
        ),
        _case(
            "FusedMatMul", "transBatchA",
            {"x": noise(4, 2, 3, 8), "w": b}, **_of({"transBatchA": 1}),
        ),
        _case(
            "FusedMatMul", "transBatchA and transA",
            {"x": noise(8, 2, 3, 4), "w": b}, **_of({"transBatchA": 1, "transA": 1}),
        ),
        _case(
            "FusedMatMul", "transBatchB and transB",
            {"x": a, "w": noise(16, 2, 3, 8)}, **_of({"transBatchB": 1, "transB": 1}),
        ),
        _case(
            "FusedMatMul", "transBatchB",
            {"x": a, "w": noise(8, 2, 3, 16)}, **_of({"transBatchB": 1}),
        ),
        _case("FusedMatMul", "a vector", {"x": noise(8), "w": b}, **_of({"transA": 1})),
        _case(
            "TransposeMatMul", "transA",
            {"x": noise(3, 8, 4), "w": noise(3, 8, 16)}, **_of({"transA": 1, "alpha": 0.5}),
        ),
        _case(
            "FusedMatMulActivation", "Relu", {"x": noise(4, 8), "w": noise(8, 16)}, "w",
            **_of({"alpha": 0.5, "activation": "Relu"}),
            reference=lambda x, w, **_: [np.maximum(0.5 * x @ w, 0)],
        ),
        _case(
            "GemmFastGelu", "bias", {"x": noise(2, 4, 8), "w": noise(8, 16), "b": noise(16)}, "w b",
            reference=lambda x, w, b: [_gelu_by_tanh(x @ w + b)],
        ),
    ]  # fmt: skip
    for name, more in {
        "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"activation_alpha": 0.1},
        "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        "Elu": {"activation_alpha": 0.7}, "Softplus": {},
    }.items():  # fmt: skip
        given = {"activation": name, "alpha": 0.5, "beta": 2.0, "transB": 1, **more}
        inputs = {"x": noise(4, 8), "w": noise(16, 8), "b": noise(16)}
        made.append(_case("FusedGemm", name, inputs, "w b", attributes=given))
    image = {"x": noise(2, 4, 7, 6), "w": noise(8, 4, 3, 3), "b": noise(8)}
    for name, parameters in {
        "": [], "Relu": [], "Sigmoid": [], "Tanh": [], "LeakyRelu": [0.1], "Clip": [-0.5, 1.0],
        "HardSigmoid": [0.3, 0.4],
    }.items():  # fmt: skip
        given = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
        given |= {"activation": name} if name else {}
        given |= {"activation_params": parameters} if parameters else {}
        made.append(_case("FusedConv", name or "plain", image, "w b", attributes=given))
    added = {**image, "z": noise(2, 8, 4, 3)}
    strided = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3], "strides": [2, 2]}
    made += [
        _case("FusedConv", "Z", added, "w b", attributes={**strided, "activation": "Relu"}),
        _case(
            "FusedConv", "Z without a bias", {**added, "b": None}, "w",
            attributes={**strided, "activation": "Relu"},
        ),
        _case(
            "FusedConv", "groups and SAME_UPPER", {**image, "w": noise(8, 2, 3, 3)}, "w b",
            attributes={"group": 2, "auto_pad": "SAME_UPPER", "activation": "Relu"},
        ),
        _case("FusedConv", "one dimension", {"x": noise(2, 4, 9), "w": noise(8, 4, 3)}, "w",
              attributes={"activation": "Relu", "kernel_shape": [3]}),
        _case(
            "NhwcConv", "plain",
            {"x": noise(2, 7, 6, 4), "w": noise(8, 4, 3, 3), "b": noise(8)}, "w b",
            attributes={"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}, reference=_nhwc,
        ),
        _case(
            "NhwcFusedConv", "Z and Relu",
            {"x": noise(2, 7, 6, 4), "w": noise(8, 4, 3, 3), "b": noise(8), "z": noise(2, 7, 6, 8)},
            "w b",
            attributes={"pads": [1, 1, 1, 1], "kernel_shape": [3, 3], "activation": "Relu"},
            reference=_nhwc,
        ),
        _case(
            "NhwcMaxPool", "bytes",
            {"x": np.random.default_rng(0).integers(0, 255, (2, 6, 5, 8)).astype(np.uint8)},
            attributes={"kernel_shape": [3, 3], "strides": [2, 2]},
        ),
        _case(
            "ConvTransposeWithDynamicPads", "constant pads",
            {"x": noise(2, 4, 5, 6), "w": noise(4, 3, 3, 3), "p": np.array([1, 0, 1, 1]),
             "b": noise(3)},
            "w p b", attributes={"strides": [2, 2], "kernel_shape": [3, 3]},
        ),
    ]  # fmt: skip
    return made


def _gelu_by_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(x / 2 * (1 + np.tanh(inner)))


def _gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(x.dtype)


def _nhwc(x: Array, w: Array, b: Array, z: Array | None = None, **given: Any) -> list[Array]:
    """A convolution of an image with its channels last: windows times filters."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    made = np.einsum("nhwcij,ocij->nhwo", windows, w) + b
    made = made if z is None else made + z
    return [np.maximum(made, 0) if given.get("activation") == "Relu" else made]


def elementwise() -> list[Case]:
    """Elementwise operators, and doubles of standard ones."""
    x, bias = noise(2, 3, 16), noise(16, seed=1)
    rows = np.random.default_rng(0).integers(0, 3, (4, 2))
    scale, zero = np.float32(0.05), np.uint8(120)
    return [
        _case("Gelu", "plain", {"x": x}),
        _case("BiasGelu", "plain", {"x": x, "b": bias}, "b"),
        _case("FastGelu", "plain", {"x": x}),
        _case("FastGelu", "bias", {"x": x, "b": bias}, "b"),
        _case("QuickGelu", "plain", {"x": x}),
        _case("QuickGelu", "SiLU", {"x": x}, **_of({"alpha": 1.0})),
        _case(
            "BiasSplitGelu", "plain", {"x": x, "b": bias}, "b",
            reference=lambda x, b: [(x + b)[..., :8] * _gelu((x + b)[..., 8:])],
        ),
        _case(
            "BiasAdd", "plain", {"x": x, "b": bias, "s": noise(2, 3, 16, seed=2)}, "b",
            reference=lambda x, b, s: [x + b + s],
        ),
        _case(
            "BiasSoftmax", "inner", {"x": noise(2, 4, 3, 8), "b": noise(2, 1, 1, 8)},
            **_of({"axis": 3, "is_inner_broadcast": 1}), reference=_softmax_of_sum,
        ),
        _case(
            "BiasSoftmax", "outer", {"x": noise(2, 4, 3, 8), "b": noise(3, 8)},
            **_of({"axis": 3, "is_inner_broadcast": 0}), reference=_softmax_of_sum,
        ),
        _case(
            "ComplexMul", "plain", {"x": noise(4, 3, 2), "w": noise(4, 3, 2, seed=1)},
            reference=lambda x, w: [_pairs(_complex(x) * _complex(w))],
        ),
        _case(
            "ComplexMulConj", "plain", {"x": noise(4, 3, 2), "w": noise(4, 3, 2, seed=1)},
            reference=lambda x, w: [_pairs(_complex(x) * _complex(w).conj())],
        ),
        _case("CDist", "squared", {"x": noise(4, 8), "w": noise(6, 8)},
              **_of({"metric": "sqeuclidean"})),
        _case("CDist", "Euclidean", {"x": noise(4, 8), "w": noise(6, 8)},
              **_of({"metric": "euclidean"})),
        _case(
            "IsAllFinite", "finite", {"x": x, "w": bias},
            reference=lambda *given: [np.all([np.isfinite(each).all() for each in given])],
        ),
        _case(
            "IsAllFinite", "an infinity", {"x": x, "w": np.array([1, np.inf], np.float32)},
            reference=lambda *given: [np.all([np.isfinite(each).all() for each in given])],
        ),
        _case("ExpandDims", "from the end", {"x": x, "axis": np.array(-1, np.int32)}, "axis",
              reference=lambda x, axis: [np.expand_dims(x, axis)]),
        _case("ExpandDims", "from the front", {"x": x, "axis": np.array(1, np.int32)}, "axis",
              reference=lambda x, axis: [np.expand_dims(x, axis)]),
        _case(
            "TorchEmbedding", "plain", {"w": noise(5, 8), "i": rows},
            reference=lambda w, i: [w[i]],
        ),
        _case("UnfoldTensor", "last", {"x": x}, **_of({"dim": -1, "size": 4, "step": 3})),
        _case("UnfoldTensor", "first", {"x": noise(6, 3)}, **_of({"dim": 0, "size": 2})),
        _case("GatherND", "plain", {"x": noise(3, 3, 4), "i": rows}, "i"),
        _case("Trilu", "lower", {"x": noise(2, 4, 5)}, **_of({"upper": 0})),
        _case("Trilu", "a diagonal", {"x": noise(4, 5), "k": np.array(1)}, "k"),
        _case(
            "Range", "without a step", {"start": np.int64(2), "limit": np.int64(9)}, "start limit"
        ),
        _case("Pad", "plain",
              {"x": noise(3, 4), "p": np.array([0, 1, 2, 0]), "v": np.float32(1.5)}, "p v"),
        _case("QuantizeLinear", "bytes", {"x": x, "s": scale, "z": zero}, "s z"),
        _case(
            "DequantizeLinear", "bytes",
            {"x": np.arange(12, dtype=np.uint8).reshape(3, 4), "s": scale, "z": zero}, "s z",
        ),
        _case(
            "GemmaRotaryEmbedding", "plain",
            {"emb": noise(2, 4, 8), **{name: noise(2, 3, 4, 8, seed=place)
                                       for place, name in enumerate(("q", "qr", "k", "kr"))}},
            outputs=(0, 1),
            reference=lambda emb, q, qr, k, kr: [
                x * np.cos(emb)[:, None] + y * np.sin(emb)[:, None] for x, y in ((q, qr), (k, kr))
            ],
        ),
    ]  # fmt: skip


def _complex(x: Array) -> Array:
    return np.asarray(x[..., 0] + 1j * x[..., 1])


def _pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _softmax_of_sum(x: Array, b: Array, **_: Any) -> list[Array]:
    return [_softmax(x + b)]


def norms() -> list[Case]:
    """Norms with what is fused into them."""
    x, skip = noise(2, 4, 16), noise(2, 4, 16, seed=1)
    weight, shift, bias = (noise(16, seed=seed) for seed in (2, 3, 4))
    learned = {"g": weight, "s": shift}
    words = np.random.default_rng(0).integers(0, 11, (2, 5)).astype(np.int32)
    kinds = np.random.default_rng(1).integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = {"wt": noise(11, 16), "pt": noise(8, 16), "kt": noise(2, 16)}
    fixed = "wt pt kt g s"
    image, column = noise(2, 6, 5, 8), {"g": noise(8), "s": noise(8, seed=1)}
    grouped = {"groups": 2, "epsilon": 1e-5}
    return [
        _case("SkipLayerNormalization", "plain", {"x": x, "k": skip, **learned}, "g s"),
        _case(
            "SkipLayerNormalization", "bias and sum", {"x": x, "k": skip, **learned, "b": bias},
            "g s b", outputs=(0, 3), attributes={"epsilon": 1e-5},
        ),
        _case("SkipLayerNormalization", "no shift", {"x": x, "k": skip, "g": weight}, "g"),
        _case(
            "SkipLayerNormalization", "no shift but a bias",
            {"x": x, "k": skip, "g": weight, "s": None, "b": bias}, "g b", outputs=(0, 3),
        ),
        _case(
            "SkipLayerNormalization", "a skip for all sequences",
            {"x": x, "k": noise(1, 4, 16), **learned}, "g s", outputs=(0, 3),
        ),
        _case(
            "SkipLayerNormalization", "a skip of two axes",
            {"x": x, "k": noise(4, 16), **learned}, "g s", outputs=(0, 3),
        ),
        _case(
            "SkipLayerNormalization", "statistics", {"x": x, "k": skip, **learned}, "g s",
            outputs=(0, 1, 2, 3), reference=_skip_statistics, attributes={"epsilon": 1e-5},
        ),
        _case("SkipLayerNormalization", "operator set 14", {"x": x, "k": skip, **learned}, "g s",
              opset=14, outputs=(0, 3)),
        _case("SkipSimplifiedLayerNormalization", "plain", {"x": x, "k": skip, "g": weight}, "g"),
        _case(
            "SkipSimplifiedLayerNormalization", "bias and sum",
            {"x": x, "k": skip, "g": weight, "b": bias}, "g b", outputs=(0, 3),
            attributes={"epsilon": 1e-6},
        ),
        _case("SimplifiedLayerNormalization", "plain", {"x": x, "g": weight}, "g", domain="",
              attributes={"axis": -1, "epsilon": 1e-6}),
        _case("SimplifiedLayerNormalization", "two axes", {"x": x, "g": noise(4, 16)}, "g",
              domain="", attributes={"axis": 1, "epsilon": 1e-5}),
        _case("EmbedLayerNormalization", "plain",
              {"i": words, "k": kinds, **tables, **learned}, fixed, outputs=(0, 1)),
        _case(
            "EmbedLayerNormalization", "mask and sum",
            {"i": words, "k": kinds, **tables, **learned, "m": mask}, fixed, outputs=(0, 1, 2),
        ),
        _case(
            "EmbedLayerNormalization", "no segments",
            {"i": words, "k": None, **tables, "kt": None, **learned}, "wt pt g s",
            outputs=(0, 1),
        ),
        _case(
            "EmbedLayerNormalization", "places",
            {"i": words, "k": kinds, **tables, **learned, "m": None,
             "p": np.array([[4, 3, 2, 1, 0]], np.int32)}, fixed, outputs=(0, 1),
        ),
        _case("GroupNorm", "channels last", {"x": image, **column}, "g s", attributes=grouped,
              reference=_group_norm),
        _case(
            "GroupNorm", "SiLU", {"x": image, **column}, "g s", reference=_group_norm,
            attributes={**grouped, "activation": 1},
        ),
        _case(
            "GroupNorm", "channels first", {"x": noise(2, 8, 6, 5), **column}, "g s",
            attributes={**grouped, "channels_last": 0}, reference=_group_norm,
        ),
        _case(
            "SkipGroupNorm", "bias and sum",
            {"x": image, **column, "k": noise(2, 6, 5, 8, seed=2), "b": noise(8, seed=5)}, "g s b",
            outputs=(0, 1), attributes={**grouped, "activation": 1}, reference=_group_norm,
        ),
        _case(
            "SkipGroupNorm", "a skip for each channel",
            {"x": image, **column, "k": noise(2, 8, seed=2)}, "g s", outputs=(0, 1),
            attributes=grouped, reference=_group_norm,
        ),
    ]  # fmt: skip


def _skip_statistics(x: Array, k: Array, g: Array, s: Array, epsilon: float) -> list[Array]:
    total = x + k
    mean, variance = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
    inverse = 1 / np.sqrt(variance + np.float32(epsilon))
    return [(total - mean) * inverse * g + s, mean, inverse, total]


def _group_norm(
    x: Array, g: Array, s: Array, k: Array | None = None, b: Array | None = None, **given: Any
) -> list[Array]:
    is_last = given.get("channels_last", 1)
    total = x if is_last else x.transpose(0, 2, 3, 1)
    if k is not None:
        total = total + (k if k.ndim == 4 else k[:, None, None])
    total = total if b is None else total + b
    n, h, w, c = total.shape
    rows = total.reshape(n, h * w, given["groups"], -1)
    mean, variance = rows.mean((1, 3), keepdims=True), rows.var((1, 3), keepdims=True)
    made = ((rows - mean) / np.sqrt(variance + given["epsilon"])).reshape(n, h, w, c) * g + s
    made = made / (1 + np.exp(-made)) if given.get("activation") else made
    made = made if is_last else made.transpose(0, 3, 1, 2)
    return [made.astype(x.dtype), total] if k is not None else [made.astype(x.dtype)]


def rotaries() -> list[Case]:
    """Rotary embeddings."""
    flat, heads = noise(2, 5, 24), noise(2, 3, 5, 8)
    places = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    wide, narrow = _turns(4), _turns(2)
    fixed = "c s"
    return [
        _case("RotaryEmbedding", "three axes", {"x": flat, "p": places, **wide}, fixed),
        _case("RotaryEmbedding", "four axes", {"x": heads, "p": places, **wide}, fixed),
        _case("RotaryEmbedding", "interleaved", {"x": flat, "p": places, **wide}, fixed,
              **_of({"interleaved": 1})),
        _case("RotaryEmbedding", "interleaved, four axes", {"x": heads, "p": places, **wide},
              fixed, **_of({"interleaved": 1})),
        _case("RotaryEmbedding", "an offset", {"x": flat, "p": np.array([2]), **wide}, fixed),
        _case("RotaryEmbedding", "a constant offset", {"x": flat, "p": np.array([0]), **wide},
              "p c s"),
        _case("RotaryEmbedding", "part of a head", {"x": flat, "p": places, **narrow}, fixed,
              **_of({"num_heads": 3, "rotary_embedding_dim": 4})),
        _case("RotaryEmbedding", "part of a head, interleaved, four axes",
              {"x": heads, "p": places, **narrow}, fixed,
              **_of({"num_heads": 3, "rotary_embedding_dim": 4, "interleaved": 1})),
    ]  # fmt: skip


def _turns(pairs: int, places: int = 16) -> dict[str, Array]:
    """Cosines and sines, a row for each place."""
    angles = np.outer(np.arange(places), 1e4 ** -(np.arange(pairs) / pairs))
    return {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}


def attentions() -> list[Case]:
    """Attention in its forms."""
    return [*_multi_head(), *_attention(), *_decoder(), *_grouped()]


def _multi_head() -> list[Case]:
    given = {"num_heads": 4}
    x, far = noise(2, 6, 32), noise(2, 9, 32, seed=1)
    self_ = {"q": x, "k": noise(2, 6, 32, seed=2), "v": noise(2, 6, 32, seed=3)}
    cross = {"q": x, "k": far, "v": noise(2, 9, 48, seed=2)}
    nothing = {"b": None, "m": None, "a": None}
    lengths, keys = np.array([4, 9], np.int32), np.ones((2, 9), np.int32)
    keys[0, 6:], keys[1, :2] = 0, 0
    pairs = np.ones((2, 6, 9), np.int32)
    pairs[:, :3, 5:] = 0
    past = {"pk": noise(2, 4, 3, 8, seed=4), "pv": noise(2, 4, 3, 8, seed=5)}
    bias = noise(96, seed=6)

    def made(form: str, inputs: Inputs, constants: str = "", **more: Any) -> Case:
        attributes = {**given, **more.pop("attributes", {})}
        return _case("MultiHeadAttention", form, inputs, constants, attributes=attributes, **more)

    return [
        made("apart", self_),
        made("cross", cross),
        made("bias", {**self_, "b": bias}, "b"),
        made("bias of other widths", {**cross, "b": noise(112)}, "b"),
        made("scale", self_, attributes={"scale": 0.5}),
        made("packed Q, K and V", {"q": noise(2, 6, 4, 3, 8)}, reference=_packed),
        made("packed K and V", {"q": x, "k": noise(2, 9, 4, 2, 8)}, reference=_packed),
        made("heads of K and V",
             {"q": x, "k": noise(2, 4, 9, 8), "v": noise(2, 4, 9, 8, seed=1)}),
        made("heads of K and V with a bias",
             {"q": x, "k": noise(2, 4, 9, 8), "v": noise(2, 4, 9, 8, seed=1), "b": bias}, "b"),
        made("lengths", {**cross, "b": None, "m": lengths}),
        made("mask of keys", {**cross, "b": None, "m": keys}),
        made("mask of rows and keys", {**cross, "b": None, "m": pairs}),
        made("mask with a filter", {**cross, "b": None, "m": keys},
             attributes={"mask_filter_value": -1e4}),
        made("attention bias", {**cross, "b": None, "m": None, "a": noise(2, 4, 6, 9)}),
        made("attention bias for all", {**cross, "b": None, "m": None, "a": noise(1, 1, 6, 9)}),
        made("unidirectional", self_, attributes={"unidirectional": 1}),
        made("past", {**self_, **nothing, **past}, outputs=(0, 1, 2)),
        made("past, bias and mask",
             {**self_, "b": bias, "m": keys, "a": None, **past}, "b", outputs=(0, 1, 2)),
        made("past, unidirectional", {**self_, **nothing, **past}, outputs=(0, 1, 2),
             attributes={"unidirectional": 1}),
        made("one place and a past",
             {**{key: value[:, :1] for key, value in self_.items()}, **nothing, **past},
             outputs=(0, 1, 2)),
        made("weights", cross, outputs=(0, 3), reference=_with_weights),
        made("present without a past", self_, outputs=(0, 1, 2)),
    ]  # fmt: skip


def _heads(x: Array, count: int) -> Array:
    """Heads (batch, heads, places, width) of rows."""
    made: Array = x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)
    return made


def _with_weights(q: Array, k: Array, v: Array, num_heads: int) -> list[Array]:
    query, key, value = (_heads(each, num_heads) for each in (q, k, v))
    seen = _softmax(query @ key.transpose(0, 1, 3, 2) / np.sqrt(np.float32(query.shape[-1])))
    return [(seen @ value).transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1), seen]


def _packed(q: Array, kv: Array | None = None, *, num_heads: int) -> list[Array]:
    parts = [q, *kv.transpose(3, 0, 1, 2, 4)] if kv is not None else q.transpose(3, 0, 1, 2, 4)
    query, key, value = (each.reshape(*each.shape[:2], -1) for each in parts)
    return _with_weights(query, key, value, num_heads)[:1]


def _attention() -> list[Case]:
    given = {"num_heads": 4}
    self_ = {"x": noise(2, 6, 24), "w": noise(24, 96) / 4, "b": noise(96)}
    keys = np.ones((2, 6), np.int32)
    keys[0, 4:], keys[1, :2] = 0, 0
    pairs = np.ones((2, 6, 6), np.int32)
    pairs[:, :3, 4:] = 0
    past = {"p": noise(2, 2, 4, 3, 8)}
    nothing = {"m": None}
    longer = np.ones((2, 9), np.int32)
    longer[0, :2] = 0

    def made(form: str, more: Inputs, **rest: Any) -> Case:
        attributes = {**given, **rest.pop("attributes", {})}
        inputs = {**self_, **more}
        return _case("Attention", form, inputs, "w b", attributes=attributes, **rest)

    return [
        made("plain", {}),
        made("no bias", {"b": None}, reference=_unbiased),
        made("scale", {}, attributes={"scale": 0.5}),
        made("unidirectional", {}, attributes={"unidirectional": 1}),
        made("mask of keys", {"m": keys}),
        made("mask of keys, unidirectional", {"m": keys}, attributes={"unidirectional": 1}),
        made("mask of rows and keys", {"m": pairs}),
        made("lengths", {"m": np.array([4, 6], np.int32)}),
        made("ends and beginnings", {"m": np.array([5, 6, 0, 2], np.int32)}),
        made("other widths", {"w": noise(24, 80), "b": noise(80)},
             attributes={"qkv_hidden_sizes": [32, 32, 16]}),
        made("attention bias", {**nothing, "p": None, "a": noise(2, 4, 6, 6)}),
        made("attention bias for all", {**nothing, "p": None, "a": noise(1, 4, 6, 6)}),
        made("past", {**nothing, **past}, outputs=(0, 1)),
        made("past, unidirectional", {**nothing, **past}, outputs=(0, 1),
             attributes={"unidirectional": 1}),
        made("past and mask", {"m": longer, **past}, outputs=(0, 1),
             attributes={"unidirectional": 1}),
        made("present", {}, outputs=(0, 1)),
    ]  # fmt: skip


def _unbiased(x: Array, w: Array, b: None, num_heads: int) -> list[Array]:
    query, key, value = np.split(x @ w, 3, -1)
    return _with_weights(query, key, value, num_heads)[:1]


def _decoder() -> list[Case]:
    one = {name: noise(2, 1, 32, seed=seed) for seed, name in enumerate("qkv")}
    past = {"pk": noise(2, 4, 3, 8, seed=4), "pv": noise(2, 4, 3, 8, seed=5)}
    return [
        _case(
            "DecoderMaskedMultiHeadAttention", "past", {**one, "m": None, "a": None, **past},
            outputs=(0, 1, 2), attributes={"num_heads": 4}, reference=_decoded,
        )
    ]  # fmt: skip


def _decoded(*given: Array, num_heads: int) -> list[Array]:
    q, k, v, _, _, pk, pv = given
    key, value = (np.concatenate([p, _heads(n, num_heads)], 2) for p, n in ((pk, k), (pv, v)))
    query = _heads(q, num_heads)
    seen = _softmax(query @ key.transpose(0, 1, 3, 2) / np.sqrt(np.float32(query.shape[-1])))
    return [(seen @ value).transpose(0, 2, 1, 3).reshape(q.shape), key, value]


def _grouped() -> list[Case]:
    rows, width, count, shared = 6, 16, 4, 2
    self_ = {
        "q": noise(2, rows, count * width),
        "k": noise(2, rows, shared * width, seed=1),
        "v": noise(2, rows, shared * width, seed=2),
    }
    one = {key: value[:, :1] for key, value in self_.items()}
    some = {key: value[:, :3] for key, value in self_.items()}
    none = {"pk": None, "pv": None}
    past = {"pk": noise(2, shared, 5, width, seed=3), "pv": noise(2, shared, 5, width, seed=4)}
    turns, places = _turns(width // 2), np.arange(6)[None].repeat(2, 0)

    def total(*lengths: int) -> dict[str, Array]:
        """`seqlens_k` and `total_sequence_length` of sequences of these lengths."""
        return {
            "l": np.array(lengths, np.int32) - 1,
            "t": np.array(max(lengths), np.int32),
        }

    def made(form: str, inputs: Inputs, constants: str = "", **more: Any) -> Case:
        attributes = {"num_heads": count, "kv_num_heads": shared, **more.pop("attributes", {})}
        more.setdefault("outputs", (0, 1, 2))
        return _case("GroupQueryAttention", form, inputs, constants, attributes=attributes, **more)

    first, last = total(6, 6), total(6, 6)
    packed = np.concatenate(list(self_.values()), -1)
    rotary = {"do_rotary": 1}
    sinks = {"c": None, "s": None, "p": None, "a": None, "h": noise(count)}
    return [
        made("prompt", {**self_, **none, **first}),
        made("prompt with constant lengths", {**self_, **none, **first}, "l t"),
        made("prompt, rotary", {**self_, **none, **first, **turns}, "c s", attributes=rotary),
        made("prompt, interleaved rotary", {**self_, **none, **first, **turns}, "c s",
             attributes={**rotary, "rotary_interleaved": 1}),
        made("prompt, packed, rotary",
             {"q": packed, "k": None, "v": None, **none, **first, **turns}, "c s",
             attributes=rotary),
        made("prompt, softcap", {**self_, **none, **first}, attributes={"softcap": 2.0}),
        made("prompt, scale", {**self_, **none, **first}, attributes={"scale": 0.2}),
        made("prompt, window", {**self_, **none, **first}, attributes={"local_window_size": 3}),
        made("prompt, equal heads",
             {**self_, "k": noise(2, 6, 64), "v": noise(2, 6, 64, seed=1), **none, **first},
             attributes={"kv_num_heads": 4}),
        made("prompt, padded", {**self_, **none, **total(4, 6)},
             meaning=_first_places(4, 6, rows=True)),
        made("prompt, places", {**self_, **none, **first, **turns, "p": places}, "c s",
             attributes=rotary),
        made("prompt, attention bias",
             {**self_, **none, **first, "c": None, "s": None, "p": None,
              "a": noise(2, 1, 6, 6)}),
        made("prompt, smooth softmax", {**self_, **none, **first},
             attributes={"smooth_softmax": 1}),
        made("prompt, sinks", {**self_, **none, **first, **sinks}, "h"),
        made("one place", {**one, **past, **last}),
        made("one place with constant lengths", {**one, **past, **last}, "l t"),
        made("one place, rotary", {**one, **past, **last, **turns}, "c s", attributes=rotary),
        made("one place, constant lengths, rotary", {**one, **past, **last, **turns}, "l t c s",
             attributes=rotary),
        made("one place, lengths", {**one, **past, **total(4, 6), **turns}, "c s",
             attributes=rotary, meaning=_first_places(4, 6)),
        made("one place, lengths, window", {**one, **past, **total(4, 6), **turns}, "c s",
             attributes={**rotary, "local_window_size": 3}, meaning=_first_places(4, 6)),
        made("one place, window", {**one, **past, **last}, "l t",
             attributes={"local_window_size": 3}),
        made("several places, one sequence",
             {**{key: value[:1] for key, value in {**some, **past}.items()}, **total(8), **turns},
             "c s", attributes=rotary),
        made("several places, one sequence, window",
             {**{key: value[:1] for key, value in {**some, **past}.items()}, **total(8), **turns},
             "c s", attributes={**rotary, "local_window_size": 3}),
    ]  # fmt: skip


def _first_places(*lengths: int, rows: bool = False) -> Callable[[Array], Array]:
    """The places that each sequence has, of K and V and, where wanted, of the result's rows."""

    def chosen(y: Array) -> Array:
        if y.ndim == 3 and not rows:
            return y
        places = y if y.ndim == 3 else y.transpose(0, 2, 1, 3)
        parts = [each[:length] for each, length in zip(places, lengths, strict=True)]
        return np.concatenate(parts)

    return chosen


def cases() -> list[Case]:
    """Every case."""
    return [
        *products(),
        *elementwise(),
        *norms(),
        *rotaries(),
        *attentions(),
        *quantised(_case),
    ]
