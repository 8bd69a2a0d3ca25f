"""The items of the suite, as frozen values: a bundle holds them as JSON, a list for each arch.

Arrow: `bundle` writes them where the compilers are; `worker` reads them where the GPU is.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boltgen.families.family import Config
from boltgen.families.json_form import decode, encode
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task

# Files by arch: the items; the file that holds each kernel's symbol; the recipe of a model; the
# virtual GPU's outputs of section check. PACKED ends the names of compressed files.
ITEMS, KERNELS, RECIPE = "items-{arch}.json.xz", "kernels-{arch}.json", "models/{arch}-{name}.json"
# The content of each of boltgen's kernels, as records have it.
CONTENTS = "contents-{arch}.json"
OUTPUTS, PACKED = "outputs-{arch}", ".xz"
# A model's libraries among the kernels: boltgen's, TVM's own, and TVM's with a log's schedules.
MODEL_OURS, MODEL_ALONE = "model_{name}", "model_{name}_tvm_alone"
MODEL_TUNED = "model_{name}_tvm_metaschedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A configuration that may be launched, its kernel's symbol, and what the model predicts."""

    config: Config
    kernel: str
    predicted_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A workload in several configurations."""

    workload: Workload
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The name of an item in results and on the command line: section and name."""

    section: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Race(_Named):
    """A product against the vendor's library (sections gemm and conv).

    `problem` is what the vendor's library is asked; a pointwise convolution runs as a product.
    """

    problem: Gemm | Conv2d
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(_Named):
    """Configurations of a product, each to be recorded (section tune)."""

    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(_Named):
    """A kernel, the product's one choice, against its references (section check)."""

    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion(_Named):
    """A program of CUTLASS's own that may be wrong (section check).

    It stands for a product's kernel: the product is what it should compute. A control is a program
    that should be right.
    """

    suspicion: str
    is_control: bool
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized(_Named):
    """Checks that are run again under a tool of compute-sanitizer's (section check)."""

    tool: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion(_Named):
    """An epilogue inside the kernel against one behind it (section epilogue).

    `behind` is the plain product, of `problem`; `elementwise` adds the bias and computes
    `activation`.
    """

    problem: Gemm | Conv2d
    activation: str
    fused: Product
    behind: Product
    elementwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBack(_Named):
    """Layers as one kernel against a kernel for each (section b2b)."""

    fused: Product
    layers: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding(_Named):
    """A convolution whose channels are no multiple of 8 against one that was padded.

    `move` is the kernel that copies the activations of `problem` to `padded`'s channels, as a
    region's call does.
    """

    problem: Conv2d
    unpadded: Product
    padded: Product
    move: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel(_Named):
    """A model against TVM without boltgen, and against PyTorch (section models).

    `model` is a name of `models.MODELS`, and takes FP16 of `input_shape`. `is_tuned` says that
    MetaSchedule has a log of it, and so the bundle a library with that log's schedules. `recipe` is
    the file that says how parameters are made.
    """

    model: str
    input_shape: tuple[int, ...]
    is_tuned: bool
    recipe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(_Named):
    """boltgen's tuner on a model's products, twice (section models); `most_s` each time."""

    tasks: tuple[Task, ...]
    most_s: float


_Kernels: TypeAlias = Race | Space | Fusion | BackToBack | Padding
Item: TypeAlias = _Kernels | Check | Suspicion | Sanitized | WholeModel | Tuning


def key_of(item: Item) -> str:
    """Return an item's name in results and on the command line: `gemm/512x512x512`."""
    return f"{item.section}/{item.name}"


def write_items(path: Path, items: tuple[Item, ...]) -> None:
    """Write the items of an arch."""
    text = json.dumps([encode(Item, item) for item in items], separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode()))


def read_items(path: Path) -> tuple[Item, ...]:
    """The items of an arch.

    Raises:
        RecordError: the file is of another version of the suite.
    """
    found: tuple[Item, ...] = decode(
        tuple[Item, ...], json.loads(lzma.decompress(path.read_bytes()))
    )
    return found
