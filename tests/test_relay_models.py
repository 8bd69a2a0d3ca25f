"""Whole models through `relay.build` on the virtual GPU, in the environment with Relay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from models.digits import MODEL_PATH as MODEL
from models.digits import load_heldout
from models.registry import build
from tests import pre_activation

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-relay" / "bin" / "python"
TVM_PRODUCTS = {"nn.conv2d", "nn.dense", "nn.matmul", "nn.batch_matmul"}


def in_relay_environment(*arguments: object) -> str:
    assert PYTHON.is_file(), f"{PYTHON} is missing: run `make relay-env`"
    command = [str(PYTHON), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run(
    model: Path, batches: dict[str, np.ndarray], folder: Path
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """What was offloaded and launched, the outputs, and ONNX Runtime's, one batch after another."""
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    np.savez(folder / "in.npz", **batches)
    printed = in_relay_environment(
        ROOT / "tests" / "relay" / "run_model.py", model, folder / "in.npz", folder / "out.npz"
    )
    count = len(next(iter(batches.values())))
    expected = [
        reference.run(None, {name: array[number] for name, array in batches.items()})[0]
        for number in range(count)
    ]
    return (
        json.loads(printed.splitlines()[-1]),
        np.load(folder / "out.npz")["output"],
        np.stack(expected),
    )


def test_a_pre_activation_network(tmp_path: Path) -> None:
    """Two of its kernels write a sum and what the next convolution reads of it."""
    onnx.save(pre_activation.build(), tmp_path / "pre_activation.onnx")
    images = np.random.default_rng(0).standard_normal((1, *pre_activation.SHAPE))
    report, outputs, expected = run(
        tmp_path / "pre_activation.onnx", {"x": images.astype(np.float32)}, tmp_path
    )
    assert report["regions"] == boltgen_launches(report) == pre_activation.PRODUCTS
    assert report["left_in_main"].keys().isdisjoint({"nn.conv2d", "nn.relu", "multiply"})
    # Each of five layers rounds by 2^-11 of what it writes; a block adds to the errors before it.
    scale = np.abs(expected).max()
    assert np.abs(outputs - expected).max() <= 2 * pre_activation.PRODUCTS * 2.0**-11 * scale


def boltgen_launches(report: dict[str, Any]) -> int:
    return sum(kernel.startswith("boltgen_") for kernel in report["launches"])


def test_resnet18(tmp_path: Path) -> None:
    onnx.save(build("resnet18", batch=1, image_size=64), tmp_path / "resnet18.onnx")
    rng = np.random.default_rng(0)
    images = {"input": rng.standard_normal((1, 1, 3, 64, 64)).astype(np.float32)}
    report, outputs, expected = run(tmp_path / "resnet18.onnx", images, tmp_path)
    # Twenty convolutions and the dense layer; each in one region, and each region in one launch.
    assert report["regions"] == 21
    assert boltgen_launches(report) >= 21
    assert not TVM_PRODUCTS & report["left_in_main"].keys()
    # FP16 activations between twenty layers: every layer adds an error of half an ulp, 2**-11,
    # of values as large as the largest, and they add up at worst.
    assert np.abs(outputs - expected).max() <= 21 * 2.0**-11 * np.abs(expected).max()


def test_the_demo_model_loses_no_accuracy(tmp_path: Path) -> None:
    heldout = load_heldout()
    batches = {"input": np.stack(list(heldout.batches()))}
    report, outputs, expected = run(MODEL, batches, tmp_path)
    # Nine convolutions and two dense layers; three kernels have two of them.
    assert report["regions"] == 8
    assert boltgen_launches(report) == 8 * len(batches["input"])
    assert not TVM_PRODUCTS & report["left_in_main"].keys()
    logits, exact = outputs.reshape(-1, 10), expected.reshape(-1, 10)
    assert len(logits) == 360
    # The bounds of the Relax frontend's test: one image of 360 may turn.
    assert heldout.accuracy(exact) >= 0.97
    assert heldout.accuracy(logits) >= heldout.accuracy(exact) - 0.003


@pytest.mark.parametrize("batch", [1, 2])
def test_bert(batch: int, tmp_path: Path) -> None:
    """Of two sequences each has its own padding, which all of its heads share."""
    model = build("bert_base", layers=1, batch=batch, seq_len=32, mask=True)
    onnx.save(model, tmp_path / "bert.onnx")
    rng = np.random.default_rng(0)
    mask = np.zeros((1, batch, 1, 1, 32), np.float32)
    mask[:, 0, ..., 24:] = -10000.0
    inputs = {
        "hidden_states": rng.standard_normal((1, batch, 32, 768)).astype(np.float32),
        "attention_mask": mask,
    }
    report, outputs, expected = run(tmp_path / "bert.onnx", inputs, tmp_path)
    # Query, key and value, attention, the output's product, two of the feed-forward net, and norms.
    assert report["regions"] == 9
    assert boltgen_launches(report) >= 9
    assert (TVM_PRODUCTS | {"transpose"}).isdisjoint(report["left_in_main"])
    # Layer-normalised values of up to about 4, rounded to FP16 at each of ten steps.
    assert np.abs(outputs - expected).max() <= 10 * 2.0**-11 * np.abs(expected).max()


def test_compile_and_run_commands(tmp_path: Path) -> None:
    boltgen = ["-m", "boltgen"]
    folder = tmp_path / "digits"
    in_relay_environment(*boltgen, "compile", MODEL, "--frontend", "relay", "-o", folder)
    images = np.load(MODEL.parent / "heldout.npz")["images"][:40].astype(np.float32)
    np.savez(tmp_path / "in.npz", input=images)
    in_relay_environment(
        *boltgen, "run", folder, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz"
    )
    assert np.load(tmp_path / "out.npz")["logits"].shape == (40, 10)
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["frontend"] == "relay"
    assert metadata["versions"]["tvm"].startswith("0.17")
    assert len(metadata["regions"]) == 8
    assert "BOLTGEN_EXPORT(boltgen_0_conv2d" in (folder / "sources/regions.cc").read_text()


def test_doctor_says_what_the_tvm_can_do() -> None:
    printed = " ".join(in_relay_environment("-m", "boltgen", "doctor").split())
    assert "0.17.dev0" in printed
    assert "Relay (boltgen.relay, relay.build)" in printed
