"""Find the share of quantised models' products that kernels of integers compute.

`python -m benchmarks.integer_share` quantises a ResNet-18 and layers of BERT-base with ONNX Runtime
(QDQ, random data), partitions them for sm_80, and records the share of the operations of matmuls
and convolutions that are of integers, and the reason of each product that multiplies floats. Two
activations, as in attention, have no kernel of integers: `of_weights` leaves them out of the total.
No kernel is compiled.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.record import write
from boltgen.pipeline import PipelineOptions
from boltgen.problems.problem import Problem
from boltgen.problems.region import Region
from boltgen.tvm_build.model import import_model, partition
from models import build

NAME = "integer_share"
ARCH = "sm_80"
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"batch": 1},
    "bert_base": {"layers": 2, "seq_len": 128},
}
_DYNAMIC = "bert_base, dynamic"


class Samples(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """Random inputs of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        rng = np.random.default_rng(0)
        (value,) = model.graph.input
        shape = [each.dim_value for each in value.type.tensor_type.shape.dim]
        arrays = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        self._left: Iterator[dict[str, Any]] = iter([{value.name: array} for array in arrays])

    def get_next(self) -> dict[str, Any] | None:
        """Return the next input, or None behind the last."""
        return next(self._left, None)


def quantised(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Quantise a model by ONNX Runtime in its usual forms, and yield their names and files."""
    whole, prepared = folder / f"{name}.onnx", folder / f"{name}-prepared.onnx"
    model = build(name, **MODELS[name])
    onnx.save(model, whole)
    quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
    for form, activation, symmetric, per_channel in (
        ("uint8", QuantType.QUInt8, False, False),
        ("int8 symmetric, per channel", QuantType.QInt8, True, True),
    ):
        made = folder / f"{name}-{len(form)}.onnx"
        quantize_static(
            str(prepared),
            str(made),
            Samples(model),
            quant_format=QuantFormat.QDQ,
            activation_type=activation,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            extra_options={"ActivationSymmetric": symmetric},
        )
        yield f"{name}, {form}", made
    if name == "bert_base":
        made = folder / "dynamic.onnx"
        quantize_dynamic(str(prepared), str(made), weight_type=QuantType.QInt8)
        yield _DYNAMIC, made


def share(path: Path) -> dict[str, Any]:
    """The share of a model's products that are of integers, and the reasons of the others."""
    options = PipelineOptions()
    imported = import_model(path, options)
    partition(imported, ARCH, options)
    made = imported.partitioned
    total = sum(each.flops for each in made.placements)
    problems = [problem for region in made.regions for problem in _problems(region)]
    integers = sum(each.flops for each in problems if each.in_dtype.is_whole)
    pairs = sum(each.flops for each in problems if each.is_matrix and each.batch > 1)
    reasons = Counter(
        f"{each.operator}: {each.reason}"
        for each in made.refusals
        if each.pass_name in {"multiply_integers", "narrow_integers"}
    )
    return {
        "of_all": round(integers / total, 4),
        "of_weights": round(integers / (total - pairs), 4),
        "integer_products": sum(each.in_dtype.is_whole for each in problems if each.has_b),
        "products": sum(each.has_b for each in problems),
        "left": dict(sorted(reasons.items())),
    }


def _problems(region: Region) -> list[Problem]:
    return [layer.problem for layer in region.workload.layers]


def main() -> None:
    """Record the share of each model and form."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            for form, path in quantised(model, Path(name)):
                figures[form] = share(path)
    write(NAME, figures, "99 % of the operations of products with weights in integers")


if __name__ == "__main__":
    main()
