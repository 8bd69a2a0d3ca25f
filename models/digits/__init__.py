"""The demo model: a small RepVGG-style network that reads handwritten digits.

`models/train_digits.py` makes the files that are loaded here; README.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

MODEL_PATH = Path(__file__).with_name("digits.onnx")
HELDOUT_PATH = Path(__file__).with_name("heldout.npz")
BATCH = 40  # the batch size of the ONNX file; the 360 held-out images are 9 batches


@dataclass(frozen=True, slots=True)
class Heldout:
    """Images that training never saw.

    images: (360, 1, 16, 16), float32, normalised as the model expects; labels: (360,), int64;
    mean, std: the normalisation of the pixels, which range from 0 to 16 before it.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    mean: float
    std: float

    def batches(self, size: int = BATCH) -> Iterator[npt.NDArray[np.float32]]:
        """The images in order, `size` at a time.

        Raises:
            ValueError: the images are not a whole number of batches.
        """
        if size < 1 or len(self.images) % size:
            raise ValueError(f"{len(self.images)} images are no whole number of batches of {size}")
        return (self.images[start : start + size] for start in range(0, len(self.images), size))

    def accuracy(self, logits: npt.ArrayLike) -> float:
        """The share of images whose largest logit is the right one; logits: (360, 10)."""
        scores = np.asarray(logits)
        if scores.shape != (len(self.labels), 10):
            raise ValueError(f"logits have shape {scores.shape}, not ({len(self.labels)}, 10)")
        return float(np.mean(np.argmax(scores, axis=1) == self.labels))


def load_heldout() -> Heldout:
    """The held-out split that belongs to the model."""
    with np.load(HELDOUT_PATH, allow_pickle=False) as arrays:
        return Heldout(
            images=arrays["images"],
            labels=arrays["labels"],
            mean=float(arrays["mean"]),
            std=float(arrays["std"]),
        )


def load_model(batch: int = BATCH) -> onnx.ModelProto:
    """The trained model; input: (batch, 1, 16, 16), logits: (batch, 10)."""
    if batch < 1:
        raise ValueError(f"the batch must be at least 1, got {batch}")
    model = onnx.load(MODEL_PATH)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    return model
