"""Numbers of each image in Relay: a scale of channels, and a part of a longer row."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen.relay  # noqa: F401 - it brings the libraries that TVM is linked with

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip
from boltgen.ir.elementwise import LoadKind  # isort: skip
from tests.frontend.relay_oracle_kernels import Model  # isort: skip

RNG = np.random.default_rng(3)
N, C, K, H, W = 3, 8, 16, 5, 6
X = RNG.uniform(-1, 1, (N, C, H, W)).astype(np.float32)
WEIGHT = RNG.uniform(-0.3, 0.3, (K, C, 3, 3)).astype(np.float32)
ROWS = RNG.uniform(0.5, 1.5, (N, 3 * K)).astype(np.float32)


def _exact(first: int) -> np.ndarray:
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    made = sum(
        np.einsum("kc,nchw->nkhw", WEIGHT[:, :, r, s], padded[:, :, r : r + H, s : s + W])
        for r in range(3)
        for s in range(3)
    )
    return np.maximum(made * ROWS[:, first : first + K, None, None], 0)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_scale_of_each_image_is_an_operand_where_it_lies(part: int) -> None:
    x, rows = relay.var("x", shape=X.shape), relay.var("rows", shape=ROWS.shape)
    made = relay.nn.conv2d(x, relay.const(WEIGHT), padding=(1, 1), channels=K, kernel_size=(3, 3))
    begin, end = part * K, (part + 1) * K
    scale = relay.strided_slice(rows, begin=[0, begin], end=[N, end])
    scaled = relay.nn.relu(made * relay.reshape(scale, (N, K, 1, 1)))
    module = tvm.IRModule.from_expr(relay.Function([x, rows], scaled))
    partitioned = steps.annotate(module)
    (region,) = partitioned.regions
    (load,) = region.workload.single.loads
    assert load.kind is LoadKind.SLICE_ROW
    (actual,) = Model(partitioned).run(X, ROWS)
    wanted = _exact(part * K)
    error = np.sqrt(np.mean(np.square(actual - wanted)))
    assert error <= 2**-11 * np.sqrt(6) * np.sqrt(np.mean(np.square(wanted)))
