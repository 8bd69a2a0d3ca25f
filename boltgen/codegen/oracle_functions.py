"""Write the oracle's functions as CUDA C++ in FP64, for the profiler's reference.

Each function of `UnaryOp` is called once with a value that records NumPy's operations as C++, so
that oracle and reference have one source. Generated kernels do not use it: their device functions
are in `boltgen/activations.h`.
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
# `maximum` and `minimum` are in profiler/interval.cuh; they propagate NaN as NumPy's do.
_CALLS: dict[Callable[..., Any], str] = {
    np.negative: "-",
    np.positive: "",
    np.absolute: "fabs",
    np.sqrt: "sqrt",
    np.rint: "rint",
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
    """A value that stands for the C++ expression `text`."""

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
    """Return `unary_function`, a C++ switch over the functions in the order of `UnaryOp`."""
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
