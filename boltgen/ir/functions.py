"""The elementwise functions of one value: one row each, which is all that boltgen knows of them.

A new activation is a row here and a device function of the row's name in
`templates/include/boltgen/activations.h`. The oracle, interval arithmetic, the profiler's
reference, the emitters, the cost model and the tests read the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.ir.dtypes import DType

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
_EXPM1F_ULPS = 1
_SQRTF_ULPS = 3  # the approximate square root; 0 with -prec-sqrt=true
DIVIDE_ULPS = 2  # the approximate division; 0 with -prec-div=true

# Source: Klambauer, Unterthiner, Mayr and Hochreiter, Self-Normalizing Neural Networks, 2017,
# equation 14.
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805

ERF = np.frompyfunc(math.erf, 1, 1)  # NumPy has no erf


def _erf(x: Array) -> Array:
    return np.positive(ERF(x), dtype=np.float64, casting="unsafe")


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

    `value` is made of NumPy's functions alone: the profiler's reference is generated from it, see
    `boltgen.codegen.oracle_functions`. `parameters` names the constants, each with a typical value,
    which tests take. It is monotone between the points of `turns`, of which there is one at most.
    Computed in FP32, from an exact x, its error is at most
    FP32_ULP * (ulps * |f(x)| + input_ulps * |x| + unit_ulps).

    `is_long`: its code is more than a handful of instructions. `is_partial`: only positive numbers
    have a value. A model may spell it otherwise: as an `operator` of `graph.graph`, as x *
    sigmoid(`sigmoid_scale` * x), or as x clipped to `clip_bounds`.
    """

    value: Callable[..., Array]
    parameters: Mapping[str, float] = field(default_factory=dict)
    ulps: float = 0.0
    input_ulps: float = 0.0
    unit_ulps: Callable[..., float] = lambda *_: 0.0
    turns: tuple[float, ...] = ()
    is_long: bool = True
    is_partial: bool = False
    operator: str | None = None
    sigmoid_scale: float | None = None
    clip_bounds: tuple[float, float] | None = None


