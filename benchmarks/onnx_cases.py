"""Single-operator models with inputs and expected outputs, from the test cases of onnx.

Each case is stamped with every operator set from 7 to 23 at which its operator was another one, as
far as ONNX's checker and ONNX Runtime take it. Inputs after the first are constants, as the
parameters of operators are in models.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

OLDEST, NEWEST = 7, 23
# The newest file format that ONNX Runtime 1.23 reads.
IR_VERSION = 10
# Types that NumPy has from ml_dtypes.
_NARROW = frozenset(
    getattr(ml_dtypes, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
                 "float4_e2m1fn", "int4", "uint4", "int2", "uint2")
)  # fmt: skip
# Operators of two equal operands: both are inputs.
BOTH = frozenset({"MatMul", "Gemm", "Where", "Equal", "Less", "Greater", "And", "Or", "Xor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operator in one operator set, with data."""

    operator: str
    name: str
    opset: int
    model: Any
    inputs: dict[str, np.ndarray[Any, Any]]
    outputs: list[np.ndarray[Any, Any]]
    # ONNX's own results at the operator's newest version, which ONNX Runtime may be behind.
    given: list[np.ndarray[Any, Any]]

    @property
    def label(self) -> str:
        """The case and its operator set, as a file's name."""
        return f"{self.name}@{self.opset}"

    def save(self, folder: Path) -> None:
        """Write model and data into a folder."""
        onnx.save(self.model, folder / f"{self.label}.onnx")
        data = {f"in {name}": _stored(array) for name, array in self.inputs.items()}
        data |= {f"out {place}": _stored(array) for place, array in enumerate(self.outputs)}
        data |= {f"given {place}": _stored(array) for place, array in enumerate(self.given)}
        np.savez(folder / f"{self.label}.npz", **data)  # type: ignore[arg-type]


def cases() -> Iterator[Case]:
    """Every case of an operator of the standard domain that tensors describe."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about overflows that the cases expect
        collected = collect_testcases(None)
    for found in collected:
        nodes = found.model.graph.node
        if len(nodes) != 1 or nodes[0].domain not in {"", "ai.onnx"} or "expanded" in found.name:
            continue
        inputs, outputs = ([_array(each) for each in side] for side in found.data_sets[0])
        if not all(_is_numeric(each) for each in [*inputs, *outputs]):
            continue
        for opset in opsets(nodes[0].op_type):
            case = _stamped(found, opset, inputs, outputs)
            if case is not None:
                yield case


def opsets(operator: str) -> list[int]:
    """The operator sets from 7 to 23 that each brought another version of the operator."""
    versions = {
        max(schema.since_version, OLDEST)
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == operator and schema.domain == "" and schema.since_version <= NEWEST
    }
    return sorted(versions)


def _array(value: Any) -> Any:
    """Return the array of a tensor whose type NumPy lacks, such as INT4 and FP8."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _is_numeric(value: Any) -> bool:
    is_array = isinstance(value, (np.ndarray, np.generic))
    return is_array and (value.dtype.kind in "fiub" or value.dtype.type in _NARROW)


def _stored(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in a type of NumPy's own; imports refuse results of the others by name."""
    return array.view(np.uint8) if array.dtype.type in _NARROW else array


def _stamped(found: Any, opset: int, inputs: list[Any], outputs: list[Any]) -> Case | None:
    model = onnx.ModelProto()
    model.CopyFrom(found.model)
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", opset))
    model.ir_version = IR_VERSION
    operator = model.graph.node[0].op_type
    names = [value.name for value in model.graph.input]
    named = dict(zip(names, map(np.asarray, inputs), strict=True))
    if operator not in BOTH:
        for name in list(named)[1:]:
            model.graph.initializer.append(numpy_helper.from_array(named.pop(name), name))
        del model.graph.input[1:]
    is_newest = opset == opsets(operator)[-1]
    given = [np.asarray(each) for each in outputs] if is_newest else []
    try:
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), _quiet())
        wanted = session.run(None, named)
    except Exception as error:
        if isinstance(error, onnx.checker.ValidationError) or not is_newest:
            return None
        wanted = given  # ONNX Runtime lacks it
    return Case(
        operator=operator,
        name=found.name,
        opset=opset,
        model=model,
        inputs=named,
        outputs=list(wanted),
        given=given,
    )


def _quiet() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options
