"""Single-operator models of com.microsoft's quantised operators, for `contrib_cases`.

Operands are numbers, scales and zero points, one after another, as the operators have them. No
quotient of scales is a short decimal: a half would be rounded as each implementation's steps have
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np

_Array: TypeAlias = "np.ndarray[Any, Any]"
_T = TypeVar("_T")


def whole(*shape: int, dtype: str = "uint8", seed: int = 0) -> _Array:
    """Random integers of a type, all of them."""
    ends = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)


def _operand(
    name: str, numbers: _Array, scale: float | _Array, zero: int | list[int] | _Array | None = 0
) -> dict[str, _Array | None]:
    kind = numbers.dtype.type
    return {
        name: numbers,
        f"{name}s": np.asarray(scale, np.float32),
        f"{name}z": None if zero is None else np.asarray(zero).astype(kind),
    }


def _result(scale: float, zero: int, dtype: str = "uint8") -> dict[str, _Array | None]:
    return {"ys": np.asarray(scale, np.float32), "yz": np.asarray(zero).astype(dtype)}


def _order(operator: str, inputs: Mapping[str, _Array | None]) -> dict[str, _Array | None]:
    """Put inputs in the operator's order, where scales follow both operands."""
    names = {"QGemm": "a as az b bs bz c ys yz", "MatMulIntegerToFloat": "a b as bs az bz c"}
    order = names[operator].split()
    return {name: inputs.get(name) for name in order if name in inputs}


def quantised(case: Callable[..., _T]) -> list[_T]:
    """Make the cases of quantised operators, each of an operator, a form, inputs and constants."""
    x = _operand("a", whole(3, 4, 8), 0.0213, 120)
    other = _operand("b", whole(4, 8, seed=1), 0.0517, 7)
    narrow = _operand("a", whole(3, 4, 8, dtype="int8"), 0.0213, -3)
    image = _operand("a", whole(2, 4, 6, 6), 0.0213, 120)
    last = _operand("a", whole(2, 6, 6, 4), 0.0213, 120)
    numbers = "as az bs bz ys yz"
    end = _result(0.0437, 99)
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    made = [
        *(case(f"QLinear{name}", "broadcast", {**x, **other, **end}, numbers) for name in ("Add",
          "Mul")),
        case("QLinearAdd", "int8", {**narrow, **_operand("b", whole(3, 4, 8, dtype="int8", seed=1),
             0.03, 5), **_result(0.05, -9, "int8")}, numbers),
        case("QLinearAdd", "a constant", {**x, **other, **end}, f"b {numbers}"),
        case("QLinearSigmoid", "plain", {**x, **_result(1 / 256, 0)}, numbers),
        case("QLinearSigmoid", "int8", {**narrow, **_result(1 / 256, -128, "int8")}, numbers),
        case("QLinearLeakyRelu", "alpha", {**x, **end}, numbers, attributes={"alpha": 0.2}),
        case("QLinearSoftmax", "last", {**x, **_result(1 / 256, 0)}, numbers,
             attributes={"opset": 13, "axis": -1}),
        case("QLinearReduceMean", "axes", {**x, **end}, numbers, attributes={"axes": [1],
             "keepdims": 0}, reference=_mean),
        case("QLinearGlobalAveragePool", "plain", {**image, **end}, numbers),
        case("QLinearGlobalAveragePool", "channels last", {**last, **end}, numbers,
             attributes={"channels_last": 1}),
        case("QLinearAveragePool", "padded", {**image, **end}, numbers, attributes=window),
        case("QLinearAveragePool", "padding counts, channels last", {**last, **end}, numbers,
             attributes={**window, "count_include_pad": 1, "channels_last": 1}),
        case("QLinearConcat", "three", {**end, **x, **_operand("b", whole(3, 2, 8, seed=1), 0.03,
             9), **_operand("c", whole(3, 1, 8, seed=2), 0.04, 99)}, f"{numbers} cs cz",
             attributes={"axis": 1}),
        case("QLinearWhere", "broadcast", {"chosen": whole(3, 4, 8) > 99, **x, **other, **end},
             numbers),
        *_convolutions(case),
        *_products(case),
    ]  # fmt: skip
    return made


def _mean(a: _Array, *given: _Array, axes: list[int], keepdims: int) -> list[_Array]:
    """The exact mean: ONNX Runtime's CPU build has no such operator."""
    scale, zero, end, middle = (each.astype(np.float64) for each in given)
    mean = ((a - zero) * scale).mean(tuple(axes), keepdims=bool(keepdims))
    return [np.clip(np.rint(mean / end) + middle, 0, 255).astype(np.uint8)]


def _convolutions(case: Callable[..., _T]) -> list[_T]:
    image = _operand("a", whole(2, 4, 6, 6), 0.0213, 120)
    filters = _operand("b", whole(8, 4, 3, 3, dtype="int8"), np.linspace(0.01, 0.03, 8), [0] * 8)
    bias = {"c": np.arange(-400, 400, 100, dtype=np.int32)}
    last = _operand("a", whole(2, 6, 6, 4), 0.0213, 120)
    numbers, pads = "as az b bs bz ys yz c", {"pads": [1, 1, 1, 1]}
    end = _result(0.5, 110)
    return [
        case("QLinearConv", "per channel", {**image, **filters, **end, **bias}, numbers,
             attributes=pads),
        case("QLinearConv", "channels last", {**last, **filters, **end}, numbers,
             attributes={**pads, "channels_last": 1}),
    ]  # fmt: skip


def _products(case: Callable[..., _T]) -> list[_T]:
    a = _operand("a", whole(12, 32), 0.0213, 120)
    b = _operand("b", whole(32, 16, dtype="int8"), 0.01, 0)
    columns = _operand("b", whole(16, 32, dtype="int8"), np.linspace(0.01, 0.02, 16), [0] * 16)
    bias: dict[str, _Array | None] = {"c": np.arange(16, dtype=np.int32) * 100 - 700}
    floats: dict[str, _Array | None] = {"c": np.linspace(-1, 1, 16, dtype=np.float32)}
    numbers, end = "as az b bs bz c ys yz", _result(0.5, 110)
    gemm = [
        ("bias", {**a, **b, **bias, **end}, {}),
        ("floats", {**a, **b, **bias}, {}),
        ("transB, per channel", {**a, **columns, **bias, **end}, {"transB": 1}),
        ("no bias", {**a, **b, "c": None, **end}, {"alpha": 2.0}),
    ]
    x = np.random.default_rng(5).standard_normal((12, 32)).astype(np.float32)
    given = {"bs": b["bs"], "bz": b["bz"]}
    return [
        *(case("QGemm", form, _order("QGemm", inputs), numbers, attributes=more)
          for form, inputs, more in gemm),
        case("MatMulIntegerToFloat", "bias", _order("MatMulIntegerToFloat", {**a, **b, **floats}),
             "b bs bz c"),
        case("MatMulIntegerToFloat", "known scales, per channel",
             _order("MatMulIntegerToFloat", {**a, **b, "bs": np.linspace(0.01, 0.02, 16,
                    dtype=np.float32), "bz": None}), "as az b bs"),
        case("DynamicQuantizeMatMul", "bias", {"x": x, "b": b["b"], **given, **floats},
             "b bs bz c"),
        case("DynamicQuantizeMatMul", "plain", {"x": x, "b": b["b"], "bs": b["bs"]}, "b bs"),
    ]  # fmt: skip
