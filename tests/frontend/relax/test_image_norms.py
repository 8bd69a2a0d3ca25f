"""Group norms between convolutions stay where images lie, in each spelling, and are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.cases.relax_modules import operators
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import annotate, import_model
from boltgen.ir.dtypes import DType
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm
from boltgen.problems.workload import Workload

Normalise = Callable[[torch.Tensor], torch.Tensor]
SHAPE = (2, 8, 6, 5)


class Between(nn.Module):
    """A convolution, a norm of its result with SiLU, and another convolution."""

    def __init__(self, norm: Normalise, channels: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, channels, 3, padding=1)
        self.norm = norm
        self.last = nn.Conv2d(channels, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.silu(self.norm(self.first(x))))


@dataclass(frozen=True)
class _Apart:
    """Groups taken apart by a reshape to (N, groups, ...), normed and put together."""

    groups: int
    rank: int
    shifted: float = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        shape = (n, self.groups, -1) if self.rank == 3 else (n, self.groups, c // self.groups, h, w)
        apart = x.reshape(shape)
        axes = tuple(range(2, apart.dim()))
        centred = apart - apart.mean(axes, keepdim=True)
        variance = (centred * centred).mean(axes, keepdim=True)
        return (centred / (variance + 1e-5).sqrt() + self.shifted).reshape(x.shape)


def _annotated(module: nn.Module, **passes: object) -> tuple[Partitioned, torch.Tensor]:
    torch.manual_seed(0)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 1, 0.3)
    x = torch.randn(*SHAPE)
    imported = import_model(torch.export.export(module.eval(), (x,)))
    return annotate(imported.module, Passes(**passes)), x


def _assert_right(annotated: Partitioned, module: nn.Module, x: torch.Tensor) -> None:
    """Each of five stored tensors, and weights, is rounded to FP16."""
    (actual,) = Model.of_annotated(annotated).run(x.numpy())
    wanted = module(x).detach().numpy()
    error = np.sqrt(np.mean(np.square(actual - wanted)))
    assert error <= 2**-11 * np.sqrt(10) * np.sqrt(np.mean(np.square(wanted)))


@pytest.mark.parametrize(
    ("norm", "groups"),
    [
        (nn.GroupNorm(4, 16), 4),
        (nn.GroupNorm(1, 16, affine=False), 1),
        (nn.InstanceNorm2d(16, affine=True), 16),
        (_Apart(2, 3), 2),
        (_Apart(8, 5), 8),
    ],
    ids=["groups", "one", "instances", "reshaped", "spelled"],
)
def test_a_norm_between_convolutions_is_of_images_in_place(norm: Normalise, groups: int) -> None:
    module = Between(norm)
    annotated, x = _annotated(module)
    problems = [region.workload.single.problem for region in annotated.regions]
    (found,) = (problem for problem in problems if isinstance(problem, GroupNorm))
    assert len(problems) == 3
    assert (found.a_shape, found.groups) == ((2, 6, 5, 16), groups)
    assert (found.in_dtype, found.out_dtype) == (DType.F16, DType.F16)
    assert operators(annotated) == []
    _assert_right(annotated, module, x)


def test_a_shift_of_what_is_apart_is_no_identity() -> None:
    module = Between(_Apart(4, 5, shifted=0.5))
    annotated, x = _annotated(module)
    assert not any(isinstance(r.workload.first.problem, GroupNorm) for r in annotated.regions)
    _assert_right(annotated, module, x)


def test_a_norm_of_the_models_input_is_of_rows() -> None:
    module = nn.Sequential(nn.GroupNorm(4, 8), nn.Conv2d(8, 8, 3))
    annotated, x = _annotated(module)
    norm = annotated.regions[0].workload.single.problem
    assert isinstance(norm, Norm)
    assert norm.matrix == (8, 60)
    _assert_right(annotated, module, x)


def test_a_norm_that_no_kernel_reads_in_place_is_of_rows_and_a_note_says_why() -> None:
    def rejects(workload: Workload) -> str | None:
        return "of a whim" if isinstance(workload.first.problem, GroupNorm) else None

    module = Between(nn.GroupNorm(4, 16))
    annotated, x = _annotated(module, rejects=rejects)
    assert [type(r.workload.first.problem).__name__ for r in annotated.regions][1] == "Norm"
    (note,) = annotated.notes
    assert note.startswith("group_norm 2x6x5x16 in 4 groups is computed in NCHW")
    assert note.endswith("of a whim")
    assert operators(annotated).count("permute_dims") == 2
    _assert_right(annotated, module, x)


def test_a_norm_whose_epilogue_no_kernel_has_is_spelled_out_where_it_lies() -> None:
    def rejects(workload: Workload) -> str | None:
        layer = workload.first
        is_long = isinstance(layer.problem, GroupNorm) and not layer.epilogue.is_identity
        return "of a whim" if is_long else None

    module = Between(nn.GroupNorm(4, 16))
    annotated, x = _annotated(module, rejects=rejects)
    assert len(annotated.regions) == 2
    assert "permute_dims" not in operators(annotated)
    assert {"mean", "rsqrt"} <= set(operators(annotated))
    _assert_right(annotated, module, x)


def test_a_pointwise_convolution_of_an_open_batch_may_be_the_last_operator() -> None:
    module = nn.Conv2d(8, 8, 1).eval()
    batch = torch.export.Dim("batch", min=1, max=4)
    program = torch.export.export(module, (torch.randn(*SHAPE),), dynamic_shapes=({0: batch},))
    annotated = annotate(import_model(program).module)
    (region,) = annotated.regions
    assert region.workload.single.problem.d_shape[-1] == 8
    for images in (1, 3):
        x = torch.randn(images, *SHAPE[1:])
        (actual,) = Model.of_annotated(annotated).run(x.numpy())
        np.testing.assert_allclose(actual, module(x).detach().numpy(), rtol=0, atol=4e-3)
