"""Resize in the forms that TVM has wrongly, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

from benchmarks.cases.onnx_models import (
    assert_same,
    model,
    node,
    noise,
    operators,
    prepared,
    results,
)
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model

SHAPE = (2, 3, 9, 7)


def resize(
    *, scales: Any = None, sizes: Any = None, shape: Any = SHAPE, **attributes: Any
) -> onnx.ModelProto:
    """A model of one Resize."""
    constants = {}
    if scales is not None:
        constants["scales"] = np.asarray(scales, np.float32)
    if sizes is not None:
        constants["sizes"] = np.asarray(sizes, np.int64)
    inputs = ["x", "", "scales" if scales is not None else "", "sizes" if sizes is not None else ""]
    single = node("Resize", inputs if sizes is not None else inputs[:3], ["y"], name="r")
    single.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    return model([single], {"x": shape}, constants, opset=19)


@pytest.mark.parametrize("scales", [(1, 1, 0.6, 0.45), (1, 1, 1.7, 0.9)])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates",
    ["half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric", "align_corners"],
)
def test_filters(coordinates: str, mode: str, antialias: int, scales: tuple[float, ...]) -> None:
    made = resize(
        scales=scales,
        mode=mode,
        antialias=antialias,
        coordinate_transformation_mode=coordinates,
    )
    after = prepared(made).model
    assert_same(made, after, {"x": noise(*SHAPE)})
    if coordinates != "align_corners" or (antialias and min(scales) < 1):
        assert operators(after) == ["MatMul", "MatMul"]


@pytest.mark.parametrize("excluded", [0, 1])
def test_what_is_outside_may_be_left_out(excluded: int) -> None:
    made = resize(scales=(1, 1, 0.8, 0.8), mode="cubic", exclude_outside=excluded)
    after = prepared(made).model
    assert "Resize" not in operators(after)
    assert_same(made, after, {"x": noise(*SHAPE)})


@pytest.mark.parametrize("rule", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "tf_half_pixel_for_nn", "half_pixel_symmetric"]
)
def test_nearest_neighbours(coordinates: str, rule: str) -> None:
    kept = {"coordinate_transformation_mode": coordinates, "nearest_mode": rule}
    made = resize(scales=(1, 1, 1.6, 0.7), **kept)
    after = prepared(made).model
    assert operators(after) == ["Gather", "Gather"]
    assert_same(made, after, {"x": noise(*SHAPE)})


@pytest.mark.parametrize(
    "attributes",
    [
        {"scales": (1, 1, 2, 3), "mode": "linear"},
        {"sizes": (2, 3, 5, 10), "mode": "linear"},
        {"sizes": (2, 3, 18, 14), "antialias": 1, "mode": "linear"},
        {"scales": (1, 1, 2, 3), "shape": ("batch", 3, "height", "width")},
    ],
)
def test_what_tvm_takes_stays(attributes: dict[str, Any]) -> None:
    assert operators(prepared(resize(**attributes)).model) == ["Resize"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"sizes": (8, 8), "axes": [3, 2], "mode": "linear"},
        {"sizes": (4, 6), "axes": [0, 1], "mode": "nearest"},
        {"sizes": (2, 6, 9, 7), "mode": "nearest"},
        {"sizes": (2, 3, 5, 14), "keep_aspect_ratio_policy": "not_larger"},
        {"sizes": (5, 14), "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"},
        {"scales": (2, 0.5), "shape": (8, 6), "mode": "linear"},
    ],
)
def test_imported_ones_compute_what_onnx_runtime_does(attributes: dict[str, Any]) -> None:
    made = resize(**attributes)
    x = noise(*attributes.get("shape", SHAPE))
    machine = relax.VirtualMachine(tvm.compile(import_model(made).module, target="llvm"), tvm.cpu())
    (wanted,) = results(made, {"x": x})
    # Two weighted sums of numbers of size 4 in FP32, with coordinates in FP32.
    np.testing.assert_allclose(
        machine["main"](tvm.runtime.tensor(x)).numpy(), wanted, rtol=2**-16, atol=2**-16
    )


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"scales": (1, 1, 0.5, 0.5), "shape": (1, 3, "height", 8)}, ["axis 2", "0.5", "--shape"]),
        ({"scales": (1, 1, 2, 0.6), "shape": (1, 3, "height", 7)}, ["axis 2", "by 2", "--shape"]),
        (
            {
                "scales": (1, 1, 0.5, 0.5),
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "antialias": 1,
                "mode": "linear",
            },
            ["tf_crop_and_resize", "Slice"],
        ),
    ],
)
def test_forms_that_are_refused_are_named(attributes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ModelImportError) as caught:
        prepared(resize(**attributes))
    for word in ["Resize (node 'r'", *words]:
        assert word in str(caught.value)
