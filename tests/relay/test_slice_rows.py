"""Numbers of each image in Relay: a scale of channels, a part of a longer row; and numbers of each
place in all images.
"""

from __future__ import annotations

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.ir.elementwise import LoadKind  # isort: skip
from benchmarks.harness.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(3)
N, C, K, H, W = 3, 8, 16, 5, 6
X = RNG.uniform(-1, 1, (N, C, H, W)).astype(np.float32)
WEIGHT = RNG.uniform(-0.3, 0.3, (K, C, 3, 3)).astype(np.float32)
ROWS = RNG.uniform(0.5, 1.5, (N, 3 * K)).astype(np.float32)


def _product() -> np.ndarray:
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(
        np.einsum("kc,nchw->nkhw", WEIGHT[:, :, r, s], padded[:, :, r : r + H, s : s + W])
        for r in range(3)
        for s in range(3)
    )


def _conv(x: relay.Expr) -> relay.Expr:
    return relay.nn.conv2d(x, relay.const(WEIGHT), padding=(1, 1), channels=K, kernel_size=(3, 3))


def _assert_agrees(
    module: tvm.IRModule, kind: LoadKind, given: tuple[np.ndarray, ...], wanted: np.ndarray
) -> None:
    partitioned = steps.annotate(module)
    (region,) = partitioned.regions
    assert [load.kind for load in region.workload.single.loads] == [kind]
    (actual,) = Model(partitioned).run(*given)
    error = np.sqrt(np.mean(np.square(actual - wanted)))
    assert error <= 2**-11 * np.sqrt(6) * np.sqrt(np.mean(np.square(wanted)))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_scale_of_each_image_is_an_operand_where_it_lies(part: int) -> None:
    x, rows = relay.var("x", shape=X.shape), relay.var("rows", shape=ROWS.shape)
    begin, end = part * K, (part + 1) * K
    scale = relay.strided_slice(rows, begin=[0, begin], end=[N, end])
    scaled = relay.nn.relu(_conv(x) * relay.reshape(scale, (N, K, 1, 1)))
    module = tvm.IRModule.from_expr(relay.Function([x, rows], scaled))
    wanted = np.maximum(_product() * ROWS[:, begin:end, None, None], 0)
    _assert_agrees(module, LoadKind.SLICE_ROW, (X, ROWS), wanted)


def test_places_of_all_images_are_an_operand() -> None:
    places = RNG.uniform(-1, 1, (1, K, H, W)).astype(np.float32)
    x = relay.var("x", shape=X.shape)
    module = tvm.IRModule.from_expr(relay.Function([x], _conv(x) + relay.const(places)))
    _assert_agrees(module, LoadKind.POSITION_ROW, (X,), _product() + places)
