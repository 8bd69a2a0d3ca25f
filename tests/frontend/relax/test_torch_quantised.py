"""Quantisations of torch.export programs: pt2e's operators, and torchao's where it is installed.

Eager PyTorch judges them. It multiplies by 1 / scale; scales are powers of two here, so that this
is the quotient.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from boltgen.frontend.relax.translate import translate
from boltgen.frontend.torch.program import import_program
from boltgen.graph.graph import Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.passes.outline import computes_all
from boltgen.passes.quantisation.integer_products import with_integer_products
from boltgen.passes.quantisation.sink_dequantise import with_late_dequantisations

OPS: Any = torch.ops.quantized_decomposed
SCALE, ZERO = 2.0**-4, 5
INT8 = (-128, 127, torch.int8)
SCALES = torch.tensor([2.0**-5, 2.0**-4, 2.0**-6, 2.0**-4, 2.0**-3])
ZEROS = torch.tensor([0, 3, -4, 0, 1])
X = torch.linspace(-9, 9, 60).reshape(3, 4, 5)


class Net(nn.Module):
    """A function of x, with the tensors above and a weight of integers as buffers."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(0)
        whole = torch.randint(-127, 128, (6, 5), dtype=torch.int8, generator=generator)
        self.register_buffer("weight", whole)
        self.register_buffer("scales", SCALES)
        self.register_buffer("rows", torch.full((6,), 2.0**-6))
        self.register_buffer("zeros", ZEROS)
        self.register_buffer("scale", torch.tensor([SCALE]))
        self.register_buffer("zero", torch.tensor([ZERO]))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def exported(function: Callable[[Any, Tensor], Any], x: Tensor = X) -> Any:
    return torch.export.export(Net(function).eval(), (x,))


def compute(function: Callable[[Any, Tensor], Any], x: Tensor = X) -> Graph:
    """Import a function, compare its graph and the passes' with eager PyTorch, and return it."""
    program = exported(function, x)
    graph = translate(import_program(program).module["main"])
    reasons: list[str] = []
    after = with_integer_products(
        with_late_dequantisations(graph), computes_all, lambda _, why: reasons.append(why)
    )
    assert not reasons
    wanted = program.module()(x).numpy()
    for made in (graph, after):
        (found,) = run(made, [x.numpy()])
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=2**-20, atol=2**-20)
    return after


def rounded(x: Tensor, *ends: Any) -> Tensor:
    made: Tensor = OPS.dequantize_per_tensor(
        OPS.quantize_per_tensor(x, SCALE, ZERO, *ends), SCALE, ZERO, *ends
    )
    return made


def quantised_of(*ends: Any) -> Callable[[Any, Tensor], Tensor]:
    def function(net: Any, x: Tensor) -> Tensor:
        return rounded(x, *ends)

    return function


@pytest.mark.parametrize(
    "ends",
    [
        INT8,
        (-127, 127, torch.int8),
        (0, 127, torch.uint8),
        (0, 255, torch.uint8),
        (-40, 30, torch.int16),
        (0, 15, torch.uint8),
    ],
)
def test_a_tensor_is_quantised_to_any_range(ends: Any) -> None:
    compute(quantised_of(*ends))


def test_integers_are_results() -> None:
    graph = compute(lambda net, x: OPS.quantize_per_tensor(x, SCALE, ZERO, *INT8))
    assert [expr.op for expr in graph.exprs if expr.args] == ["quantize"]


@pytest.mark.parametrize("axis", [2, -1])
def test_channels_have_scales_of_their_own(axis: int) -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        whole = OPS.quantize_per_channel(x, net.scales, net.zeros, axis, *INT8)
        made: Tensor = OPS.dequantize_per_channel(whole, net.scales, net.zeros, axis, *INT8)
        return made

    compute(function)


def test_scales_may_be_tensors() -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        whole = OPS.quantize_per_tensor.tensor(x, net.scale, net.zero, *INT8)
        made: Tensor = OPS.dequantize_per_tensor.tensor(whole, net.scale, net.zero, *INT8)
        return made

    graph = compute(function)
    (whole,) = (expr for expr in graph.exprs if expr.op == "quantize")
    assert graph[whole.args[1]].scalar == SCALE


