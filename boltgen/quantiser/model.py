"""Load an ONNX model for quantisation, and run it by ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boltgen.errors import BoltgenError, InputError, ModelImportError
from boltgen.quantiser.layers import with_names
from boltgen.quantiser.observers import Array

try:
    import onnx
    import onnxruntime
except ImportError as error:
    raise BoltgenError(
        f"quantising needs the package {error.name}: pip install 'boltgen[quantize]'"
    ) from None

# DequantizeLinear has an axis since opset 13.
_LEAST_OPSET = 13
Sample = Mapping[str, Array]


def load(path: Path) -> onnx.ModelProto:
    """Read a model, fold its constants and batch normalisations, and name its nodes.

    Raises:
        ModelImportError: the file is no ONNX model of at most 2 GB that ONNX Runtime loads, or is
            quantised already.
    """
    try:
        model = onnx.load(path)
        _without_constant_inputs(model.graph)
        opset = {each.domain: each.version for each in model.opset_import}.get("", 1)
        if opset < _LEAST_OPSET:
            model = onnx.version_converter.convert_version(model, _LEAST_OPSET)
        model = _folded(model)
    except Exception as error:  # ONNX, its converter and ONNX Runtime raise any type
        raise ModelImportError(f"{path} cannot be read as an ONNX model: {error}") from error
    if any(node.op_type in {"QuantizeLinear", "DequantizeLinear"} for node in model.graph.node):
        raise ModelImportError(f"{path} is quantised already: give the model that it was made of")
    with_names(model.graph)
    return model


def _without_constant_inputs(graph: onnx.GraphProto) -> None:
    """Drop inputs that have a constant of their name: older exporters list all weights."""
    constants = {each.name for each in graph.initializer}
    kept = [each for each in graph.input if each.name not in constants]
    kept = [onnx.ValueInfoProto.FromString(each.SerializeToString()) for each in kept]
    del graph.input[:]
    graph.input.extend(kept)


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="boltgen-") as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options)
        return onnx.load(options.optimized_model_filepath)


class Runner:
    """A model in ONNX Runtime on the host; `more` tensors are results too.

    Its quantisations and products are computed in FP32 one by one: ONNX Runtime's own products of
    integers saturate in 16 bits on processors without VNNI.
    """

    def __init__(self, model: onnx.ModelProto, more: Sequence[str] = ()) -> None:
        self._own = [each.name for each in model.graph.output]
        wider = onnx.ModelProto()
        wider.CopyFrom(model)
        known = set(self._own)
        inputs = {each.name for each in model.graph.input}
        self._given = [each for each in more if each in inputs]
        for name in more:
            if name not in known and name not in inputs:
                wider.graph.output.append(onnx.ValueInfoProto(name=name))
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(wider.SerializeToString(), options)

    def results(self, sample: Sample) -> list[Array]:
        """Return the model's own results for a sample."""
        return list(self._session.run(self._own, dict(sample)))

    def tensors(self, sample: Sample) -> dict[str, Array]:
        """Return all results and the further tensors by name."""
        names = [each.name for each in self._session.get_outputs()]
        found = dict(zip(names, self._session.run(names, dict(sample)), strict=True))
        return {**found, **{name: sample[name] for name in self._given}}


def samples_of(model: onnx.ModelProto, given: Sequence[Sample]) -> list[Sample]:
    """Return samples of the sizes that the model takes.

    An array whose first extent is a multiple of the model's fixed one has several samples.

    Raises:
        InputError: an input's array is missing, has no number, or has another type or shape.
    """
    if not given:
        raise InputError("there are no samples: give --data FILE.npz with an array for each input")
    inputs = list(model.graph.input)
    return [part for sample in given for part in _parts(inputs, sample)]


def _parts(inputs: Sequence[onnx.ValueInfoProto], sample: Sample) -> Iterator[Sample]:
    counts = set()
    for info in inputs:
        if info.name not in sample:
            known = ", ".join(sorted(sample)) or "nothing"
            raise InputError(f"the samples have no array for input {info.name}, but {known}")
        counts.add(_count(info, sample[info.name]))
    if len(counts) > 1:
        shown = ", ".join(map(str, sorted(counts)))
        raise InputError(
            f"the arrays of the inputs hold {shown} samples: give equally many of each"
        )
    count = counts.pop() if counts else 1
    arrays = {info.name: sample[info.name] for info in inputs}
    for number in range(count):
        yield {
            name: array if count == 1 else np.split(array, count)[number]
            for name, array in arrays.items()
        }


def _count(info: onnx.ValueInfoProto, array: Array) -> int:
    """Return the number of samples in an input's array."""
    tensor = info.type.tensor_type
    wanted: list[Any] = [
        each.dim_value if each.HasField("dim_value") else None for each in tensor.shape.dim
    ]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    said = f"input {info.name}: the samples are {array.dtype} {_shown(array.shape)}"
    asked = f"the model takes {dtype} {_shown(wanted)}"
    if array.dtype != dtype or array.ndim != len(wanted) or not array.size:
        raise InputError(f"{said}, and {asked}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{said} with a NaN or an infinity: remove it, or calibrate with others")
    pairs = list(zip(array.shape, wanted, strict=True))
    if any(extent != want for extent, want in pairs[1:] if want is not None):
        raise InputError(f"{said}, and {asked}")
    if not pairs or pairs[0][1] is None:
        return 1
    extent, want = pairs[0]
    if extent % want:
        raise InputError(f"{said}, and {asked}: give a multiple of {want} in front")
    return int(extent // want)


def _shown(shape: Sequence[Any]) -> str:
    return "x".join("?" if each is None else str(each) for each in shape) or "scalar"
