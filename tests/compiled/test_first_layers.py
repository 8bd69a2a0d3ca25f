"""First layers of models: one pass over the image, by one launch before the convolution."""

from __future__ import annotations

import pytest

from benchmarks.first_layers import LAYERS, SHAPE, Photo, count

N, C, H, W = SHAPE
PIXELS = N * H * W


_PHOTOS = [name for name, layer in LAYERS.items() if issubclass(layer, Photo)]


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - _PHOTOS))
def test_the_image_is_read_once(name: str) -> None:
    counted = count(LAYERS[name])
    # Values below 4 of 147 products, in FP16 and FP32; a mean of 112 x 112 of them is far nearer.
    assert counted.error < 4 * 2.0**-11
    move, convolution, *rest = counted.kernels
    assert "Interleave" in move, "cast, transposed and padded by one kernel"
    assert convolution.startswith("boltgen_conv2d_")
    assert not [kernel for kernel in rest if "boltgen" in kernel], "two launches are the call"
    (said,) = counted.moves
    assert said == (
        f"moves A from nchw_f32 of 3 channels to nhwc_f16 of 4: {PIXELS * (C * 4 + 4 * 2)} bytes"
    )
    # Whole sectors, each once: not a byte more than the image has, nor than the padded one.
    assert (
        counted.image_sector_bytes == PIXELS * C * 4 == counted.launches[0]["global_load"]["bytes"]
    )
    assert counted.moved_sector_bytes == PIXELS * 4 * 2
    assert counted.launches[0]["shared"]["bank_conflicts"] == 0


@pytest.mark.parametrize("name", _PHOTOS)
def test_a_photo_is_normalised_and_padded_by_one_launch(name: str) -> None:
    counted = count(LAYERS[name])
    # The image is rounded once, as the weights are: values below 3 of 27 products.
    assert counted.error < 3 * 2.0**-11
    assert counted.before == 1, counted.kernels
    assert counted.image_bytes == PIXELS * C
    assert counted.moved_sector_bytes == PIXELS * 4 * 2
    assert 1.0 <= counted.passes < 1.05
