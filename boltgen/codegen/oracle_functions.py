"""The oracle's functions as CUDA C++ in FP64: the profiler's reference uses them.

A function of `UnaryOp` is called once with a value that writes down what NumPy is asked to do with
it, so that oracle and reference are one text. Generated kernels share nothing with it: their device
functions are in `boltgen/activations.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from boltgen.ir.functions import ERF, UnaryOp

_INFIX: dict[Callable[..., Any], str] = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.divide: "/",
    np.greater: ">",
    np.greater_equal: ">=",
    np.less: "<",
    np.less_equal: "<=",
}
# `maximum` and `minimum` come from profiler/interval.cuh, and pass NaN on as NumPy's do.
_CALLS: dict[Callable[..., Any], str] = {
    np.negative: "-",
    np.positive: "",
    np.absolute: "fabs",
    np.sqrt: "sqrt",
    np.exp: "exp",
    np.expm1: "expm1",
    np.log: "log",
    np.log1p: "log1p",
    np.tanh: "tanh",
    ERF: "erf",
    np.maximum: "maximum",
    np.minimum: "minimum",
}


class _Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A value whose C++ expression is `text`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **_: Any) -> _Traced:
        texts = [_text(arg) for arg in args]
        if method == "__call__" and ufunc in _INFIX:
            return _Traced(f"({texts[0]} {_INFIX[ufunc]} {texts[1]})")
        if method == "__call__" and ufunc in _CALLS:
            return _Traced(f"{_CALLS[ufunc]}({', '.join(texts)})")
        raise TypeError(f"no C++ for NumPy's {ufunc.__name__}, {method}")

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, args: Any, _kwargs: Any
    ) -> _Traced:
        texts = [_text(arg) for arg in args]
        if function is np.where and len(texts) == 3:
            return _Traced("({} ? {} : {})".format(*texts))
        if function is np.clip and len(texts) == 3:
            return _Traced("minimum(maximum({}, {}), {})".format(*texts))
        raise TypeError(f"no C++ for NumPy's {function.__name__} of {len(texts)} arguments")


def _text(value: Any) -> str:
    if isinstance(value, _Traced):
        return value.text
    number = float(value)
    if not math.isfinite(number):
        raise TypeError(f"no C++ for the constant {number}")
    return number.hex() if number >= 0 else f"({number.hex()})"


def render_oracle_functions() -> str:
    """`unary_function`, a switch over the functions in the order of `UnaryOp`."""
    lines = [
        f"constexpr int kUnaryFunctions = {len(UnaryOp)};",
        "",
        "__device__ inline double unary_function(int index, double x, double first, double second)"
        " {",
        "  (void)first, (void)second;",
        "  switch (index) {",
    ]
    for index, op in enumerate(UnaryOp):
        constants = [_Traced(name) for name in ("first", "second")][: len(op.parameters)]
        value: Any = op.function.value(_Traced("x"), *constants)
        lines += [f"    case {index}:  // {op.value}", f"      return {_text(value)};"]
    return "\n".join([*lines, "    default:", "      return no_case();", "  }", "}", ""])
