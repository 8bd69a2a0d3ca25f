"""A network whose products are one kernel, and as many kernels as products: the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import boltgen
from boltgen.running.artifact import Artifact
from models.onnx_graph import GraphBuilder
from models.parameters import RandomParameters

EPS_F16 = 2.0**-11
SHAPE = (2, 16, 14, 14)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 3x3 convolution and two 1x1 ones, another 3x3 one, and a dense head."""
    graph = GraphBuilder("fusible", parameters=RandomParameters(0))
    x = graph.input("input", SHAPE)
    layers = ((32, 3, 1), (32, 1, 1), (48, 1, 1), (24, 3, 2))
    for index, (channels, kernel, stride) in enumerate(layers):
        x = graph.conv(
            x, f"c{index}", channels=channels, kernel=kernel, stride=stride, padding=kernel // 2
        )
        x = graph.relu(x, f"r{index}")
    x = graph.flatten(graph.global_average_pool(x, "pool"), "flatten")
    graph.output(graph.gemm(x, "head", features=10), "logits")
    path = tmp_path_factory.mktemp("fusion") / "fusible.onnx"
    onnx.save(graph.build(), path)
    return path


def run(artifact: Artifact) -> tuple[np.ndarray, int]:
    """The logits, and how many of boltgen's kernels were launched."""
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    image = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    logits = artifact.run({"input": image})["logits"]
    return logits, sum("boltgen_" in launch.kernel for launch in vgpu.launches())


def test_fused_and_unfused_give_the_same(network: Path) -> None:
    fused = boltgen.compile(network)
    apart = boltgen.compile(network, fuse=False)
    (fused_logits, fused_launches), (logits, launches) = run(fused), run(apart)
    assert (fused_launches, launches) == (4, 6)  # the move of the image among them
    # Both round each layer's result to FP16; sums in another order move it by an ulp at most, and
    # the layers keep the mean square of what they are given.
    assert np.abs(fused_logits - logits).max() <= 5 * 2 * EPS_F16 * np.abs(logits).max()

    (region,) = (region for region in fused.metadata.regions if "; " in region.problem)
    assert region.label == " + ".join(["conv2d + add + relu"] * 3)
    assert [text.partition("(")[0] for text in region.problem.split("; ")] == [
        "Conv2d",
        "Gemm",
        "Gemm",
    ]
    assert region.epilogue.count("; ") == 2
    assert "predicted by the analytical model; bound by" in region.why
    assert any(note.startswith("one kernel for 3 products: ") for note in _notes(fused))
    assert not any(note.startswith("one kernel") for note in _notes(apart))


def _notes(artifact: Artifact) -> list[str]:
    return [placed.reason for placed in artifact.metadata.placements if placed.region]
