"""What the suite does, as frozen values: a bundle holds them as JSON, a list for each arch.

Arrow: `bundle` writes them where the compilers are; `worker` reads them where the GPU is.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boltgen.ir.epilogue import Epilogue
from boltgen.ir.move import Move
from boltgen.ir.problem import Problem
from boltgen.ir.workload import AnyProblem
from boltgen.tuning.json_form import decode, encode
from boltgen.tuning.select import Task

# By arch: the items; of each kernel's symbol the file that holds it; how a model was made.
ITEMS, KERNELS, RECIPE = "items-{arch}.json.xz", "kernels-{arch}.json", "models/{arch}-{name}.json"
# What ends the name of a file that holds only the source of kernels, and the headers of all these.
SOURCE, SOURCE_HEADERS = ".cu.xz", "sources/headers.tar.xz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A configuration that may be launched, its kernel's symbol, and what the model predicts."""

    config: AnyConfig
    kernel: str
    predicted_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product with its epilogue, or a chain of them, in several configurations."""

    problem: AnyProblem
    epilogue: Epilogue
    choices: tuple[Choice, ...]

    @property
    def predicted_us(self) -> float:
        """The best of the analytical model's times."""
        return min(choice.predicted_us for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A product against the vendor's library (sections gemm and conv).

    `problem` is what the vendor's library is asked; a pointwise convolution runs as a product. An
    image's few channels are padded by `move`, in the same call.
    """

    section: str
    name: str
    problem: Problem
    product: Product
    move: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Configurations of a product, each to be recorded (section tune).

    `is_beyond`: the bundle has only the sources of their kernels, to be compiled where nvcc is.
    """

    section: str
    name: str
    product: Product
    is_beyond: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A kernel, the product's one choice, against its references (section check)."""

    section: str
    name: str
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A program of CUTLASS's own that may be wrong (section check).

    It stands for a product's kernel: the product is what it should compute. A control is a program
    that should be right.
    """

    section: str
    name: str
    suspicion: str
    is_control: bool
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """Checks that are run again under a tool of compute-sanitizer's (section check)."""

    section: str
    name: str
    tool: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """An epilogue inside the kernel against one behind it (section epilogue).

    `behind` is the plain product; `elementwise` adds the bias and computes `activation`.
    """

    section: str
    name: str
    activation: str
    fused: Product
    behind: Product
    elementwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBack:
    """A chain as one kernel against a kernel for each layer (section b2b)."""

    section: str
    name: str
    fused: Product
    layers: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """A convolution whose channels are no multiple of 8 against one that was padded.

    `move` copies the activations to `padded`'s channels, as a region's call does. Or else the
    kernel before it writes them so: `padded_producer`, in place of `producer`.
    """

    section: str
    name: str
    unpadded: Product
    padded: Product
    move: str
    producer: Product
    padded_producer: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A move of images against a plain copy of as many bytes (section copy)."""

    section: str
    name: str
    move: Move
    images: int
    pixels: int
    source_c: int
    target_c: int
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """A model against TVM without boltgen, and against PyTorch (section models).

    `model` is a name of `models.MODELS`, and takes FP16 of `input_shape`. `ours`, `alone` and
    `tuned` are names of libraries among the kernels; there is no `tuned` one where MetaSchedule has
    no log. `recipe` is the file that says how parameters are made.
    """

    section: str
    name: str
    model: str
    input_shape: tuple[int, ...]
    ours: str
    alone: str
    tuned: str | None
    recipe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """boltgen's tuner on a model's products, twice (section models); `most_s` each time."""

    section: str
    name: str
    tasks: tuple[Task, ...]
    most_s: float


Item: TypeAlias = (
    Race
    | Space
    | Check
    | Suspicion
    | Sanitized
    | Fusion
    | BackToBack
    | Padding
    | Copy
    | WholeModel
    | Tuning
)


def key_of(item: Item) -> str:
    """What names an item in results and on the command line: `gemm/512x512x512`."""
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