class UnaryOp(Enum):
    """Elementwise functions of one value; the value is the name of the device function.

    Composed functions add the ulps of their steps; the comments say where a step's error does not
    scale with the result. Turning points are the roots of the derivative, to double precision.
    """

    _value_: str

    NEGATE = ("negate", Function(value=np.negative, operator="negative", is_long=False))
    ABS = ("abs", Function(value=np.abs, turns=(0.0,), operator="abs", is_long=False))
    SQRT = ("sqrt", Function(value=np.sqrt, ulps=_SQRTF_ULPS, operator="sqrt", is_partial=True))
    RSQRT = (
        "rsqrt",
        Function(
            value=lambda x: 1.0 / np.sqrt(x), ulps=_RSQRTF_ULPS, operator="rsqrt", is_partial=True
        ),
    )
    EXP = ("exp", Function(value=np.exp, ulps=_EXPF_ULPS, operator="exp"))
    LOG = ("log", Function(value=np.log, ulps=_LOGF_ULPS, operator="log", is_partial=True))
    ERF = ("erf", Function(value=_erf, ulps=_ERFF_ULPS, operator="erf"))
    TANH = ("tanh", Function(value=np.tanh, ulps=_TANHF_ULPS, operator="tanh"))
    # To the nearest integer, half to even, as ONNX and IEEE 754 have it: no error.
    ROUND = ("round", Function(value=np.rint, operator="round", is_long=False))
    RELU = (
        "relu",
        Function(
            value=lambda x: np.maximum(x, 0.0),
            operator="nn.relu",
            is_long=False,
            clip_bounds=(0.0, math.inf),
        ),
    )
    LEAKY_RELU = (
        "leaky_relu",
        Function(
            value=lambda x, alpha: np.where(x > 0, x, alpha * x),
            ulps=1,
            turns=(0.0,),
            operator="nn.leakyrelu",
            is_long=False,
            parameters={"alpha": 0.1},
        ),
    )
    CLIP = (
        "clip",
        Function(
            value=lambda x, low, high: np.minimum(np.maximum(x, low), high),
            operator="clip",
            is_long=False,
            parameters={"low": -0.5, "high": 6.0},
        ),
    )
    # 1 + erf(x / sqrt 2) cancels for negative x: its absolute error is the error of erf (2 ulp of a
    # number up to 1), of its argument (|t erf'(t)| < 0.5, so 1 ulp of argument is half an ulp) and
    # of the addition (half an ulp of a number up to 2); the product multiplies it by |x| / 2. The
    # kernels' own erfc, which does not cancel, stays below half of that.
    GELU_ERF = (
        "gelu_erf",
        Function(
            value=lambda x: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
            ulps=_ERFF_ULPS,
            input_ulps=3,
            turns=(-0.7517915246935646,),
            operator="nn.gelu",
        ),
    )
    # As above, with tanh for erf. Its argument takes five roundings, |t tanh'(t)| < 0.5.
    GELU_TANH = (
        "gelu_tanh",
        Function(
            value=_gelu_tanh,
            ulps=_TANHF_ULPS,
            input_ulps=4,
            turns=(-0.7524614220710163,),
            operator="nn.gelu_tanh",
        ),
    )
    # 1 / (1 + exp(-x)): the exponential's error, one addition, one division.
    SIGMOID = (
        "sigmoid",
        Function(value=_sigmoid, ulps=_EXPF_ULPS + 1 + DIVIDE_ULPS, operator="sigmoid"),
    )
    SILU = (
        "silu",
        Function(
            value=lambda x: x * _sigmoid(x),
            ulps=_EXPF_ULPS + 2 + DIVIDE_ULPS,
            turns=(-1.2784645427610741,),
            operator="nn.silu",
            sigmoid_scale=1.0,
        ),
    )
    # clip(alpha * x + beta, 0, 1), as ONNX defines it. Unless it is clipped, |alpha * x| <= 1 +
    # |beta|: two roundings of numbers of that size.
    HARDSIGMOID = (
        "hardsigmoid",
        Function(
            value=lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
            unit_ulps=lambda _alpha, beta: 2.0 + abs(beta),
            is_long=False,
            parameters={"alpha": 0.2, "beta": 0.5},
        ),
    )
    # x * clip(x / 6 + 1/2, 0, 1): the clipped factor is off by up to 2 ulps of 1.
    HARDSWISH = (
        "hardswish",
        Function(
            value=lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
            ulps=2,
            input_ulps=2,
            turns=(-1.5,),
            is_long=False,
        ),
    )
    # max(x, 0) + log1p(exp(-|x|)): both terms are positive, so no step cancels.
    SOFTPLUS = ("softplus", Function(value=_softplus, ulps=_EXPF_ULPS + _LOGF_ULPS + 2))
    # x * tanh(softplus(x)), or with n = e (e + 2), e = exp(x): x * n / (n + 2), where the
    # exponential's error counts twice. No step of either cancels.
    MISH = (
        "mish",
        Function(
            value=lambda x: x * np.tanh(_softplus(x)),
            ulps=2 * _EXPF_ULPS + _TANHF_ULPS + DIVIDE_ULPS + 4,
            turns=(-1.1924312145154954,),
        ),
    )
    RELU6 = (
        "relu6",
        Function(
            value=lambda x: np.minimum(np.maximum(x, 0.0), 6.0),
            is_long=False,
            clip_bounds=(0.0, 6.0),
        ),
    )
    # x * sigmoid(1.702 x): as SiLU, and one ulp of the argument u, which |u sigmoid'(u)| < 0.3
    # takes to the result. Source: Hendrycks and Gimpel, Gaussian Error Linear Units, section 2.
    QUICK_GELU = (
        "quick_gelu",
        Function(
            value=lambda x: x * _sigmoid(1.702 * x),
            ulps=_EXPF_ULPS + 2 + DIVIDE_ULPS,
            input_ulps=1,
            turns=(-1.2784645427610741 / 1.702,),
            sigmoid_scale=1.702,
        ),
    )
    # A rounded product. It turns at 0 where alpha is negative.
    ELU = (
        "elu",
        Function(
            value=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
            parameters={"alpha": 0.7},
            ulps=_EXPM1F_ULPS + 1,
            turns=(0.0,),
        ),
    )
    # Two rounded constants and two products.
    SELU = (
        "selu",
        Function(
            value=lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)),
            ulps=_EXPM1F_ULPS + 2,
            operator="nn.selu",
        ),
    )

    def __new__(cls, name: str, function: Function) -> UnaryOp:
        """Make a member whose value is `name`."""
        member = object.__new__(cls)
        member._value_ = name
        return member

    def __init__(self, name: str, function: Function) -> None:
        self.function = function

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its constants."""
        return tuple(self.function.parameters)
