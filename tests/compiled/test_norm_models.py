"""Norms of rows through the whole road: compiled, checked, run on the virtual GPU, and tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen.running.artifact import Artifact

ROWS, COLUMNS, EPSILON = 20, 64, 1e-5
EPS_F16 = 2.0**-11


def model() -> object:
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(
        x: R.Tensor((4, 5, 64), "float16"),
        y: R.Tensor((4, 5, 64), "float16"),
        scale: R.Tensor((64,), "float16"),
        shift: R.Tensor((64,), "float16"),
        w: R.Tensor((64, 64), "float16"),
    ) -> R.Tensor((4, 5, 64), "float16"):
        with R.dataflow():
            total = R.add(x, y)
            normed = R.nn.layer_norm(total, scale, shift, axes=[-1], epsilon=1e-5)
            product = R.add(R.matmul(normed, w), total)
            out = R.nn.softmax(product, axis=-1)
            R.output(out)
        return out

    return tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return boltgen.compile(model(), arch="sm_80")


def test_the_sum_the_norm_the_product_and_the_softmax_are_three_kernels(artifact: Artifact) -> None:
    regions = artifact.metadata.regions
    assert [region.label for region in regions] == [
        "add + layer_norm",
        "matmul + add + astype",
        "softmax + astype",
    ]
    assert [region.family == "norm" for region in regions] == [True, False, True]
    assert all(placed.region for placed in artifact.metadata.placements)


def test_the_result_is_right(artifact: Artifact) -> None:
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.uniform(-1, 1, (4, 5, COLUMNS)).astype(np.float16),
        "y": rng.uniform(-1, 1, (4, 5, COLUMNS)).astype(np.float16),
        "scale": rng.uniform(-1, 1, COLUMNS).astype(np.float16),
        "shift": rng.uniform(-1, 1, COLUMNS).astype(np.float16),
        "w": (rng.uniform(-1, 1, (COLUMNS, COLUMNS)) / 8).astype(np.float16),
    }
    (found,) = artifact.run(arrays).values()
    x, y, scale, shift, w = (array.astype(np.float64) for array in arrays.values())
    total = x + y
    centred = total - total.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    normed = centred / spread * scale + shift
    product = normed @ w + total
    raised = np.exp(product - product.max(-1, keepdims=True))
    wanted = raised / raised.sum(-1, keepdims=True)
    # The norm and the sum are rounded to FP16 before the product: its error at worst, which a
    # softmax makes a relative one of twice the size; and the result is rounded.
    error = EPS_F16 * (np.abs(normed) @ np.abs(w) + np.abs(total))
    relative = np.expm1(2 * error.max(-1, keepdims=True)) + 2 * EPS_F16
    assert found.dtype == np.float16
    assert np.all(np.abs(found - wanted) <= relative * wanted + 2.0**-24)


def test_norms_are_tuned_on_the_virtual_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    boltgen.activate("vgpu")
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.softmax(x))
        builder.emit_func_output(out)
    report = boltgen.tune(builder.get(), arch="sm_80", device="vgpu", budget="2trials", rest="off")
    assert (report.measured, report.failed) == (2, 0)
    (result,) = report.results
    assert result.task.workload.first.problem.short == "softmax 20x64"
