"""Trains the demo network: `python -m models.train_digits` (needs torch and scikit-learn).

Writes models/digits/digits.onnx and models/digits/heldout.npz, and prints the accuracy of the
training form, of the deploy form, and of the deploy form rounded to FP16.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime  # type: ignore[import-untyped]
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional

from models.digits import BATCH, HELDOUT_PATH, MODEL_PATH, Heldout
from models.digits.network import IMAGE_SIZE, deploy_graph
from models.digits.training_form import DigitsNetwork, reparameterised
from models.fp16 import rounded_to_fp16
from models.parameters import TrainedParameters

HELDOUT_IMAGES = 360
TRAIN_BATCH = 64
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 5e-2
LABEL_SMOOTHING = 0.1
MAX_SHIFT = 2  # pixels of the 16x16 image, so one of the original 8x8


@dataclass(frozen=True, slots=True)
class Split:
    """Training images and labels, and the held-out split in the same normalisation."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    heldout: Heldout


def load_split(seed: int) -> Split:
    """A stratified split of scikit-learn's digits; 8x8 pixels repeated to 16x16."""
    pixels, labels = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 1, 8, 8).astype(np.float32)
    images = images.repeat(IMAGE_SIZE // 8, axis=2).repeat(IMAGE_SIZE // 8, axis=3)
    train_images, heldout_images, train_labels, heldout_labels = train_test_split(
        images,
        labels.astype(np.int64),
        test_size=HELDOUT_IMAGES,
        random_state=seed,
        stratify=labels,
    )
    mean, std = float(train_images.mean()), float(train_images.std())
    heldout = Heldout(
        images=((heldout_images - mean) / std).astype(np.float32),
        labels=heldout_labels,
        mean=mean,
        std=std,
    )
    return Split(((train_images - mean) / std).astype(np.float32), train_labels, heldout)


def train(split: Split, *, epochs: int, seed: int) -> DigitsNetwork:
    """Train for a fixed number of epochs; the held-out split takes no part in any choice."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    network = DigitsNetwork()
    images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    background = (0.0 - split.heldout.mean) / split.heldout.std
    steps = epochs * (len(images) // TRAIN_BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=LEARNING_RATE, total_steps=steps
    )
    for epoch in range(1, epochs + 1):
        started = time.monotonic()
        order = torch.randperm(len(images))[: len(images) // TRAIN_BATCH * TRAIN_BATCH]
        loss_sum = 0.0
        for chosen in order.reshape(-1, TRAIN_BATCH):
            logits = network(_shifted(images[chosen], background))
            loss = functional.cross_entropy(logits, labels[chosen], label_smoothing=LABEL_SMOOTHING)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            loss_sum += loss.item() * len(chosen)
        seconds = time.monotonic() - started
        print(f"epoch {epoch:3d}: loss {loss_sum / len(order):.4f}, {seconds:.1f} s", flush=True)
    return network.eval()


def _shifted(images: Tensor, background: float) -> Tensor:
    """Each image moved by up to MAX_SHIFT pixels in each direction."""
    padded = functional.pad(images, (MAX_SHIFT,) * 4, value=background)
    offsets = torch.randint(0, 2 * MAX_SHIFT + 1, (len(images), 2)).tolist()
    windows = [
        image[:, row : row + IMAGE_SIZE, column : column + IMAGE_SIZE]
        for image, (row, column) in zip(padded, offsets, strict=True)
    ]
    return torch.stack(windows)


def run(model: onnx.ModelProto, heldout: Heldout) -> npt.NDArray[np.float32]:
    """The logits of all held-out images."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.concatenate([session.run(None, {"input": x})[0] for x in heldout.batches()])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m models.train_digits",
        description="Train the digits network and write its ONNX file and the held-out images.",
        epilog="example: python -m models.train_digits --epochs 60",
    )
    parser.add_argument("--epochs", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--output",
        type=Path,
        default=MODEL_PATH.parent,
        help="folder for digits.onnx and heldout.npz (default: models/digits)",
    )
    arguments = parser.parse_args()

    split = load_split(arguments.seed)
    heldout = split.heldout
    network = train(split, epochs=arguments.epochs, seed=arguments.seed)
    with torch.no_grad():
        trained = network(torch.from_numpy(heldout.images)).numpy()

    model = deploy_graph(
        TrainedParameters(reparameterised(network)),
        batch=BATCH,
        doc="Handwritten digits, 16x16; see models/digits/README.md",
    )
    onnx.checker.check_model(model, full_check=True)
    deployed = run(model, heldout)
    rounded = run(rounded_to_fp16(model), heldout)

    onnx.save(model, arguments.output / MODEL_PATH.name)
    np.savez_compressed(
        arguments.output / HELDOUT_PATH.name,
        images=heldout.images,
        labels=heldout.labels,
        mean=np.float32(heldout.mean),
        std=np.float32(heldout.std),
    )
    print(f"{len(split.labels)} training images, {len(heldout.labels)} held out")
    for form, logits in (
        ("training form", trained),
        ("deploy form", deployed),
        ("deploy form rounded to FP16", rounded),
    ):
        difference = np.abs(logits - trained).max()
        print(f"{form:<28} {heldout.accuracy(logits):8.2%}  logits differ by {difference:.1e}")


if __name__ == "__main__":
    main()
