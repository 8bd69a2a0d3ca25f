"""The metadata of a compiled model: the contents of `metadata.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path, PurePosixPath

from boltgen.arch import arch_named
from boltgen.artifact.checked import LibraryCheck
from boltgen.errors import ArtifactError, RecordError, UnknownArchError
from boltgen.families.json_form import decode, encode
from boltgen.families.trial import Trial
from boltgen.intake.json_text import JsonError, read_json
from boltgen.intake.numerals import MOST_EXTENT, shown

# Fields that may have negative numbers.
_SIGNED = frozenset({"trials", "check"})
# Increase it if a field changes its meaning or is removed.
SCHEMA = 2

FILE_NAME = "metadata.json"

# Element types that a model's inputs and outputs can have, by NumPy's and ml_dtypes' names.
ELEMENTS = (
    *("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32"),
    *("uint64", "float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
FRONTENDS = ("relax", "relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """An input or output.

    An extent that is unknown before a run is a name; the shape is None if even the rank is unknown.
    An input that `is_finite` must not have NaN or infinities.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str
    is_finite: bool = False

    def __str__(self) -> str:
        shown = "any shape" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{shown}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionInfo:
    """A dimension of inputs' shapes, or a formula of dimensions, with its least and greatest value.

    None means that there is no greatest value.
    """

    name: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmInfo:
    """The matmul of a layer, as its kernel computes it: `batch` of M x N x K.

    A symbolic size is a name.
    """

    batch: int | str
    m: int | str
    n: int | str
    k: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceInfo:
    """The kernel that a region runs for some of its symbolic sizes: for `sizes`, in words."""

    sizes: str
    kernel: str
    config: str
    time_us: float
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionInfo:
    """A region of the model and the kernel that computes it.

    `moves` describes the layout transforms of A and D, and their cost. `gemms` has a matmul for
    each layer, `tile` is the threadblock's tile. `origin` names the source of `time_us`. If sizes
    are symbolic, `choices` has the table by which calls choose, and the other fields are for sizes
    in the middle of their ranges; `regret` is the mean ratio of the table's times to the best time
    of each size.
    """

    symbol: str
    label: str
    problem: str
    epilogue: str
    kernel: str
    config: str
    why: str
    moves: tuple[str, ...] = ()
    workspace_bytes: int = 0
    gemms: tuple[GemmInfo, ...] = ()
    family: str = ""
    tile: str = ""
    time_us: float | None = None
    origin: str = ""
    choices: tuple[ChoiceInfo, ...] = ()
    regret: float | None = None

    def runs(self, kernel: str) -> bool:
        """Return whether the region runs the kernel with this symbol for any sizes."""
        return kernel in {self.kernel, *(choice.kernel for choice in self.choices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """A kernel in the library; `source` is relative to the artifact's folder.

    `trials` are the model's launches of it; metadata of older versions has none. `registers` are
    per thread, from ptxas's report, which passed the audit; None if the kernel is PTX alone, or an
    older version wrote the metadata.
    """

    symbol: str
    config: str
    source: str
    trials: tuple[Trial, ...] = ()
    registers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementInfo:
    """The place of an operator: a region, or TVM with a reason; `flops` counts its anchors."""

    operator: str
    shape: tuple[int | str, ...]
    region: str | None
    reason: str
    flops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestInfo:
    """A TVM kernel, its number of launches in the model, and their least predicted time.

    `schedule` names its schedule and the reason, and is empty if none was measured. `moved_bytes`
    counts all launches, None in metadata of older versions. If `is_open`, these numbers are for
    sizes in the middle of their ranges.
    """

    name: str
    count: int
    time_us: float
    schedule: str = ""
    moved_bytes: int | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeInfo:
    """The range of a tensor on the calibration inputs, as text, because it may be infinite.

    The tensor `is_kept_wide`, in FP32, if FP16 cannot represent it.
    """

    operator: str
    shape: tuple[int, ...]
    low: str
    high: str
    is_kept_wide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseInfo:
    """A phase of the compilation and its time."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A compiled model's inputs, outputs and kernels, and the tools that made them.

    `library_sha256` is the digest of `model.so`. `versions` names boltgen, TVM, CUTLASS, nvcc and
    the host compiler. `frontend` is "relax" or "relay", whose TVM runs the model. `padding` has,
    for each anchor whose channels could be padded, the decision with its reason. `notes` name the
    other changes. `ranges` has the tensors' ranges on calibration inputs. `dimensions` has the
    names in shapes whose values the model or its user limits. `rest` has TVM's own kernels, None if
    the frontend is relay or a tensor has no shape. `sources_sha256` has the digests of the files in
    `sources`, by their paths in the artifact's folder; it is empty in metadata of older versions.
    `check` is the result of executing the library, None in metadata of older versions.
    """

    model: str
    arch: str
    entry: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    regions: tuple[RegionInfo, ...]
    kernels: tuple[KernelInfo, ...]
    placements: tuple[PlacementInfo, ...]
    phases: tuple[PhaseInfo, ...]
    versions: Mapping[str, str]
    library_sha256: str
    frontend: str = "relax"
    padding: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ranges: tuple[RangeInfo, ...] = ()
    dimensions: tuple[DimensionInfo, ...] = ()
    sources_sha256: Mapping[str, str] = field(default_factory=dict)
    check: LibraryCheck | None = None
    rest: tuple[RestInfo, ...] | None = None
    schema: int = field(default=SCHEMA)

    def write(self, folder: Path) -> None:
        """Write `metadata.json` into `folder`."""
        text = json.dumps(encode(Metadata, self), indent=2, ensure_ascii=False)
        # The name of a model's file may not be UTF-8.
        (folder / FILE_NAME).write_bytes(f"{text}\n".encode(errors="replace"))


def _check_tensors(kind: str, infos: Sequence[TensorInfo]) -> None:
    """Check the names, types and shapes of a model's inputs or outputs.

    Raises:
        RecordError: one is invalid; the message names the field.
    """
    names = [info.name for info in infos]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise RecordError(f"{kind}: two have the name {shown(repeated[0])}")
    for number, info in enumerate(infos):
        place = f"{kind}[{number}]"
        if info.dtype not in ELEMENTS:
            raise RecordError(
                f"{place}.dtype: expected one of {', '.join(ELEMENTS)}, found {shown(info.dtype)}"
            )
        if any(isinstance(extent, int) and extent > MOST_EXTENT for extent in info.shape or ()):
            raise RecordError(f"{place}.shape: an extent is more than {MOST_EXTENT}")


def _check_parts(metadata: Metadata) -> None:
    """Check constraints that the types of the fields do not express.

    Raises:
        RecordError: a value is invalid; the message names the field.
    """
    _check_amounts(metadata)
    _check_tensors("inputs", metadata.inputs)
    _check_tensors("outputs", metadata.outputs)
    if not metadata.outputs:
        raise RecordError("outputs: expected at least one, found none")
    if metadata.frontend not in FRONTENDS:
        raise RecordError(
            f"frontend: expected one of {', '.join(FRONTENDS)}, found {shown(metadata.frontend)}"
        )
    for number, range_ in enumerate(metadata.dimensions):
        if range_.high is not None and range_.low > range_.high:
            raise RecordError(f"dimensions[{number}]: {range_.low} to {range_.high} is empty")
    for name in (*metadata.sources_sha256, *(kernel.source for kernel in metadata.kernels)):
        _check_inside(name)


def _check_inside(name: str) -> None:
    """Check that a file named in the metadata is in the artifact's folder.

    Raises:
        RecordError: the file is elsewhere.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise RecordError(f"{shown(name)} is no file in the folder")


def _check_amounts(value: object, place: str = "") -> None:
    """Check that times, bytes, counts and operations are finite and not negative.

    Raises:
        RecordError: a number is not; the message names the field.
    """
    if is_dataclass(value):
        for each in fields(value):
            if each.name not in _SIGNED:
                within = f"{place}.{each.name}" if place else each.name
                _check_amounts(getattr(value, each.name), within)
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            _check_amounts(item, f"{place}[{number}]")
    elif isinstance(value, (int, float)) and not 0 <= value < math.inf:
        raise RecordError(f"{place}: expected a finite number of at least 0, found {value}")


def read_metadata(folder: Path) -> Metadata:
    """Read the metadata of the artifact in `folder`.

    Raises:
        ArtifactError: the folder has no metadata, or it cannot be read, or another version wrote
            it.
    """
    path = folder / FILE_NAME
    again = "compile the model again"
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise ArtifactError(
            f"{folder} is no compiled model: it has no {FILE_NAME}; give the folder that "
            "`boltgen compile -o` wrote"
        ) from None
    except NotADirectoryError:
        raise ArtifactError(f"{folder} is a file; a compiled model is a folder") from None
    except OSError as error:
        reason = error.strerror or error
        raise ArtifactError(f"{path} cannot be read ({reason}); {again}") from error
    except JsonError as error:
        raise ArtifactError(f"{path} cannot be read ({error}); {again}") from error
    if not isinstance(values, dict) or "schema" not in values:
        raise ArtifactError(f"{path} is not boltgen's: it names no schema; {again}")
    if values["schema"] != SCHEMA:
        raise ArtifactError(
            f"{path} has schema {repr(values['schema'])[:60]}, this version of boltgen reads "
            f"{SCHEMA}; {again}"
        )
    try:
        metadata: Metadata = decode(Metadata, values)
        arch_named(metadata.arch)
        _check_parts(metadata)
    except (RecordError, UnknownArchError) as error:
        raise ArtifactError(f"{path} is incomplete or damaged ({error}); {again}") from error
    return metadata
