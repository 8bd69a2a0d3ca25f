"""Convolutions of volumes: geometry, the oracle against PyTorch, and reasons for no kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from boltgen.arch import arch_named
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.families.json_form import decode, encode
from boltgen.families.registry import candidates
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

_WHOLE = Conv3d(
    **{"n": 2, "depth": 5, "h": 7, "w": 6, "c": 8, "k": 4, "t": 2, "r": 3, "s": 2},
    stride=(1, 2, 1),
    padding=(1, 1, 0, 0, 1, 2),
    dilation=(2, 1, 1),
)
# Filters of one plane, of one pixel in each plane, and of one voxel.
_PLANE = Conv3d(
    **{"n": 2, "depth": 3, "h": 7, "w": 6, "c": 8, "k": 4, "t": 1, "r": 3, "s": 3},
    stride=(1, 2, 1),
    padding=(0, 1, 1, 0, 1, 0),
)
_DEPTH = Conv3d(
    **{"n": 2, "depth": 7, "h": 3, "w": 4, "c": 8, "k": 4, "t": 3, "r": 1, "s": 1},
    stride=(2, 1, 1),
    padding=(2, 0, 0, 0, 0, 0),
    dilation=(2, 1, 1),
)
_POINT = Conv3d(**{"n": 2, "depth": 3, "h": 2, "w": 4, "c": 8, "k": 4, "t": 1, "r": 1, "s": 1})


@pytest.mark.parametrize("problem", [_WHOLE, _PLANE, _DEPTH, _POINT])
def test_the_oracle_is_pytorchs(problem: Conv3d) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(problem.a_shape), rng.standard_normal(problem.b_shape)
    front, top, left, back, bottom, right = problem.padding
    padded = torch.nn.functional.pad(
        torch.tensor(a.transpose(0, 4, 1, 2, 3)), (left, right, top, bottom, front, back)
    )
    wanted = torch.nn.functional.conv3d(
        padded,
        torch.tensor(b.transpose(0, 4, 1, 2, 3)),
        stride=problem.stride,
        dilation=problem.dilation,
    )
    got = problem.product(a, b)
    np.testing.assert_allclose(got, wanted.numpy().transpose(0, 2, 3, 4, 1), atol=1e-9)
    assert problem.d_shape == got.shape
    assert problem.flops == 2 * got.size * problem.gemm.k


def test_a_filter_of_one_voxel_is_a_matmul_of_the_same_memory() -> None:
    made = _POINT.canonical
    assert isinstance(made, Gemm)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(_POINT.a_shape), rng.standard_normal(_POINT.b_shape)
    there = made.product(a.reshape(-1, 8), b.reshape(4, 8))
    np.testing.assert_allclose(there.reshape(_POINT.d_shape), _POINT.product(a, b), atol=1e-12)
    assert _PLANE.canonical is _PLANE


def test_json_keeps_it() -> None:
    workload = Workload.of(_WHOLE)
    assert decode(Workload, encode(Workload, workload)) == workload


def test_a_filter_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        InvalidProblemError,
        match=r"Conv3d: a 3x3x3 filter with dilation \(1, 1, 1\) does not fit into a 2x4x4",
    ):
        Conv3d(**{"n": 1, "depth": 2, "h": 4, "w": 4, "c": 8, "k": 8, "t": 3, "r": 3, "s": 3})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"c": 12}, "12 channels are no multiple of 8, which CUTLASS reads at once"),
        ({"h": 40, "r": 33}, "a filter of 33 along an axis; a thread guards 32 places"),
    ],
)
def test_a_volume_without_a_kernel_has_a_reason(given: dict[str, int], reason: str) -> None:
    usual = {"n": 1, "depth": 4, "h": 4, "w": 4, "c": 8, "k": 8, "t": 3, "r": 3, "s": 3}
    with pytest.raises(NoLegalConfigError, match=reason):
        candidates(Workload.of(Conv3d(**usual | given)), arch_named("sm_80"))
