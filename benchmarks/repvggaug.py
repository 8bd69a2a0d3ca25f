"""RepVGGAug-A0 with and without back-to-back kernels, on the virtual GPU: results and launches.

Both are held against ONNX Runtime in FP32. Predicted times are the analytical model's, not a GPU's.

    python -m benchmarks.repvggaug --image-size 224
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import boltgen
from benchmarks.record import write
from boltgen.runtime.artifact import Artifact
from models import build

_EPS_F16 = 2.0**-11


def measure(artifact: Artifact, image: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The logits, and what was launched."""
    vgpu = boltgen.activate("vgpu").vgpu
    if vgpu is None:
        raise AssertionError("the virtual GPU is active")
    vgpu.clear_launches()
    logits = artifact.run({"input": image})["logits"]
    launches = vgpu.launches()
    regions = artifact.metadata.regions
    return logits, {
        "launches": len(launches),
        "launches_of_boltgen": sum("boltgen_" in launch.kernel for launch in launches),
        "kernels": len(artifact.metadata.kernels),
        "back_to_back_regions": sum("; " in region.problem for region in regions),
        "largest_logit": float(np.abs(logits).max()),
    }


def main() -> int:
    """Measure, keep the figures, and end with status 1 where the two disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--image-size", type=int, default=224)
    chosen = parser.parse_args()
    model = build("repvggaug_a0", image_size=chosen.image_size)
    rng = np.random.default_rng(0)
    size = chosen.image_size
    image = rng.standard_normal((1, 3, size, size), dtype=np.float32)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (exact,) = session.run(None, {"input": image})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repvggaug_a0.onnx"
        onnx.save(model, path)
        fused, of_fused = measure(boltgen.compile(path, arch=chosen.arch), image)
        apart, of_apart = measure(boltgen.compile(path, arch=chosen.arch, fuse=False), image)
    # Each of the 43 layers rounds its result to FP16 in both, after sums in another order; the
    # network keeps the mean square of its signal.
    bound = 43 * 2 * _EPS_F16 * float(np.abs(exact).max())
    differences = {
        "fused_and_unfused": float(np.abs(fused - apart).max()),
        "fused_and_fp32": float(np.abs(fused - exact).max()),
        "unfused_and_fp32": float(np.abs(apart - exact).max()),
        "bound": bound,
    }
    figures = {
        "arch": chosen.arch,
        "image_size": size,
        "fused": of_fused,
        "unfused": of_apart,
        "largest_difference": differences,
    }
    write("repvggaug", figures, "the same results within the bound, in fewer launches")
    agrees = max(value for name, value in differences.items() if name != "bound") <= bound
    fewer = of_fused["launches"] < of_apart["launches"]
    return 0 if agrees and fewer else 1


if __name__ == "__main__":
    sys.exit(main())
