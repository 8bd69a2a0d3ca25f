"""How an IR writes the operators that normalisation makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
# An expression of the IR. Each IR has a class of its own, and they have no base in common.
IRExpr: TypeAlias = Any
Attributes: TypeAlias = Mapping[str, Any]


class Dialect(Protocol):
    """Makes expressions whose types are known; layouts are NHWC, matrices row-major."""

    @property
    def layer_norm_is_wide(self) -> bool:
        """Whether a layer norm of FP16 operands reduces in FP32."""

    def dtype(self, expr: IRExpr) -> str:
        """The dtype of a tensor."""

    def constant(self, array: Array) -> IRExpr:
        """A constant."""

    def tuple_of(self, parts: Sequence[IRExpr]) -> IRExpr:
        """A tuple."""

    def elementwise(self, name: str, *args: IRExpr) -> IRExpr:
        """An operator without attributes, by its neutral name."""

    def again(self, original: IRExpr, args: Sequence[IRExpr]) -> IRExpr:
        """The operator of the call `original` on other arguments."""

    def astype(self, x: IRExpr, dtype: str) -> IRExpr:
        """A cast."""

    def reshape(self, x: IRExpr, shape: Sequence[int]) -> IRExpr:
        """The same elements in another shape."""

    def permute_dims(self, x: IRExpr, axes: Sequence[int]) -> IRExpr:
        """The dimensions in another order."""

    def filter_layout(self, *, channels: int, filters: int, groups: int) -> str | None:
        """The layout in which a convolution's weight is wanted; None to leave it as it is."""

    def conv2d(self, x: IRExpr, weight: IRExpr, layout: str, attrs: Attributes) -> IRExpr:
        """A convolution; where it is grouped, summed and stored in FP32."""

    def matmul(self, a: IRExpr, b: IRExpr) -> IRExpr:
        """The product of (..., M, K) and (..., K, N)."""

    def matmul_columns(self, a: IRExpr, b: IRExpr) -> IRExpr:
        """The product of (..., M, K) and the transpose of (..., N, K)."""

    def pool(self, name: str, x: IRExpr, attrs: Attributes) -> IRExpr:
        """A maximum or average pool in NHWC."""

    def adaptive_avg_pool2d(self, x: IRExpr, attrs: Attributes) -> IRExpr:
        """An adaptive average pool in NHWC."""

    def reduce(self, name: str, x: IRExpr, axes: Sequence[int], *, keepdims: bool) -> IRExpr:
        """A reduction over `axes`."""

    def image_mean(self, x: IRExpr, *, keepdims: bool) -> IRExpr:
        """The means of an NHWC image's channels, where `x` is a cast that nothing else reads."""

    def softmax(self, name: str, x: IRExpr, axis: int) -> IRExpr:
        """A softmax or its logarithm."""

    def resize2d(self, x: IRExpr, attrs: Attributes) -> IRExpr:
        """An image in NHWC resized to `attrs["size"]`."""

    def concat(self, xs: Sequence[IRExpr], axis: int) -> IRExpr:
        """The tensors one after the other along `axis`."""

    def stack(self, xs: Sequence[IRExpr]) -> IRExpr:
        """The tensors one after the other along a new first dimension."""

    def pad(self, x: IRExpr, widths: Sequence[tuple[int, int]], attrs: Attributes) -> IRExpr:
        """`x` with `widths` elements put before and after each dimension."""


def as_c_array(array: Array) -> Array:
    """The array in C order, its rank kept (which `ascontiguousarray` does not do for scalars)."""
    return np.asarray(array, order="C")
