"""Models whose inputs have extents that are formulas of others: compiled, run at many sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import boltgen
from boltgen.errors import InputError

TOLERANCE = {"rtol": 0.01, "atol": 0.01}


class Pairs(torch.nn.Module):
    """A product of 2 h rows, sums of two neighbours each, and what is added to each of h."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = torch.relu(self.first(x))
        return self.second(rows.reshape(rows.shape[0] // 2, 2, 64).sum(1)) + y


class WithoutFirst(torch.nn.Module):
    """All rows but the first of 4 h + 1: h is no input's extent."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)[1:]


H = torch.export.Dim("h", min=1, max=64)


def test_a_dimension_that_inputs_have_in_a_formula() -> None:
    module = Pairs().eval()
    artifact = boltgen.compile(
        module,
        (torch.randn(16, 64), torch.randn(8, 64)),
        arch="sm_80",
        dynamic_shapes={"x": {0: 2 * H}, "y": {0: H}},
    )
    for count in (1, 7, 64):
        x, y = torch.randn(2 * count, 64), torch.randn(count, 64)
        with torch.no_grad():
            right = module(x, y).numpy()
        (found,) = artifact.run({"x": x.numpy(), "y": y.numpy()}).values()
        np.testing.assert_allclose(found, right, **TOLERANCE)
    for rows, said in ((15, r"15 at axis 0, expected 2\*.* = 14"), (130, "compiled for 1 to 64")):
        given = {"x": np.zeros((rows, 64), np.float32), "y": np.zeros((rows // 2, 64), np.float32)}
        with pytest.raises(InputError, match=said):
            artifact.run(given)


def test_a_dimension_that_no_input_has_as_its_extent() -> None:
    module = WithoutFirst().eval()
    artifact = boltgen.compile(
        module, (torch.randn(17, 64),), arch="sm_80", dynamic_shapes={"x": {0: 4 * H + 1}}
    )
    for count in (1, 5, 64):
        x = torch.randn(4 * count + 1, 64)
        (found,) = artifact.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(found, module(x).numpy(), **TOLERANCE)
    with pytest.raises(InputError, match="for no whole"):
        artifact.run({"x": np.zeros((8, 64), np.float32)})


def test_a_pyramid_of_open_size() -> None:
    graph = onnx.parser.parse_graph(
        "g (float[1,16,H,W] x, float[1,16,P,Q] z) => (float[1,16,P,Q] y)"
        ' { u = Resize<mode="nearest">(x, e, s) y = Add(u, z) }'
    )
    scales: dict[str, np.ndarray[Any, Any]] = {
        "e": np.zeros(0, np.float32),
        "s": np.array([1, 1, 2, 2], np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in scales.items())
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    artifact = boltgen.compile(model, arch="sm_80")
    rng = np.random.default_rng(0)
    for height, width in ((4, 4), (3, 5)):
        x = rng.standard_normal((1, 16, height, width)).astype(np.float32)
        z = rng.standard_normal((1, 16, 2 * height, 2 * width)).astype(np.float32)
        found = artifact.run({"x": x, "z": z})["y"]
        np.testing.assert_allclose(found, x.repeat(2, 2).repeat(2, 3) + z, **TOLERANCE)
    with pytest.raises(InputError, match=r"'z' has the extent 5 at axis 2, expected 2\*H = 6"):
        artifact.run({"x": x, "z": z[:, :, :5]})
