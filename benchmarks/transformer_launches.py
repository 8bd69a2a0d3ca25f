"""Launches of a layer of BERT-base, batch 1 and a sequence of 128, with an additive mask. Counted.

A model of two layers and one of a single layer are compiled for sm_80 and run on the virtual GPU;
their difference is a layer in the middle of the model. `apart` is compiled with `--no-fuse`, so
that each product has a kernel of its own. Results are compared with ONNX Runtime's in FP32.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime

import boltgen
from benchmarks.record import write
from models import build

SEQUENCE = 128
# Of the largest value; FP16 rounds each of some twenty values in a row by half a unit.
TOLERANCE = 20**0.5 * 2.0**-11


def kernels_of(layers: int, *, fuse: bool) -> list[str]:
    """The kernels that an inference launches, in order."""
    model = build("bert_base", layers=layers, seq_len=SEQUENCE, mask=True)
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((1, SEQUENCE, 768)).astype(np.float32)
    mask = np.zeros((1, 1, 1, SEQUENCE), np.float32)
    mask[..., -5:] = -10000.0
    inputs = {"hidden_states": hidden, "attention_mask": mask}
    artifact = boltgen.compile(model, arch="sm_80", fuse=fuse)
    vgpu = boltgen.activate("vgpu").vgpu
    if vgpu is None:
        raise AssertionError("this process uses the virtual GPU")
    vgpu.clear_launches()
    (found,) = artifact.run(inputs).values()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, inputs)
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    if error > TOLERANCE:
        raise SystemExit(f"{layers} layers: an error of {error:.2g}; no figure is recorded")
    return [launch.kernel for launch in vgpu.launches()]


def figures(*, fuse: bool) -> dict[str, Any]:
    """What a layer launches, boltgen's kernels and TVM's."""
    layer = Counter(kernels_of(2, fuse=fuse)) - Counter(kernels_of(1, fuse=fuse))
    ours = sum(count for kernel, count in layer.items() if kernel.startswith("boltgen"))
    return {"launches": layer.total(), "boltgen": ours, "kernels": dict(layer)}


def main() -> None:
    """Count with and without joined products, and record."""
    found = {"fused": figures(fuse=True), "apart": figures(fuse=False)}
    write("transformer_launches", found, target="at most 6 launches a layer")


if __name__ == "__main__":
    main()
