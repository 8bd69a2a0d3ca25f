"""The NumPy semantics of operators with windows, axes and layouts, against PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.numpy_semantics.operators import compute

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 4, 9, 10)).astype(np.float32)
SCALE, SHIFT, MEAN, VARIANCE = RNG.uniform(0.5, 2.0, (4, 4)).astype(np.float32)
TO_NHWC = (0, 2, 3, 1)


def _check(name: str, wanted: torch.Tensor, *arrays: Any, **attrs: object) -> None:
    """Compare with FP32 results of both: of sums of up to 288 products of numbers of about 1."""
    expected = wanted.numpy()
    known = attributes_of(name, attrs)
    operation = Operation(name=name, attrs=known, shape=expected.shape, dtype="float32")
    np.testing.assert_allclose(compute(operation, arrays), expected, rtol=0, atol=288 * 2.0**-23)


def _tensors(*arrays: Any) -> tuple[torch.Tensor, ...]:
    return tuple(map(torch.from_numpy, arrays))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("window", [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))])
@pytest.mark.parametrize("is_last", [False, True])
def test_convolutions(groups: int, window: tuple[tuple[int, int], ...], is_last: bool) -> None:
    strides, padding, dilation = window
    weight = RNG.standard_normal((8, 4 // groups, 3, 2)).astype(np.float32)
    x, w = _tensors(IMAGES, weight)
    wanted = functional.conv2d(x, w, None, strides, padding, dilation, groups)
    attrs = {"strides": strides, "padding": (*padding, *padding), "dilation": dilation}
    layout, kernel = ("NHWC", "OHWI") if is_last else ("NCHW", "OIHW")
    layouts = {"data_layout": layout, "kernel_layout": kernel, "out_layout": layout}
    arrays = [IMAGES, weight]
    if is_last:
        wanted, arrays = wanted.permute(TO_NHWC), [each.transpose(TO_NHWC) for each in arrays]
    _check("nn.conv2d", wanted, *arrays, groups=groups, **attrs, **layouts)


def test_convolutions_of_one_dimension() -> None:
    weight = RNG.standard_normal((6, 2, 3)).astype(np.float32)
    rows = IMAGES[..., 0]
    wanted = functional.conv1d(*_tensors(rows, weight), None, 2, 1, 1, 2)
    attrs = {"strides": (2,), "padding": (1, 1), "dilation": (1,), "groups": 2}
    layouts = {"data_layout": "NCW", "kernel_layout": "OIW", "out_layout": "NCW"}
    _check("nn.conv1d", wanted, rows, weight, **attrs, **layouts)


def test_convolutions_of_three_dimensions() -> None:
    x, weight = RNG.standard_normal((2, 3, 5, 6, 4)), RNG.standard_normal((4, 3, 2, 3, 1))
    volumes, filters = (each.astype(np.float32) for each in (x, weight))
    wanted = functional.conv3d(*_tensors(volumes, filters), None, (1, 2, 1), (1, 1, 0), (2, 1, 1))
    attrs = {"strides": (1, 2, 1), "padding": (1, 1, 0) * 2, "dilation": (2, 1, 1), "groups": 1}
    layouts = {"data_layout": "NCDHW", "kernel_layout": "OIDHW", "out_layout": "NCDHW"}
    _check("nn.conv3d", wanted, volumes, filters, **attrs, **layouts)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank: int, groups: int) -> None:
    x = RNG.standard_normal((2, 4, *(5, 4, 3)[:rank])).astype(np.float32)
    weight = RNG.standard_normal((4, 3, *(2, 3, 1)[:rank])).astype(np.float32)
    strides, padding, dilation = (2, 3, 1)[:rank], (1, 0, 0)[:rank], (2, 1, 1)[:rank]
    extra = (1, 2, 0)[:rank]
    function = getattr(functional, f"conv_transpose{rank}d")
    wanted = function(*_tensors(x, weight), None, strides, padding, extra, groups, dilation)
    attrs = {"strides": strides, "padding": padding * 2, "dilation": dilation, "groups": groups}
    axes = "DHW"[-rank:]
    layouts = {"data_layout": f"NC{axes}", "kernel_layout": f"IO{axes}", "out_layout": f"NC{axes}"}
    name = f"nn.conv{rank}d_transpose"
    _check(name, wanted, x, weight, output_padding=extra, **attrs, **layouts)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("stride", "padding"), [(2, 1), (3, 0)])
def test_pools(stride: int, padding: int, ceil_mode: bool) -> None:
    (x,) = _tensors(IMAGES)
    window: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    attrs = {
        "pool_size": (3, 3),
        "strides": (stride, stride),
        "padding": (padding,) * 4,
        "dilation": (1, 1),
        "ceil_mode": ceil_mode,
        "layout": "NCHW",
    }
    _check("nn.max_pool2d", functional.max_pool2d(x, 3, **window), IMAGES, **attrs)
    own = functional.avg_pool2d(x, 3, **window, count_include_pad=False)
    _check("nn.avg_pool2d", own, IMAGES, **attrs, count_include_pad=False)
    if not ceil_mode:  # there PyTorch and TVM count what is beyond the padding differently
        whole = functional.avg_pool2d(x, 3, **window, count_include_pad=True)
        _check("nn.avg_pool2d", whole, IMAGES, **attrs, count_include_pad=True)


def test_adaptive_pools() -> None:
    (x,) = _tensors(IMAGES)
    size = (4, 3)
    wanted = functional.adaptive_avg_pool2d(x, size)
    _check("nn.adaptive_avg_pool2d", wanted, IMAGES, layout="NCHW", output_size=size)


def test_norms() -> None:
    x, scale, shift, mean, variance = _tensors(IMAGES, SCALE, SHIFT, MEAN, VARIANCE)
    affine = {"epsilon": 1e-5, "center": True, "scale": True}
    groups = {"groups": 2, "channel_axis": 1}
    wanted = functional.group_norm(x, 2, scale, shift, 1e-5)
    _check("nn.group_norm", wanted, IMAGES, SCALE, SHIFT, **groups, axes=(2, 3), **affine)
    plain = functional.group_norm(x, 2, None, None, 1e-5)
    _check("group_norm", plain, IMAGES, **groups, epsilon=1e-5)
    last = {**groups, "channel_axis": 3}
    moved = IMAGES.transpose(TO_NHWC)
    _check("group_norm", plain.permute(TO_NHWC), moved, **last, epsilon=1e-5)
    given = (SCALE, SHIFT, MEAN, VARIANCE)
    wanted = functional.batch_norm(x, mean, variance, scale, shift, False, 0.0, 1e-5)
    _check("nn.batch_norm", wanted, IMAGES, *given, axis=1, **affine)
    own = RNG.standard_normal((2, 9, 10)).astype(np.float32)
    wanted = functional.layer_norm(x, (9, 10), *_tensors(*own), 1e-5)
    _check("nn.layer_norm", wanted, IMAGES, *own, axes=(-2, -1), **affine)
    row = own[0, 0]
    wanted = functional.rms_norm(x, (10,), *_tensors(row), 1e-5)
    _check("nn.rms_norm", wanted, IMAGES, row, axes=(-1,), epsilon=1e-5)


FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, object]]] = {
    "nn.gelu": (functional.gelu, {}),
    "nn.gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), {}),
    "nn.silu": (functional.silu, {}),
    "nn.relu": (functional.relu, {}),
    "nn.leakyrelu": (lambda x: functional.leaky_relu(x, 0.2), {"alpha": 0.2}),
    "nn.softplus": (lambda x: functional.softplus(x, 2.0), {"beta": 2.0}),
    "clip": (lambda x: x.clamp(-0.5, 1.0), {"low": -0.5, "high": 1.0}),
    "nn.softmax": (lambda x: x.softmax(-2), {"axis": -2}),
    "nn.log_softmax": (lambda x: x.log_softmax(1), {"axis": 1}),
    "cumsum": (lambda x: x.cumsum(2), {"axis": 2, "exclusive": False}),
    **{name: (getattr(torch, name), {}) for name in ("erf", "sigmoid", "tanh", "sign", "floor")},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, attrs = FUNCTIONS[name]
    _check(name, function(torch.from_numpy(IMAGES)), IMAGES, **attrs)


@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(keepdims: bool) -> None:
    (x,) = _tensors(IMAGES)
    axes: dict[str, object] = {"axis": (1, 3), "keepdims": keepdims}
    options: dict[str, Any] = {"dim": (1, 3), "keepdim": keepdims}
    for name, wanted in {
        "sum": x.sum(**options),
        "mean": x.mean(**options),
        "max": x.amax(**options),
        "min": x.amin(**options),
        "variance": x.var(**options, unbiased=False),
        "std": x.std(**options, unbiased=False),
    }.items():
        _check(name, wanted, IMAGES, **axes)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_paddings(mode: str) -> None:
    wanted = functional.pad(torch.from_numpy(IMAGES), (1, 2, 3, 0), mode=mode)
    _check("nn.pad", wanted, IMAGES, widths=((0, 0), (0, 0), (3, 0), (1, 2)), mode=mode, value=0.0)
