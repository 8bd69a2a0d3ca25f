"""The suite's items as frozen values: a bundle holds them as JSON, in the order of the plan.

Arrow: `bundle` writes them; `building` compiles what they need, and `worker` measures them, where
the GPU is.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boltgen.bench.results import ResultsError
from boltgen.errors import assert_never
from boltgen.families.family import Config
from boltgen.families.json_form import decode, encode
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task

# Files of a bundle, by arch: the items; their keys with the part of the plan, for people and for a
# Python without packages; the sources by symbol, in the order in which they are needed, and the
# kernels that are there compiled. PACKED ends the names of compressed files.
ITEMS, KEYS = "items-{arch}.json.xz", "plan-{arch}.json"
SOURCES, KERNELS = "sources-{arch}.json.xz", "kernels-{arch}.json"
PACKED = ".xz"
# Names that a message lists.
_MOST_LISTED = 20
# How a model was made.
RECIPE = "models/{arch}-{name}.json"
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


Convolution: TypeAlias = Conv2d | Depthwise
# The problems that are raced.
Raced: TypeAlias = Gemm | Convolution | Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class Race(_Named):
    """A problem against the vendor's library (sections gemm, conv, depthwise, groups, recurrent).

    `problem` is what the vendor's library is asked; a pointwise convolution runs as a product.
    """

    problem: Raced
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend(_Named):
    """Attention against PyTorch's fastest backend (section attention).

    `heads` matrices of `rows` queries, `keys` keys and `depth` columns.
    """

    heads: int
    rows: int
    keys: int
    depth: int
    is_causal: bool
    product: Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap(_Named):
    """A kernel alone and beside compilers: may both go on at once (section method)?"""

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
    """Checks that are run again under a tool of compute-sanitizer's (section check).

    `kernels` are the symbols of theirs.
    """

    tool: str
    keys: tuple[str, ...]
    kernels: tuple[str, ...]


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
    """boltgen's tuner on a model's products, twice (section models); `most_s` each time.

    `kernels` are the symbols of the kernels that it may launch.
    """

    tasks: tuple[Task, ...]
    most_s: float
    kernels: tuple[str, ...]


_Kernels: TypeAlias = Race | Attend | Overlap | Space | Fusion | BackToBack | Padding
Item: TypeAlias = _Kernels | Check | Suspicion | Sanitized | WholeModel | Tuning


def needs_of(item: Item) -> tuple[str, ...]:
    """List the symbols of the kernels, or the model's libraries, that an item launches."""
    match item:
        case Fusion():
            found = (*_symbols(item.fused, item.behind), item.elementwise)
        case BackToBack():
            found = _symbols(item.fused, *item.layers)
        case Padding():
            found = (*_symbols(item.unpadded, item.padded), item.move)
        case WholeModel():
            forms = (MODEL_OURS, MODEL_ALONE, *([MODEL_TUNED] if item.is_tuned else []))
            found = tuple(form.format(name=item.name) for form in forms)
        case Tuning() | Sanitized():
            found = item.kernels
        case Race() | Attend() | Overlap() | Space() | Check() | Suspicion():
            found = _symbols(item.product)
        case _:
            assert_never(item)
    return tuple(dict.fromkeys(found))


def _symbols(*products: Product) -> tuple[str, ...]:
    return tuple(choice.kernel for product in products for choice in product.choices)


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


def chosen(items: Sequence[Item], sections: str, only: str) -> tuple[Item, ...]:
    """Choose the items of `sections` that `only` names: names with commas between, or "" for all.

    Raises:
        ResultsError: the bundle lacks a named section or item.
    """
    kept = _named("--sections", sections, {item.section for item in items})
    keys = _named("--only", only, set(map(key_of, items)))
    return tuple(item for item in items if item.section in kept and key_of(item) in keys)


def _named(option: str, wanted: str, known: set[str]) -> set[str]:
    named = set(wanted.split(",")) if wanted else known
    if unknown := named - known:
        listed = ", ".join(sorted(known)[:_MOST_LISTED])
        more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
        raise ResultsError(
            f"{option}: the bundle has no {', '.join(sorted(unknown))}; it has {listed}{more}"
        )
    return named
