"""How Relay writes the operators that normalisation makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relay

from boltgen.frontend.normalise.dialect import Array, Attributes

_FLOATS = frozenset({"float16", "float32"})


def _softplus(x: relay.Expr) -> relay.Expr:
    """Relay has no such operator; written so, exp cannot overflow."""
    tail = relay.log(relay.add(relay.exp(relay.negative(relay.abs(x))), relay.const(1.0)))
    return relay.add(relay.nn.relu(x), tail)


_NAMED = {
    "add": relay.add,
    "divide": relay.divide,
    "multiply": relay.multiply,
    "maximum": relay.maximum,
    "minimum": relay.minimum,
    "nn.relu": relay.nn.relu,
    "nn.softplus": _softplus,
}


class RelayDialect:
    """Relay infers types for whole modules only, so the dtypes of new expressions are kept here."""

    # TVM expands a layer norm into operators of its input's type.
    layer_norm_is_wide = False

    def __init__(self) -> None:
        self._dtypes: dict[relay.Expr, str] = {}

    def know(self, expr: relay.Expr, dtype: str) -> relay.Expr:
        """Remember an expression's dtype."""
        self._dtypes[expr] = dtype
        return expr

    def dtype(self, expr: relay.Expr) -> str:
        """The dtype of a tensor."""
        return self._dtypes[expr]

    def constant(self, array: Array) -> relay.Expr:
        """A constant."""
        dtype = str(array.dtype)
        return self.know(relay.const(array, dtype), dtype)

    def tuple_of(self, parts: Sequence[relay.Expr]) -> relay.Expr:
        """A tuple."""
        return relay.Tuple(list(parts))

    def elementwise(self, name: str, *args: relay.Expr) -> relay.Expr:
        """An operator without attributes, by its neutral name."""
        return self.know(_NAMED[name](*args), self.dtype(args[0]))

    def again(self, original: relay.Call, args: Sequence[relay.Expr]) -> relay.Expr:
        """The operator of the call `original` on other arguments."""
        made = relay.Call(original.op, list(args), original.attrs, original.type_args)
        logical = str(original.checked_type.dtype)
        floats = [self.dtype(arg) for arg in args if self.dtype(arg) in _FLOATS]
        return self.know(made, floats[0] if floats and logical in _FLOATS else logical)

    def astype(self, x: relay.Expr, dtype: str) -> relay.Expr:
        """A cast."""
        return self.know(relay.cast(x, dtype), dtype)

    def reshape(self, x: relay.Expr, shape: Sequence[int]) -> relay.Expr:
        """The same elements in another shape."""
        return self.know(relay.reshape(x, list(shape)), self.dtype(x))

    def permute_dims(self, x: relay.Expr, axes: Sequence[int]) -> relay.Expr:
        """The dimensions in another order."""
        return self.know(relay.transpose(x, list(axes)), self.dtype(x))

    def filter_layout(self, *, channels: int, filters: int, groups: int) -> str | None:
        """HWIO, for which Relay has a schedule should the convolution stay with TVM.

        None for a grouped convolution that Relay has no NHWC schedule for.
        """
        if groups == 1:
            return "HWIO"
        return "HWOI" if groups == channels == filters else None

    def conv2d(
        self, x: relay.Expr, weight: relay.Expr, layout: str, attrs: Attributes
    ) -> relay.Expr:
        """A convolution; where it is grouped, summed and stored in FP32."""
        out_dtype = "float32" if attrs["groups"] != 1 else "float16"
        made = relay.nn.conv2d(
            x,
            weight,
            strides=attrs["strides"],
            padding=attrs["padding"],
            dilation=attrs["dilation"],
            groups=attrs["groups"],
            channels=attrs["channels"],
            kernel_size=attrs["kernel_size"],
            data_layout="NHWC",
            kernel_layout=layout,
            out_dtype=out_dtype,
        )
        return self.know(made, out_dtype)

    def matmul(self, a: relay.Expr, b: relay.Expr) -> relay.Expr:
        """The product of (..., M, K) and (..., K, N)."""
        return self._product(a, b, columns=False)

    def matmul_columns(self, a: relay.Expr, b: relay.Expr) -> relay.Expr:
        """The product of (..., M, K) and the transpose of (..., N, K)."""
        return self._product(a, b, columns=True)

    def _product(self, a: relay.Expr, b: relay.Expr, *, columns: bool) -> relay.Expr:
        if self.rank(b) > 2:
            made = relay.nn.batch_matmul(a, b, "float16", False, columns)
        elif columns:
            made = relay.nn.dense(a, b, out_dtype="float16")
        else:
            made = relay.nn.matmul(a, b, None, "float16", False, False)
        return self.know(made, "float16")

    def rank(self, expr: relay.Expr) -> int:
        """The rank of a tensor, by inferring its type."""
        if isinstance(expr, relay.Constant):
            return len(expr.data.shape)
        return len(relay.transform.InferTypeLocal(expr).shape)

    def pool(self, name: str, x: relay.Expr, attrs: Attributes) -> relay.Expr:
        """A maximum or average pool in NHWC."""
        options: dict[str, Any] = {
            "pool_size": attrs["pool_size"],
            "strides": attrs["strides"],
            "padding": attrs["padding"],
            "dilation": attrs["dilation"],
            "ceil_mode": attrs["ceil_mode"],
            "layout": "NHWC",
        }
        if name == "nn.max_pool2d":
            return self.know(relay.nn.max_pool2d(x, **options), self.dtype(x))
        made = relay.nn.avg_pool2d(x, count_include_pad=attrs["count_include_pad"], **options)
        return self.know(made, self.dtype(x))

    def adaptive_avg_pool2d(self, x: relay.Expr, attrs: Attributes) -> relay.Expr:
        """An adaptive average pool in NHWC."""
        made = relay.nn.adaptive_avg_pool2d(x, attrs["output_size"], layout="NHWC")
        return self.know(made, self.dtype(x))

    def reduce(
        self, name: str, x: relay.Expr, axes: Sequence[int], *, keepdims: bool
    ) -> relay.Expr:
        """A reduction over `axes`."""
        made = getattr(relay, name)(x, axis=list(axes), keepdims=keepdims)
        return self.know(made, self.dtype(x))

    def image_mean(self, x: relay.Expr, *, keepdims: bool) -> relay.Expr:
        """A mean: TVM fuses casts into it."""
        return self.reduce("mean", x, [1, 2], keepdims=keepdims)

    def softmax(self, name: str, x: relay.Expr, axis: int) -> relay.Expr:
        """A softmax or its logarithm."""
        made = getattr(relay.nn, name.removeprefix("nn."))(x, axis=axis)
        return self.know(made, self.dtype(x))

    def resize2d(self, x: relay.Expr, attrs: Attributes) -> relay.Expr:
        """An image in NHWC resized to `attrs["size"]`."""
        made = relay.image.resize2d(
            x,
            attrs["size"],
            attrs["roi"],
            "NHWC",
            attrs["method"],
            attrs["coordinate_transformation_mode"],
            attrs["rounding_method"],
            attrs["cubic_alpha"],
            attrs["cubic_exclude"],
            attrs["extrapolation_value"],
        )
        return self.know(made, self.dtype(x))

    def concat(self, xs: Sequence[relay.Expr], axis: int) -> relay.Expr:
        """The tensors one after the other along `axis`."""
        return self.know(relay.concatenate(relay.Tuple(list(xs)), axis), self.dtype(xs[0]))

    def stack(self, xs: Sequence[relay.Expr]) -> relay.Expr:
        """The tensors one after the other along a new first dimension."""
        return self.know(relay.stack(relay.Tuple(list(xs)), 0), self.dtype(xs[0]))

    def pad(
        self, x: relay.Expr, widths: Sequence[tuple[int, int]], attrs: Attributes
    ) -> relay.Expr:
        """`x` with `widths` elements put before and after each dimension."""
        made = relay.nn.pad(x, tuple(widths), attrs["value"], attrs["mode"])
        return self.know(made, self.dtype(x))
