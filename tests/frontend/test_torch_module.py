"""`boltgen.compile(module, example_inputs)`: what is exported, and what is said when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import boltgen
from boltgen.errors import ModelImportError
from boltgen.frontend.torch.module import export_module, is_module


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.drop = nn.Linear(64, 40), nn.Dropout(0.5)

    def forward(self, image: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": torch.relu(self.drop(self.dense(image))) * scale}


def inputs(program: Any) -> tuple[str, ...]:
    return tuple(program.graph_signature.user_inputs)


def test_examples_in_every_form() -> None:
    x, scale = torch.zeros(24, 64), torch.ones(40)
    dense = Scaled().dense.eval()
    for examples in (x, (x,), [x], {"input": x}):
        assert inputs(export_module(dense, examples)) == ("input",)
    whole = Scaled().eval()
    assert inputs(export_module(whole, x, {"scale": scale})) == ("image", "scale")
    for examples, more in (
        ({"image": x, "scale": scale}, None),
        (None, {"image": x, "scale": scale}),
    ):
        assert inputs(export_module(whole, examples, more)) == ("image", "scale")


def test_a_module_in_training_mode_is_exported_in_eval_mode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = Scaled().eval()
    module.drop.train()
    program = export_module(module, torch.zeros(24, 64), {"scale": torch.ones(40)})
    assert "Scaled is in training mode" in caplog.text
    assert "module.eval()" in caplog.text
    assert (module.training, module.drop.training) == (False, True)
    x = torch.randn(24, 64)
    first, second = (program.module()(x, scale=torch.ones(40))["scores"] for _ in range(2))
    assert torch.equal(first, second)


def test_a_module_in_eval_mode_is_exported_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    export_module(Scaled().eval(), torch.zeros(24, 64), {"scale": torch.ones(40)})
    assert "boltgen" not in {record.name.partition(".")[0] for record in caplog.records}


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return x * 2


REFUSED: dict[str, tuple[nn.Module, object, object, list[str]]] = {
    "no examples": (Scaled(), None, None, ["Scaled", "example inputs", "torch.zeros"]),
    "a path": (Scaled(), Path("x.npz"), None, ["example inputs", "PosixPath"]),
    "an argument is missing": (
        Scaled(),
        torch.zeros(24, 64),
        None,
        ["Scaled.forward(image", "missing a required", "'scale'"],
    ),
    "a size that does not fit": (nn.Linear(2, 2), torch.zeros(3), None, ["[1, 3] X [2, 2]"]),
    "control flow by values": (
        Branching(),
        torch.zeros(2),
        None,
        ["Branching", "data-dependent", "torch.where or torch.cond"],
    ),
    "a range that the example is outside of": (
        nn.Linear(2, 2),
        torch.zeros(4, 2),
        ({0: torch.export.Dim("batch", max=2)},),
        ["4 not in range [2, 2]", "dynamic_shapes do not fit"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    module, examples, dynamic, words = REFUSED[case]
    with pytest.raises(ModelImportError) as caught:
        export_module(module.eval(), examples, dynamic_shapes=dynamic)
    for word in words:
        assert word in str(caught.value)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out


def test_compile_says_what_the_arguments_are_for() -> None:
    module, x = nn.Linear(8, 8).eval(), torch.zeros(4, 8)
    with pytest.raises(ModelImportError, match=r"arch='sm_80'"):
        boltgen.compile("model.onnx", "sm_80")
    with pytest.raises(ModelImportError, match=r"example inputs are for a torch\.nn\.Module"):
        boltgen.compile("model.onnx", (x,))
    with pytest.raises(ModelImportError, match=r"torch\.jit\.trace"):
        boltgen.compile(module, (x,), frontend="relay")
    assert is_module(module)
    assert not is_module(torch.jit.trace(module, x))
    assert not is_module("model.onnx")


def test_a_module_is_compiled_and_run_on_the_virtual_gpu() -> None:
    torch.manual_seed(0)
    module = Scaled().eval()
    x, scale = torch.randn(24, 64), torch.rand(40)
    artifact = boltgen.compile(module, {"image": x, "scale": scale}, arch="sm_80")
    assert artifact.metadata.model == "Scaled"
    assert len(artifact.metadata.regions) == 1
    (result,) = artifact.run({"image": x.numpy(), "scale": scale.numpy()}).values()
    with torch.no_grad():
        exact = module(x, scale=scale)["scores"].numpy()
    # Operands, and the result, are rounded to FP16; each sum has 64 products of numbers below 1/8.
    bound = 2.0**-11 * (2 * np.abs(x.numpy()).sum(1, keepdims=True) / 8 + np.abs(exact))
    assert np.all(np.abs(result - exact) <= bound)
