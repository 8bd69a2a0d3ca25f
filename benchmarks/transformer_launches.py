"""Count launches of transformers: of a layer of BERT-base, and of small whole models.

The layer is of batch 1 and a sequence of 128, with an additive mask.

A model of two layers and one of a single layer are compiled for sm_80 and run on the virtual GPU;
their difference is a layer in the middle of the model. `apart` is compiled with `--no-fuse`, so
that each product has a kernel of its own. Results are compared with ONNX Runtime's in FP32.

The whole models come from `models.torch_transformers`, `models.torch_swin` and
`models.relax_llama`, in one size. `tests/test_transformer_zoo.py` and `tests/test_swin.py` judge
their results.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import boltgen
from benchmarks.record import write
from boltgen.artifact.coverage import coverage
from boltgen.report.facts import facts_of
from boltgen.running.artifact import Artifact
from models import build, relax_llama
from models.torch_swin import Swin
from models.torch_transformers import T5, Vit, WhisperEncoder, WhisperStep

SEQUENCE = 128
# Launches at commit 9685bd3, before heads, rows and factors of these models were kept in place; of
# Swin at ec1b4d0, before its windows were.
BEFORE = {"vit": 36, "whisper_encoder": 33, "whisper_step": 28, "t5": 33, "swin": 53}
# Relative to the largest value; FP16 rounds each of some twenty values in a row by half a unit.
TOLERANCE = 20**0.5 * 2.0**-11


def shares(artifact: Artifact) -> dict[str, float | None]:
    """The part of its products' FLOPs that boltgen's kernels compute, and of the bytes that all
    kernels move at least, by the model of time.
    """
    with tempfile.TemporaryDirectory() as name:
        artifact.save(name)
        moved = facts_of(Path(name), artifact.metadata).moved_share
    return {
        "flops_share": round(coverage(artifact.metadata.placements).share, 4),
        "moved_share": None if moved is None else round(moved, 4),
    }


def bert(layers: int, *, fuse: bool) -> tuple[list[str], Artifact]:
    """The kernels that an inference launches, in order, and the compiled model."""
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
    return [launch.kernel for launch in vgpu.launches()], artifact


def figures(*, fuse: bool) -> dict[str, Any]:
    """Count a layer's launches of boltgen's and of TVM's kernels, and the shares of two layers."""
    kernels, artifact = bert(2, fuse=fuse)
    layer = Counter(kernels) - Counter(bert(1, fuse=fuse)[0])
    ours = sum(count for kernel, count in layer.items() if kernel.startswith("boltgen"))
    told = {"launches": layer.total(), "boltgen": ours, "kernels": dict(layer)}
    return told | shares(artifact)


def small_models() -> dict[str, Callable[[], tuple[Any, dict[str, np.ndarray[Any, Any]]]]]:
    """Return builders of a model and its inputs, by name."""

    def of_module(module: torch.nn.Module, **shapes: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
        inputs = {name: torch.randn(shape) for name, shape in shapes.items()}
        if "attention_mask" in inputs:
            inputs["attention_mask"] = torch.ones(shapes["attention_mask"], dtype=torch.int64)
        program = torch.export.export(module.eval(), (), inputs)
        return program, {name: value.numpy() for name, value in inputs.items()}

    def of_relax() -> tuple[Any, dict[str, Any]]:
        shapes = {"x": (2, 17, 64), "cosine": (17, 16), "sine": (17, 16), "mask": (17, 17)}
        rng = np.random.default_rng(0)
        inputs = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
        return relax_llama.decoder()[0], inputs

    cache = (2, 4, 7, 16)
    return {
        "vit": lambda: of_module(Vit(), images=(2, 3, 32, 32)),
        "whisper_encoder": lambda: of_module(WhisperEncoder(), mel=(2, 16, 60)),
        "whisper_step": lambda: of_module(
            WhisperStep(), x=(2, 1, 64), keys=cache, values=cache, audio=(2, 30, 64)
        ),
        "t5": lambda: of_module(
            T5(), source=(2, 19, 64), target=(2, 11, 64), attention_mask=(2, 19)
        ),
        "swin": lambda: of_module(Swin(), images=(2, 3, 32, 32)),
        "relax_llama": of_relax,
    }


def launches_of(
    model: Any, inputs: dict[str, np.ndarray[Any, Any]], io: str = "model"
) -> dict[str, Any]:
    """Count the kernels that a model launches, how many of them are boltgen's, and `shares`.

    `io` is the option of `boltgen compile --io`.
    """
    shapes = {name: array.shape for name, array in inputs.items()}
    artifact = boltgen.compile(model, arch="sm_80", shapes=shapes, io=io)
    types = {each.name: np.dtype(each.dtype) for each in artifact.metadata.inputs}
    vgpu = boltgen.activate("vgpu").vgpu
    if vgpu is None:
        raise AssertionError("this process uses the virtual GPU")
    vgpu.clear_launches()
    artifact.run({name: array.astype(types[name]) for name, array in inputs.items()})
    kernels = [launch.kernel for launch in vgpu.launches()]
    ours = sum("boltgen" in name for name in kernels)
    return {"launches": len(kernels), "boltgen": ours} | shares(artifact)


def main() -> None:
    """Count with and without joined products, then whole models, and record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {"fused": figures(fuse=True), "apart": figures(fuse=False)}
    for name, made in small_models().items():
        earlier = {"before": BEFORE[name]} if name in BEFORE else {}
        found[name] = launches_of(*made()) | earlier
        if name == "whisper_step":
            found[f"{name}, half io"] = launches_of(*made(), io="half")
    write(
        "transformer_launches",
        found,
        target="at most 6 launches a layer; 0.99 of FLOPs, 0.9 of bytes",
    )


if __name__ == "__main__":
    main()
