"""Resizing, sampling and pooling of images, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from boltgen.frontend.torch.program import import_program

X = torch.randn(2, 4, 7, 9, generator=torch.Generator().manual_seed(0))
GRID = torch.rand(2, 5, 6, 2, generator=torch.Generator().manual_seed(1)) * 2.6 - 1.3

# A place along an axis is below 16, so that an ulp of it is 8 units roundoff, and neighbours differ
# by less than 8: that is 64 of a number, along each of two axes.
_RESIZED = 128 * np.finfo(np.float32).eps

RESIZED: dict[str, dict[str, Any]] = {
    "nearest of each pixel": {"size": (14, 27)},
    "nearest of more": {"size": (10, 13)},
    "nearest of fewer": {"size": (5, 6)},
    "nearest by a part": {"scale_factor": 1.5},
    "nearest by parts": {"scale_factor": (0.5, 1.3)},
    "nearest by the size": {"scale_factor": 1.5, "recompute_scale_factor": True},
    "nearest to the centre": {"size": (10, 13), "mode": "nearest-exact"},
    "lines by twice": {"scale_factor": 2, "mode": "bilinear"},
    "lines by a part": {"scale_factor": 1.5, "mode": "bilinear"},
    "lines by parts": {"scale_factor": (0.5, 1.3), "mode": "bilinear"},
    "lines by the size": {
        "scale_factor": 1.5,
        "mode": "bilinear",
        "recompute_scale_factor": True,
    },
    "lines to corners": {"scale_factor": 1.5, "mode": "bilinear", "align_corners": True},
    "lines that are smoothed": {"size": (14, 15), "mode": "bilinear", "antialias": True},
    "curves by a part": {"scale_factor": 1.5, "mode": "bicubic"},
}
SAMPLED = {
    f"{mode}, {padding}, {aligned}": {
        "mode": mode,
        "padding_mode": padding,
        "align_corners": aligned,
    }
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for aligned in (True, False)
}
POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "to a size": lambda x: functional.adaptive_max_pool2d(x, (3, 4)),
    "to one": lambda x: functional.adaptive_max_pool2d(x, 1),
    "a line": lambda x: functional.adaptive_max_pool1d(x[0], 4),
    "the greatest": lambda x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
}


class Computed(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _computed(function: Callable[..., Tensor]) -> np.ndarray:
    program = torch.export.export(Computed(function), (X,))
    (actual,) = Model(import_model(program).module).run(X.numpy())
    return actual


@pytest.mark.parametrize("name", RESIZED)
def test_a_resize_is_pytorchs(name: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return functional.interpolate(x, **RESIZED[name])

    actual = _computed(resized)
    assert actual.shape == tuple(resized(X).shape)
    np.testing.assert_allclose(actual, resized(X).numpy(), rtol=0, atol=_RESIZED)


def test_pixels_of_an_open_extent_are_repeated() -> None:
    module = Computed(lambda x: functional.interpolate(x, scale_factor=2))
    axes = ({2: Dim("height", min=3, max=20)},)
    program = torch.export.export(module, (X,), dynamic_shapes=axes)
    model = Model(import_program(program).module)
    for x in (X, X[:, :, :5].contiguous()):
        np.testing.assert_array_equal(model.run(x.numpy())[0], module(x).numpy(), strict=True)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_grid_is_sampled_as_pytorch_does(name: str) -> None:
    def sampled(x: Tensor) -> Tensor:
        return functional.grid_sample(x, GRID, **SAMPLED[name])

    np.testing.assert_allclose(_computed(sampled), sampled(X).numpy(), rtol=0, atol=_RESIZED)


@pytest.mark.parametrize("name", POOLED)
def test_a_pool_is_pytorchs(name: str) -> None:
    np.testing.assert_array_equal(_computed(POOLED[name]), POOLED[name](X).numpy(), strict=True)


@pytest.mark.parametrize("pad", [(2, 1, 3, 0), (2, -1, -2, 3), (-1, -1, 0, 2), (0, -3, 7, 7)])
def test_a_circular_pad_is_pytorchs(pad: tuple[int, ...]) -> None:
    """A negative width crops, and what is left is repeated."""

    def padded(x: Tensor) -> Tensor:
        return functional.pad(x, pad, mode="circular")

    np.testing.assert_array_equal(_computed(padded), padded(X).numpy(), strict=True)


# Transposed convolutions of one, two and three dimensions; what TVM lacks of PyTorch's.
TRANSPOSED: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "output padding below the dilation": (
        nn.ConvTranspose2d(4, 6, 2, 1, 3, output_padding=1, dilation=2),
        (2, 4, 7, 7),
    ),
    "more output padding than padding": (
        nn.ConvTranspose2d(4, 6, 2, 1, 1, output_padding=2, dilation=3),
        (2, 4, 7, 7),
    ),
    "groups and strides of two kinds": (
        nn.ConvTranspose2d(
            4, 6, (3, 2), (2, 1), (1, 0), output_padding=(1, 2), dilation=(1, 3), groups=2
        ),
        (2, 4, 7, 5),
    ),
    "one dimension": (
        nn.ConvTranspose1d(4, 6, 3, 2, 1, output_padding=2, dilation=3, bias=False),
        (2, 4, 7),
    ),
    "three dimensions": (nn.ConvTranspose3d(4, 6, 2, 2), (2, 4, 3, 4, 5)),
    "three dimensions with output padding": (
        nn.ConvTranspose3d(
            4, 6, (3, 2, 2), (2, 1, 1), (1, 0, 2), output_padding=(1, 2, 1), dilation=(1, 3, 2)
        ),
        (2, 4, 3, 4, 5),
    ),
    "no batch": (nn.ConvTranspose2d(4, 6, 2, 1, 1, output_padding=1, dilation=2), (4, 7, 7)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_pytorchs(name: str) -> None:
    module, shape = TRANSPOSED[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    (actual,) = Model(import_model(torch.export.export(module, (x,))).module).run(x.numpy())
    wanted = module(x).detach().numpy()
    assert actual.shape == wanted.shape
    # Sums of at most 4 * 9 terms of size 1, in another order.
    np.testing.assert_allclose(actual, wanted, rtol=2.0**-18, atol=2.0**-18)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a divisor": (
        lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
        "divisor_override=3",
    ),
    "places of the greatest": (
        lambda x: functional.max_pool2d(x, 2, return_indices=True)[1],
        "return_indices=False",
    ),
    "places of the greatest for a size": (
        lambda x: functional.adaptive_max_pool2d(x, 2, return_indices=True)[1],
        "return_indices=False",
    ),
    "smoothed and smaller": (
        lambda x: functional.interpolate(x, size=(4, 5), mode="bilinear", antialias=True),
        "antialias=False",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    program = torch.export.export(Computed(function), (X,))
    with pytest.raises(ModelImportError, match=message):
        import_program(program)
