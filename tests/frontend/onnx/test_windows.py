"""Refuse convolutions and pools whose numbers do not fit together, as ONNX and PyTorch do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.cases.onnx_models import model, node, noise
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from tests.frontend.onnx.test_malformed import message

Shape = tuple[int | str, ...]

IMAGE: Shape = (1, 16, 12, 12)
SMALL: Shape = (1, 16, 2, 2)
CONV, WIDE = (16, 16, 3, 3), (8, 16, 3, 3)


def _made(operator: str, image: Shape, filters: Shape, attributes: dict[str, Any]) -> Any:
    pools = operator.endswith("Pool")
    constants = {} if pools else {"w": noise(*filters)}
    single = node(operator, ["x", *constants], ["y"], name="layer", **attributes)
    return model([single], {"x": image}, constants)


@pytest.mark.parametrize(
    ("operator", "image", "filters", "attributes", "parts"),
    [
        ("Conv", IMAGE, (16, 5, 3, 3), {"group": 3}, ["group 3, ", "its 16 output channels"]),
        ("Conv", IMAGE, (18, 4, 3, 3), {"group": 4}, ["group 4, ", "its 18 output channels"]),
        (
            "Conv",
            IMAGE,
            WIDE,
            {"group": 2},
            ["of shape (8, 16, 3, 3)", "take 32", "has 16"],
        ),
        ("Conv", IMAGE, CONV, {"group": 0}, ["group 0; it must be at least 1"]),
        ("ConvTranspose", IMAGE, CONV, {"group": 3}, ["group 3, ", "its 16 input channels"]),
        ("ConvTranspose", IMAGE, WIDE, {}, ["take 8 input channels; its input has 16"]),
        ("Conv", IMAGE, CONV, {"strides": [0, 1]}, ["strides [0, 1]; each must be at least 1"]),
        ("Conv", IMAGE, CONV, {"dilations": [1, 0]}, ["dilations [1, 0]; each must be"]),
        ("Conv", SMALL, CONV, {}, ["window of 3 x 3", "image of 2 x 2 with pads [0, 0, 0, 0]"]),
        ("Conv", IMAGE, CONV, {"dilations": [6, 1]}, ["window of 13 x 3", "image of 12 x 12"]),
        ("Conv", SMALL, CONV, {"auto_pad": "VALID"}, ["window of 3 x 3", "image of 2 x 2"]),
        ("Conv", ("n", 16, "h", 2), CONV, {}, ["window of 3 x 3", "image of h x 2"]),
        (
            *("ConvTranspose", IMAGE, CONV, {"strides": [2, 2], "output_padding": [1, 2]}),
            ["output_padding [1, 2], strides [2, 2] and dilations [1, 1]"],
        ),
        (
            "MaxPool",
            IMAGE,
            (),
            {"kernel_shape": [2, 2], "pads": [0, 2, 0, 0]},
            ["[0, 2, 0, 0]"],
        ),
        ("AveragePool", IMAGE, (), {"kernel_shape": [2, 2], "pads": [0, 0, 0, 3]}, ["0, 0, 3]"]),
        ("MaxPool", SMALL, (), {"kernel_shape": [4, 2]}, ["window of 4 x 2", "image of 2 x 2"]),
    ],
)
def test_an_error_names_the_node_its_numbers_and_the_remedy(
    operator: str, image: Shape, filters: Shape, attributes: dict[str, Any], parts: list[str]
) -> None:
    said = message(_made(operator, image, filters, attributes))
    assert f"node 'layer' ({operator}) has" in said
    assert all(part in said for part in parts), said
    assert any(remedy in said for remedy in ("export the model again", "--shape", "Export the"))


def test_images_without_pixels_inside_a_model_are_refused() -> None:
    nodes = [
        node("Slice", ["x", "end", "end", "axis"], ["none"], name="cut"),
        node("Conv", ["none", "w"], ["y"], pads=[1, 1, 1, 1], name="layer"),
    ]
    constants = {"end": np.array([12]), "axis": np.array([2]), "w": noise(*CONV)}
    said = message(model(nodes, {"x": IMAGE}, constants))
    assert "node 'layer' (Conv) reads images of 0 x 12 pixels" in said


@pytest.mark.parametrize(
    ("operator", "image", "filters", "attributes", "wanted"),
    [
        ("Conv", IMAGE, CONV, {"pads": [5, 5, 5, 5]}, (20, 20)),
        ("Conv", SMALL, CONV, {"pads": [1, 0, 0, 1]}, (1, 1)),
        ("Conv", SMALL, CONV, {"auto_pad": "SAME_UPPER"}, (2, 2)),
        ("ConvTranspose", SMALL, CONV, {"dilations": [2, 2], "output_padding": [1, 1]}, (7, 7)),
        ("MaxPool", SMALL, (), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, (1, 1)),
        ("MaxPool", IMAGE, (), {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, (13, 13)),
    ],
)
def test_padding_that_an_operator_allows_is_computed(
    operator: str, image: Shape, filters: Shape, attributes: dict[str, Any], wanted: tuple[int, int]
) -> None:
    try:
        imported = import_model(_made(operator, image, filters, attributes))
    except ModelImportError as error:
        pytest.fail(str(error))
    assert imported.outputs[0].shape == (1, 16, *wanted)