def test_scales_may_be_computed() -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        scale = x.abs().amax().clamp(min=8.0) * 2.0**-7
        whole = OPS.quantize_per_tensor.tensor(x, scale, net.zero, *INT8)
        made: Tensor = OPS.dequantize_per_tensor.tensor(whole, scale, net.zero, *INT8)
        return made

    compute(function, X.clamp(-8, 8))


def test_a_type_may_be_named_for_the_floats() -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        whole = OPS.quantize_per_tensor(x, SCALE, ZERO, *INT8)
        made: Tensor = OPS.dequantize_per_tensor(whole, SCALE, ZERO, *INT8, out_dtype=torch.float16)
        return made

    compute(function, X.half())


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_multiplies_integers(bias: bool) -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        weight = OPS.dequantize_per_channel(net.weight, net.rows, None, 0, -127, 127, torch.int8)
        return nn.functional.linear(rounded(x, *INT8), weight, net.rows if bias else None)

    graph = compute(function)
    (product,) = (expr for expr in graph.exprs if expr.op == "matmul")
    assert [graph[arg].dtype for arg in product.args] == ["int8", "int8"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda net, x: OPS.quantize_per_tensor(x, 0.0, 0, *INT8),
         "'quantize_per_tensor' of the torch.export program: its scale is 0, which is not positi"),
        (lambda net, x: OPS.quantize_per_tensor(x, float("inf"), 0, *INT8),
         "its scale is inf, which is not finite; calibrate"),
        (lambda net, x: OPS.quantize_per_tensor(x, 0.5, 300, *INT8),
         "its zero point 300 is no int8, from -128 to 127; give the zero point as int8"),
        (lambda net, x: OPS.quantize_per_channel(x, net.scales, net.zeros, 1, *INT8),
         "'quantize_per_channel' of .*: it has 5 scales along axis 1, which has 4 places; give"),
        (lambda net, x: OPS.quantize_per_channel(x, net.scales, net.zeros, 2, -127, 127,
                                                 torch.int8),
         "quantises to integers from -127 to 127 by computed or several scales"),
        (lambda net, x: OPS.dequantize_per_tensor(
            OPS.quantize_per_tensor(x, 0.5, 0, *INT8), 0.5, 0, 0, 255, torch.uint8),
         "'dequantize_per_tensor' of .*: its integers are int8, and it says uint8; give both one"),
    ],
)  # fmt: skip
def test_a_quantisation_that_means_nothing_is_named(function: Any, message: str) -> None:
    with pytest.raises(ModelImportError, match=message):
        import_program(exported(function))


@pytest.mark.skipif(importlib.util.find_spec("torchao") is not None, reason="torchao is installed")
def test_a_program_of_torchao_names_the_package(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    library = torch.library.Library("torchao", "FRAGMENT")
    library.define("quantize_affine(Tensor x) -> Tensor")
    library.impl("quantize_affine", torch.clone, "CompositeExplicitAutograd")
    torch.export.save(exported(lambda net, x: torch.ops.torchao.quantize_affine(x)), path)
    del library
    with pytest.raises(ModelImportError, match="torchao is not installed: pip install torchao"):
        import_model(path)


AFFINE: dict[str, Callable[[Any, Any, Tensor], Any]] = {
    "tensor": lambda ao, net, x: ao.dequantize_affine(
        ao.quantize_affine(x, x.shape, net.scale, net.zero, torch.int8, -128, 127),
        x.shape, net.scale, net.zero, torch.int8, -128, 127),
    "narrow": lambda ao, net, x: ao.dequantize_affine(
        ao.quantize_affine(x, x.shape, net.scale, net.zero, torch.int8, -8, 7),
        x.shape, net.scale, net.zero, torch.int8, -8, 7),
    "channels": lambda ao, net, x: ao.quantize_affine(
        x, [3, 4, 1], net.scales, net.zeros, torch.int8),
    "rows": lambda ao, net, x: ao.quantize_affine(
        x, [1, 1, 5], torch.full((3, 4, 1), 0.25), torch.zeros(3, 4, 1).int(), torch.int8),
    "product": lambda ao, net, x: nn.functional.linear(
        rounded(x, *INT8), ao.dequantize_affine(net.weight, [1, 5], net.rows, None, torch.int8)),
}  # fmt: skip


@pytest.mark.parametrize("name", AFFINE)
def test_quantisations_of_torchao(name: str) -> None:
    pytest.importorskip("torchao")
    compute(lambda net, x: AFFINE[name](torch.ops.torchao, net, x))
