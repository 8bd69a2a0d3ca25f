"""Models compiled with `io="half"`: inputs and outputs are FP16, or BF16, where they were FP32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.errors import InputError
from boltgen.ir.dtypes import DType
from boltgen.options import CompileOptions
from boltgen.running.artifact import Artifact
from models.open_transformers import LlamaStep
from models.torch_transformers import WhisperStep
from tests.test_end_to_end import fp16_tolerance

WIDTH, HEAD, BEFORE, STEPS = 64, 16, 5, 4
Array = np.ndarray[Any, Any]


def tolerance(expected: Array, layers: int, dtype: DType = DType.F16) -> float:
    """As `fp16_tolerance`; what comes in and goes out is rounded too, which is one layer more."""
    unit = dtype.unit_roundoff / DType.F16.unit_roundoff
    return unit * fp16_tolerance(expected, layers + 1)


def distance(found: Array, expected: Array) -> float:
    """The root mean square of the difference."""
    return float(np.sqrt(np.mean(np.square(found.astype(np.float64) - expected))))


@dataclass(frozen=True)
class Decoder:
    """A step of decoding, its cache's heads, how deep it is, and how many kernels TVM launches.

    `new` are the inputs of the step at a place.
    """

    module: Callable[[], nn.Module]
    new: Callable[[int], dict[str, torch.Tensor]]
    heads: int
    layers: int
    kept: int
    has_audio: bool = False


DECODERS = {
    # The cache's growth.
    "whisper": Decoder(
        WhisperStep,
        lambda _: {"x": torch.randn(2, 1, WIDTH)},
        heads=4,
        layers=10,
        kept=2,
        has_audio=True,
    ),
    # The cache's growth, and rotations.
    "llama": Decoder(
        LlamaStep,
        lambda place: {"x": torch.randn(2, 1, WIDTH), "position": torch.full((2, 1), place)},
        heads=2,
        layers=8,
        kept=5,
    ),
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_cache_goes_out_and_comes_in_as_it_is(name: str, precision: str, checking: Vgpu) -> None:
    """Steps in a row, whose cache is never FP32, against those of PyTorch in FP32."""
    decoder = DECODERS[name]
    torch.manual_seed(0)
    model = decoder.module().eval()
    cache = [torch.randn(2, decoder.heads, BEFORE, HEAD) for _ in range(2)]
    steady = {"audio": torch.randn(2, 30, WIDTH)} if decoder.has_audio else {}
    names = ("keys", "values")
    example = {**decoder.new(BEFORE), **dict(zip(names, cache, strict=True)), **steady}
    before = {2: torch.export.Dim("before", min=1, max=40)}
    dynamic = {name: before if name in names else None for name in example}
    artifact = boltgen.compile(
        model,
        None,
        example_kwargs=example,
        dynamic_shapes=dynamic,
        arch="sm_80",
        precision=precision,
        io="half",
    )
    dtype = CompileOptions(precision=precision).precision.dtype  # type: ignore[arg-type]
    types = {each.name: each.dtype for each in artifact.metadata.inputs}
    assert {name: types[name] for name in types if name != "position"} == dict.fromkeys(
        (name for name in example if name != "position"), dtype.value
    )
    assert {each.dtype for each in artifact.metadata.outputs} == {dtype.value}

    wide = {**steady, **dict(zip(names, cache, strict=True))}
    half: dict[str, Any] = {name: value.numpy().astype(dtype.numpy) for name, value in wide.items()}
    for place in range(BEFORE, BEFORE + STEPS):
        new = decoder.new(place)
        with torch.no_grad():
            result, *longer = model(**new, **wide)
        wide |= dict(zip(names, longer, strict=True))
        given = {name: value.numpy().astype(types[name]) for name, value in new.items()}
        checking.clear_launches()
        found, *cached = artifact.run({**given, **half}, device="vgpu").values()
        half |= dict(zip(names, cached, strict=True))
        for have, want in ((found, result), *zip(cached, longer, strict=True)):
            assert have.dtype == dtype.numpy
            assert distance(have, want.numpy()) <= tolerance(want.numpy(), decoder.layers, dtype)
    assert [finding.message for finding in checking.findings()] == []
    theirs = [each.kernel for each in checking.launches() if "boltgen" not in each.kernel]
    assert len(theirs) == decoder.kept, theirs


_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
masked (float[4, 64] x, int64[4] rows, bool[4, 1] seen, float[4, 40] mask)
    => (float[4, 40] y, float[4, 64] same, int64[4] twice) {
  a = MatMul (x, w)
  b = Where (seen, a, zero)
  c = Add (b, mask)
  y = Softmax <axis = -1> (c)
  same = Identity (x)
  twice = Add (rows, rows)
}
"""


