"""Predicted times of a layer on floats and on integers."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from boltgen.arch import Arch
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.passes.quantisation.products_of_bytes import widened
from boltgen.pipeline import PipelineOptions
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.quantiser.layers import Product
from boltgen.quantiser.observers import Array, Histogram
from boltgen.tuning.choice.fusion import predicted_us
from boltgen.tvm_build.model import import_model, partition


class NoTimesError(Exception):
    """Carries the reason why a layer has no times: it stays as it is."""


def times_of(
    layer: Product, weight: Array, seen: Mapping[str, Histogram], arch: Arch
) -> tuple[float, float]:
    """Return a layer's predicted time in FP16, and in INT8 with a result of INT8, in us.

    Raises:
        NoTimesError: no kernel of integers computes it, or none at all.
    """
    try:
        floats = _problem(layer, weight, seen[layer.activation].shape, seen[layer.output].shape)
        types: dict[str, Any] = {"in_dtype": DType.I8, "acc_dtype": DType.I32}
        if layer.operator == "Conv" and floats.groups == 1:
            types["c"] = widened(floats.c)
        integers: Any = replace(floats, **types, out_dtype=DType.I8)
        both = Layer(problem=floats), Layer(problem=integers, epilogue=_requantised())
        of_floats, of_integers = (predicted_us(Workload(layers=(each,)), arch) for each in both)
    except NoLegalConfigError:
        raise NoTimesError(f"no kernel of integers computes it on {arch.name}") from None
    except InvalidProblemError as error:
        raise NoTimesError(str(error)) from None
    return of_floats, of_integers


def whole_us(model: Any, sample: Mapping[str, Array], arch: Arch) -> float:
    """Return the predicted time of a whole ONNX model for a sample's sizes, in us.

    Raises:
        ModelImportError: boltgen cannot import the model.
        ToolchainError: no TVM with Relax is installed.
    """
    shapes = {name: array.shape for name, array in sample.items()}
    options = PipelineOptions(shapes=shapes, frontend="relax")
    with tempfile.TemporaryDirectory(prefix="boltgen-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        imported = import_model(path, options)
    partition(imported, arch.name, options)
    # It imports TVM, which a user without Relax has not.
    times = importlib.import_module("boltgen.tvm_build.predicted")
    return float(times.model_times(imported, arch).total_us)


def _requantised() -> ElementwiseGraph:
    """Sums with a correction, times a scale, for each channel, as integers again."""
    builder = ElementwiseBuilder(whole=True)
    row = builder.load(LoadKind.ROW, DType.I32)
    total = builder.cast(builder.binary(BinaryOp.ADD, 0, row), DType.F32)
    scaled = builder.binary(BinaryOp.MULTIPLY, total, builder.load(LoadKind.ROW, DType.F32))
    builder.unary(UnaryOp.CLIP, builder.unary(UnaryOp.ROUND, scaled), -128, 127)
    return builder.build()


def _problem(layer: Product, weight: Array, shape: tuple[int, ...], result: tuple[int, ...]) -> Any:
    attributes = layer.attributes
    if layer.operator != "Conv":
        if weight.ndim != 2:
            raise NoTimesError("its weight is no matrix")
        n = weight.shape[layer.axis]
        if n == 1:
            raise NoTimesError("it has one column, which takes as long to read as floats")
        return Gemm(m=prod(shape[:-1]), n=n, k=shape[-1], b_layout=Layout.COLUMN)
    groups = attributes.get("group", 1)
    if weight.ndim not in {3, 4}:
        raise NoTimesError(f"it is a convolution of {weight.ndim - 2} dimensions")
    if 1 < groups == shape[1]:
        raise NoTimesError("a depthwise convolution has no kernel of integers")
    stride, dilation = (
        _of_image(attributes.get(name, (1, 1)[: weight.ndim - 2]), 1)
        for name in ("strides", "dilations")
    )
    *_, h, w = (1, 1, *shape[2:])
    *_, r, s = (1, 1, *weight.shape[2:])
    plain = Conv2d(
        n=shape[0],
        h=h,
        w=w,
        c=shape[1],
        k=weight.shape[0],
        r=r,
        s=s,
        stride=stride,
        padding=_pads(attributes),
        dilation=dilation,
        groups=groups,
    )
    # By `auto_pad`, as many pixels as the result's extents ask for; where, changes no time.
    *_, p, q = (1, 1, *result[2:])
    top, left, bottom, right = plain.padding
    bottom += (p - plain.p) * stride[0]
    right += (q - plain.q) * stride[1]
    return replace(plain, padding=(top, left, bottom, right))


def _of_image(numbers: Any, missing: int) -> tuple[int, int]:
    """Return two numbers: rows of pixels are images of height one."""
    first, second = (missing, *numbers)[-2:] if len(numbers) == 1 else tuple(numbers)
    return int(first), int(second)


def _pads(attributes: Mapping[str, Any]) -> tuple[int, int, int, int]:
    pads = attributes.get("pads", (0, 0))
    half = len(pads) // 2
    (top, left), (bottom, right) = _of_image(pads[:half], 0), _of_image(pads[half:], 0)
    return top, left, bottom, right
