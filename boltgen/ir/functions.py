"""The elementwise functions of an epilogue in FP64, and how well FP32 code can compute each.

For every `UnaryOp`: its value, the points where it turns, and a bound on the rounding error of a
careful FP32 implementation. `reference` walks epilogue graphs with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import UnaryOp

Array: TypeAlias = NDArray[np.float64]

# One ulp of an FP32 value is at most this fraction of it.
FP32_ULP = DType.F32.ulp

# CUDA's maximum errors in ulp, of the functions and not of their fast-math intrinsics.
# Source: CUDA C++ Programming Guide, mathematical functions, single precision.
_EXPF_ULPS = 2
_LOGF_ULPS = 1
_ERFF_ULPS = 2
_TANHF_ULPS = 2
_RSQRTF_ULPS = 2
_SQRTF_ULPS = 3  # the approximate square root; 0 with -prec-sqrt=true
DIVIDE_ULPS = 2  # the approximate division; 0 with -prec-div=true

_erf_object = np.frompyfunc(math.erf, 1, 1)  # NumPy has no erf


def _erf(x: Array) -> Array:
    return np.asarray(_erf_object(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    # exp of a negative number only, so that no large argument overflows.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gelu_tanh(x: Array) -> Array:
    # Source: Hendrycks and Gimpel, Gaussian Error Linear Units, section 2.
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + np.tanh(inner))


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of one value (and of its constants, rounded to FP32).

    It is monotone between the points of `turns`. Computed in FP32, from an exact x, its error is
    at most FP32_ULP * (ulps * |f(x)| + input_ulps * |x| + unit_ulps).
    """

    value: Callable[..., Array]
    ulps: float = 0.0
    input_ulps: float = 0.0
    unit_ulps: Callable[..., float] = lambda *_: 0.0
    turns: tuple[float, ...] = ()


# Composed functions add the ulps of their steps; the comments say where a step's error does not
# scale with the result. Turning points are the roots of the derivative, to double precision.
FUNCTIONS: dict[UnaryOp, Function] = {
    UnaryOp.NEGATE: Function(value=np.negative),
    UnaryOp.ABS: Function(value=np.abs, turns=(0.0,)),
    UnaryOp.SQRT: Function(value=np.sqrt, ulps=_SQRTF_ULPS),
    UnaryOp.RSQRT: Function(value=lambda x: 1.0 / np.sqrt(x), ulps=_RSQRTF_ULPS),
    UnaryOp.EXP: Function(value=np.exp, ulps=_EXPF_ULPS),
    UnaryOp.LOG: Function(value=np.log, ulps=_LOGF_ULPS),
    UnaryOp.ERF: Function(value=_erf, ulps=_ERFF_ULPS),
    UnaryOp.TANH: Function(value=np.tanh, ulps=_TANHF_ULPS),
    UnaryOp.RELU: Function(value=lambda x: np.maximum(x, 0.0)),
    UnaryOp.LEAKY_RELU: Function(
        value=lambda x, alpha: np.where(x > 0, x, alpha * x), ulps=1, turns=(0.0,)
    ),
    UnaryOp.CLIP: Function(value=lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    # 1 + erf(x / sqrt 2) cancels for negative x: its absolute error is that of erf (2 ulp of a
    # number up to 1), of its argument (|t erf'(t)| < 0.5, so 1 ulp of argument is half an ulp)
    # and of the addition (half an ulp of a number up to 2); the product takes it times |x| / 2.
    UnaryOp.GELU_ERF: Function(
        value=lambda x: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
        ulps=_ERFF_ULPS,
        input_ulps=3,
        turns=(-0.7517915246935646,),
    ),
    # As above, with tanh for erf. Its argument takes five roundings, |t tanh'(t)| < 0.5.
    UnaryOp.GELU_TANH: Function(
        value=_gelu_tanh, ulps=_TANHF_ULPS, input_ulps=4, turns=(-0.7524614220710163,)
    ),
    # 1 / (1 + exp(-x)): the exponential's error, one addition, one division.
    UnaryOp.SIGMOID: Function(value=_sigmoid, ulps=_EXPF_ULPS + 1 + DIVIDE_ULPS),
    UnaryOp.SILU: Function(
        value=lambda x: x * _sigmoid(x),
        ulps=_EXPF_ULPS + 2 + DIVIDE_ULPS,
        turns=(-1.2784645427610741,),
    ),
    # Where it is not clipped, |alpha * x| <= 1 + |beta|: two roundings of numbers of that size.
    UnaryOp.HARDSIGMOID: Function(
        value=lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
        unit_ulps=lambda _alpha, beta: 2.0 + abs(beta),
    ),
    # x * clip(x / 6 + 1/2, 0, 1): the clipped factor is off by up to 2 ulps of 1.
    UnaryOp.HARDSWISH: Function(
        value=lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0, ulps=2, input_ulps=2, turns=(-1.5,)
    ),
    # max(x, 0) + log1p(exp(-|x|)): both terms are positive, so no step cancels.
    UnaryOp.SOFTPLUS: Function(value=_softplus, ulps=_EXPF_ULPS + _LOGF_ULPS + 2),
    # x * tanh(softplus(x)), or with n = e (e + 2), e = exp(x): x * n / (n + 2), where the
    # exponential's error counts twice. No step of either cancels.
    UnaryOp.MISH: Function(
        value=lambda x: x * np.tanh(_softplus(x)),
        ulps=2 * _EXPF_ULPS + _TANHF_ULPS + DIVIDE_ULPS + 4,
        turns=(-1.1924312145154954,),
    ),
}