def written(folder: Path) -> Path:
    model = onnx.parser.parse_model(_MODEL)
    weight = np.random.default_rng(0).normal(0, WIDTH**-0.5, (WIDTH, 40)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    path = folder / "masked.onnx"
    onnx.save(model, path)
    return path


def inputs() -> dict[str, Array]:
    """A row of the mask hides half of its columns."""
    rng = np.random.default_rng(1)
    mask = np.zeros((4, 40), np.float32)
    mask[1, 20:] = np.finfo(np.float32).min
    return {
        "x": rng.standard_normal((4, WIDTH)).astype(np.float32),
        "rows": np.arange(4),
        "seen": np.array([[True], [True], [False], [True]]),
        "mask": mask,
    }


def narrowed(given: dict[str, Array], dtype: DType) -> dict[str, Array]:
    """The caller's side of the border: what is beyond FP16 is infinite there."""
    with np.errstate(over="ignore"):
        return {
            name: x.astype(dtype.numpy) if x.dtype == np.float32 else x for name, x in given.items()
        }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("masked"))


@pytest.fixture(scope="module")
def half(path: Path) -> Artifact:
    return boltgen.compile(path, arch="sm_80", io="half", check="full")


def test_integers_and_booleans_stay(path: Path, half: Artifact) -> None:
    metadata = half.metadata
    assert [str(each) for each in (*metadata.inputs, *metadata.outputs)] == [
        "x: float16[4, 64]",
        "rows: int64[4]",
        "seen: bool[4, 1]",
        "mask: float16[4, 40]",
        "y: float16[4, 40]",
        "same: float16[4, 64]",
        "twice: int64[4]",
    ]
    assert metadata.notes[0] == (
        "float16 for the caller, float32 to the model's author: x, mask, y, same"
    )
    assert metadata.check is not None and metadata.check.model is not None
    assert metadata.check.model.error is not None  # it was compared with TVM's own code
    own = boltgen.compile(path, arch="sm_80").metadata
    assert {each.dtype for each in own.inputs} == {"float32", "int64", "bool"}
    assert not any("for the caller" in note for note in own.notes)


def test_a_mask_s_lowest_number_may_become_infinite(path: Path, half: Artifact) -> None:
    given = inputs()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want, *_ = session.run(None, given)
    narrow = narrowed(given, DType.F16)
    assert np.isneginf(narrow["mask"]).any()
    found, same, twice = half.run(narrow).values()
    assert distance(found, want) <= tolerance(want, 2)
    assert not found[1, 20:].any()
    np.testing.assert_array_equal(same, narrow["x"])
    np.testing.assert_array_equal(twice, 2 * given["rows"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_an_array_of_another_type_is_refused_by_name(half: Artifact, dtype: type) -> None:
    given = {**inputs(), "x": np.zeros((4, WIDTH), np.float16), "mask": np.zeros((4, 40), dtype)}
    named = f"input 'mask' has dtype {np.dtype(dtype)}, expected float16: convert it; the model"
    with pytest.raises(InputError, match=named):
        half.run(given)


def test_what_is_calibrated_with_is_what_the_model_takes(path: Path) -> None:
    given = inputs()
    with pytest.raises(InputError, match="'x' has dtype float32, expected float16"):
        boltgen.compile(path, io="half", calibrate=given, check="none")
    given["mask"][:] = 0.0
    narrow = narrowed(given, DType.F16)
    artifact = boltgen.compile(path, io="half", calibrate=narrow, check="none")
    ranges = [each for each in artifact.metadata.ranges if each.operator == "matmul"]
    assert len(ranges) == 1 and not ranges[0].is_kept_wide
    assert artifact.run(narrow)["y"].dtype == np.float16


def test_both_precisions_have_a_half_of_their_own(path: Path) -> None:
    artifact = boltgen.compile(path, arch="sm_80", io="half", precision="bf16", check="full")
    assert str(artifact.metadata.inputs[3]) == "mask: bfloat16[4, 40]"
    given = inputs()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want, *_ = session.run(None, given)
    narrow = narrowed(given, DType.BF16)
    # BF16 has FP32's range, but its largest number is less than FP32's.
    narrow["mask"] = np.maximum(narrow["mask"], -np.array(DType.BF16.largest, DType.BF16.numpy))
    found = artifact.run(narrow)["y"]
    assert found.dtype == DType.BF16.numpy
    assert distance(found, want) <= tolerance(want, 2, DType.BF16)
