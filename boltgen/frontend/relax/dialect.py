"""How Relax writes the operators that normalisation makes."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax

from boltgen.frontend.normalise.dialect import Array, Attributes
from boltgen.frontend.relax.translate import static_shape


class RelaxDialect:
    """Binds each expression to a variable, whose type TVM infers at once."""

    layer_norm_is_wide = True

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.emit = builder.emit

    def dtype(self, expr: ir.Expr) -> str:
        """The dtype of a tensor."""
        return str(expr.ty.dtype)

    def constant(self, array: Array) -> ir.Expr:
        """A constant."""
        return relax.const(array, str(array.dtype))

    def tuple_of(self, parts: Sequence[ir.Expr]) -> ir.Expr:
        """A tuple."""
        return ir.Tuple(list(parts))

    def elementwise(self, name: str, *args: ir.Expr) -> ir.Expr:
        """An operator without attributes, by its neutral name."""
        if name == "nn.softplus":
            return self.emit(relax.op.nn.softplus(*args))
        return self.emit(ir.Call(ir.Op.get(f"relax.{name}"), list(args)))

    def again(self, original: ir.Call, args: Sequence[ir.Expr]) -> ir.Expr:
        """The operator of the call `original` on other arguments."""
        return self.emit(ir.Call(original.op, list(args), original.attrs, original.ty_args))

    def astype(self, x: ir.Expr, dtype: str) -> ir.Expr:
        """A cast."""
        return self.emit(relax.op.astype(x, dtype))

    def reshape(self, x: ir.Expr, shape: Sequence[int]) -> ir.Expr:
        """The same elements in another shape."""
        return self.emit(relax.op.reshape(x, tuple(shape)))

    def permute_dims(self, x: ir.Expr, axes: Sequence[int]) -> ir.Expr:
        """The dimensions in another order."""
        return self.emit(relax.op.permute_dims(x, list(axes)))

    def filter_layout(self, *, channels: int, filters: int, groups: int) -> str | None:
        """OHWI, which is what kernels read, and what TVM computes a convolution in too."""
        del channels, filters, groups
        return "OHWI"

    def conv2d(self, x: ir.Expr, weight: ir.Expr, layout: str, attrs: Attributes) -> ir.Expr:
        """A convolution; where it is grouped, summed and stored in FP32."""
        product = relax.op.nn.conv2d(
            x,
            weight,
            strides=attrs["strides"],
            padding=attrs["padding"],
            dilation=attrs["dilation"],
            groups=attrs["groups"],
            data_layout="NHWC",
            kernel_layout=layout,
            out_dtype="float32" if attrs["groups"] != 1 else None,
        )
        return self.emit(product)

    def matmul(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """The product of (..., M, K) and (..., K, N)."""
        return self.emit(relax.op.matmul(a, b))

    def matmul_columns(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """The product of (..., M, K) and the transpose of (..., N, K)."""
        rank = len(b.ty.shape.values)
        return self.matmul(a, self.permute_dims(b, (*range(rank - 2), rank - 1, rank - 2)))

    def pool(self, name: str, x: ir.Expr, attrs: Attributes) -> ir.Expr:
        """A maximum or average pool in NHWC."""
        options = {key: value for key, value in attrs.items() if key != "out_layout"}
        op = getattr(relax.op.nn, name.removeprefix("nn."))
        return self.emit(op(x, **{**options, "layout": "NHWC"}))

    def adaptive_avg_pool2d(self, x: ir.Expr, attrs: Attributes) -> ir.Expr:
        """An adaptive average pool in NHWC."""
        return self.emit(relax.op.nn.adaptive_avg_pool2d(x, attrs["output_size"], layout="NHWC"))

    def reduce(self, name: str, x: ir.Expr, axes: Sequence[int], *, keepdims: bool) -> ir.Expr:
        """A reduction over `axes`."""
        return self.emit(getattr(relax.op, name)(x, list(axes), keepdims=keepdims))

    def image_mean(self, x: ir.Expr, *, keepdims: bool) -> ir.Expr:
        """A sum and a division: TVM fuses casts into sums, and none into means."""
        _, h, w, _ = static_shape(x.ty)
        total = self.reduce("sum", x, [1, 2], keepdims=keepdims)
        return self.emit(relax.op.divide(total, relax.const(float(h * w), self.dtype(x))))

    def softmax(self, name: str, x: ir.Expr, axis: int) -> ir.Expr:
        """A softmax or its logarithm."""
        return self.emit(getattr(relax.op.nn, name.removeprefix("nn."))(x, axis=axis))

    def resize2d(self, x: ir.Expr, attrs: Attributes) -> ir.Expr:
        """An image in NHWC resized to `attrs["size"]`."""
        options = {key: value for key, value in attrs.items() if key != "out_dtype"}
        return self.emit(relax.op.image.resize2d(x, **{**options, "layout": "NHWC"}))

    def concat(self, xs: Sequence[ir.Expr], axis: int) -> ir.Expr:
        """The tensors one after the other along `axis`."""
        return self.emit(relax.op.concat(list(xs), axis))

    def stack(self, xs: Sequence[ir.Expr]) -> ir.Expr:
        """The tensors one after the other along a new first dimension."""
        return self.emit(relax.op.stack(list(xs), 0))

    def pad(self, x: ir.Expr, widths: Sequence[tuple[int, int]], attrs: Attributes) -> ir.Expr:
        """`x` with `widths` elements put before and after each dimension."""
        flat = [width for pair in widths for width in pair]
        return self.emit(relax.op.nn.pad(x, flat, attrs["mode"], attrs["value"]))
