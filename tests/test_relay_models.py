"""Whole models through `relay.build` on the virtual GPU, in the environment with Relay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from models.digits import MODEL_PATH as MODEL
from models.registry import build

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
    model: Path, image: np.ndarray, folder: Path
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """What was offloaded and launched, the outputs, and ONNX Runtime's."""
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = reference.get_inputs()[0].name
    np.savez(folder / "in.npz", **{name: image})
    printed = in_relay_environment(
        ROOT / "tests" / "relay" / "run_model.py", model, folder / "in.npz", folder / "out.npz"
    )
    (expected,) = reference.run(None, {name: image})
    return (
        json.loads(printed.splitlines()[-1]),
        np.load(folder / "out.npz")["output"],
        np.asarray(expected),
    )


def boltgen_launches(report: dict[str, Any]) -> int:
    return sum(kernel.startswith("boltgen_") for kernel in report["launches"])


def test_resnet18(tmp_path: Path) -> None:
    onnx.save(build("resnet18", batch=1, image_size=64), tmp_path / "resnet18.onnx")
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 3, 64, 64)).astype(np.float32)
    report, outputs, expected = run(tmp_path / "resnet18.onnx", image, tmp_path)
    # Twenty convolutions and the dense layer; each in one region, and each region in one launch.
    assert report["regions"] == 21
    assert boltgen_launches(report) >= 21
    assert not TVM_PRODUCTS & report["left_in_main"].keys()
    # FP16 activations between twenty layers: every layer adds an error of half an ulp, 2**-11,
    # of values as large as the largest, and they add up at worst.
    assert np.abs(outputs - expected).max() <= 21 * 2.0**-11 * np.abs(expected).max()


def test_demo_model(tmp_path: Path) -> None:
    heldout = np.load(MODEL.parent / "heldout.npz")
    images = heldout["images"][:40].astype(np.float32)
    report, outputs, expected = run(MODEL, images, tmp_path)
    assert report["regions"] == 11
    assert boltgen_launches(report) >= 11
    assert not TVM_PRODUCTS & report["left_in_main"].keys()
    assert (outputs.argmax(1) == expected.argmax(1)).all()
    assert (outputs.argmax(1) == heldout["labels"][:40]).mean() >= 0.97


def test_compile_and_run_commands(tmp_path: Path) -> None:
    boltgen = ["-m", "boltgen.cli"]
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
    assert len(metadata["regions"]) == 11
    assert "BOLTGEN_EXPORT(boltgen_0_conv2d" in (folder / "sources/regions.cc").read_text()


def test_doctor_says_what_the_tvm_can_do() -> None:
    printed = " ".join(in_relay_environment("-m", "boltgen.cli", "doctor").split())
    assert "0.17.dev0" in printed
    assert "Relay (boltgen.relay, relay.build)" in printed
