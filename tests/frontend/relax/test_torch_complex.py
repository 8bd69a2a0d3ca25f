"""Complex numbers of PyTorch programs, computed with real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from boltgen.frontend.torch.program import import_program

torch.manual_seed(0)
PAIRS = torch.randn(4, 4, 2)
real = torch.view_as_real

# Functions of a complex matrix and of the pairs that it is made of.
CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a product": lambda c, x: real(c * c.T),
    "a product with real numbers": lambda c, x: real(x[..., 0] * c + c * x[..., 1]),
    "a product with a number": lambda c, x: real((2 + 1j) * c - c * 1j + 1),
    "a quotient": lambda c, x: real(c / c.T + c / (1 + 2j) + c / x[..., 0] + c / 3),
    "a reciprocal": lambda c, x: real(1 / c),
    "a difference from a number": lambda c, x: real(2 - c),
    "powers": lambda c, x: real(c**2 + c**3),
    "an exponential": lambda c, x: real(torch.exp(1j * x[..., 0])),
    "a logarithm": lambda c, x: real(torch.log(c)),
    "a size and an angle": lambda c, x: c.abs() + c.angle(),
    "a direction": lambda c, x: real(torch.sgn(c)),
    "conjugates": lambda c, x: real(c.conj() + c.mH),
    "parts": lambda c, x: c.real + 2 * c.imag,
    "matrices": lambda c, x: real(c @ c.T),
    "a real and a complex matrix": lambda c, x: real(c @ x[..., 0].to(c.dtype)),
    "an einsum": lambda c, x: real(torch.einsum("ij,kj->ik", c, c)),
    "a linear layer": lambda c, x: real(nn.functional.linear(c, c, c[0])),
    "numbers joined": lambda c, x: real(torch.cat([c, x[..., 0]])),
    "numbers stacked": lambda c, x: real(torch.stack([c, c.T])),
    "numbers chosen": lambda c, x: real(torch.where(x[..., 0] > 0, c, 2j)),
    "numbers split": lambda c, x: real(torch.mul(*c.split(2, 0)) + c.unbind(0)[0]),
    "sums and means": lambda c, x: real(c.sum() + c.mean(0)),
    "views": lambda c, x: real(c.reshape(2, 2, 4).permute(2, 0, 1).flip(1).roll(1, 0)[..., :1]),
    "padding": lambda c, x: real(nn.functional.pad(c, (1, 1))),
    "another precision": lambda c, x: c.to(torch.complex128).abs(),
    "real numbers made complex": lambda c, x: real(x[..., 0].to(torch.complex64)),
    "constants": lambda c, x: real(torch.ones_like(c) + torch.full((4,), 2j) + torch.zeros_like(c)),
    "parts that broadcast": lambda c, x: real(torch.complex(x[0, :, 0], x[..., 1]).T.contiguous()),
    "angles": lambda c, x: real(torch.polar(x[..., :1, 0].abs(), x[..., 1])),
    "a comparison": lambda c, x: c == c.T,
}


class Of(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(torch.view_as_complex(x), x)


class Rotary(nn.Module):
    """Rotary embeddings as Llama's reference code has them: a complex table and real heads."""

    def __init__(self, places: int = 16, width: int = 32) -> None:
        super().__init__()
        rates = 1e4 ** -(torch.arange(0, width, 2) / width)
        angle = torch.outer(torch.arange(float(places)), rates)
        self.table = torch.polar(torch.ones_like(angle), angle)  # a constant of the program
        self.register_buffer("kept", self.table * 1j)
        self.weight = nn.Parameter(torch.randn(width // 2, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.table[: x.shape[-2]] + self.kept[: x.shape[-2]] * self.weight
        return real(turned).flatten(-2)


def check(module: nn.Module, x: Tensor, tolerance: float = 2.0**-18) -> None:
    wanted = module(x).detach().numpy()
    (found,) = Model(import_model(torch.export.export(module, (x,))).module).run(x.numpy())
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_are_pairs(name: str) -> None:
    # Products of matrices are rounded to FP16 by the kernels: 4 terms of 2^-11 each.
    is_rounded = name in {"matrices", "a real and a complex matrix", "an einsum", "a linear layer"}
    check(Of(CASES[name]), PAIRS, 2.0**-8 if is_rounded else 2.0**-18)


def test_a_rotary_embedding_with_complex_tables() -> None:
    check(Rotary(), torch.randn(2, 4, 16, 32))


def test_a_rotary_embedding_with_a_dynamic_batch() -> None:
    module, x = Rotary(), torch.randn(2, 4, 16, 32)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: Dim("batch", max=8)},))
    model = Model(import_model(program).module)
    x = torch.randn(3, 4, 16, 32)
    np.testing.assert_allclose(
        model.run(x.numpy())[0], module(x).detach().numpy(), rtol=2.0**-18, atol=2.0**-18
    )


def test_the_program_of_the_caller_stays_as_it_is() -> None:
    program = torch.export.export(Rotary(), (torch.randn(2, 4, 16, 32),))
    before = {*program.state_dict, *program.constants}
    import_program(program)
    assert {*program.state_dict, *program.constants} == before


def test_complex_inputs_results_and_unknown_operators_are_refused() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    complex_ = torch.view_as_complex(PAIRS)
    with pytest.raises(ModelImportError, match=r"input 'x' .* is complex"):
        import_program(torch.export.export(Plain(), (complex_,)))
    with pytest.raises(ModelImportError, match=r"result 'view_as_complex' .* is complex"):
        import_program(torch.export.export(Of(lambda c, x: c), (PAIRS,)))
    for function, name in ((torch.tan, "tan"), (torch.linalg.inv, "linalg_inv_ex")):
        program = torch.export.export(Of(lambda c, x, f=function: real(f(c))), (PAIRS,))
        with pytest.raises(ModelImportError, match=f"computes {name}.* of complex numbers"):
            import_program(program)
