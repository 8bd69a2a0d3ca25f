"""The result of importing a model, for either IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from boltgen.errors import ModelImportError
from boltgen.ir.dtypes import DType

# A tensor type: shape, with a string for each unknown dimension and None for an unknown rank, and
# dtype.
TensorType: TypeAlias = tuple["tuple[int | str, ...] | None", str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or output: its name in the model, its shape and its dtype.

    An extent that is not known before the model runs is a name; the shape is None if not even the
    rank is known.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model as a module with the entry `main`; inputs and outputs in calling order.

    `notes` are sentences on what was rewritten before the import, and why. `dimensions` has the
    least and the greatest value of each name in shapes, if the model or its user gives them. The
    inputs at the places `narrowed` are FP32 to their author, and of a narrower type here.
    """

    module: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()
    dimensions: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    narrowed: frozenset[int] = frozenset()


def describe(
    module: Any,
    types: Sequence[TensorType],
    result: Any,
    tensor_type: Callable[[Any], TensorType],
    names: tuple[Sequence[str], Sequence[str]],
) -> ImportedModel:
    """A module, whose `main` takes `types` and returns `result`, a type of the IR.

    `names` names inputs and outputs; outputs without names are numbered.
    """
    results = [tensor_type(each) for each in getattr(result, "fields", (result,))]
    outputs = names[1] or [f"output_{place}" for place in range(len(results))]
    inputs, outs = (
        tuple(
            TensorSpec(name=name, shape=shape, dtype=dtype)
            for name, (shape, dtype) in zip(known, of, strict=True)
        )
        for known, of in ((names[0], types), (outputs, results))
    )
    return ImportedModel(module=module, inputs=inputs, outputs=outs)


def narrowed(imported: ImportedModel, module: Any, border: DType) -> ImportedModel:
    """`imported`, whose FP32 inputs and outputs are `border` in the rewritten `module`."""
    places = frozenset(place for place, each in enumerate(imported.inputs) if _is_wide(each))
    inputs, outputs = (
        tuple(replace(each, dtype=border.value) if _is_wide(each) else each for each in of)
        for of in (imported.inputs, imported.outputs)
    )
    names = [each.name for each in (*imported.inputs, *imported.outputs) if _is_wide(each)]
    note = f"{border.value} for the caller, float32 to the model's author: {', '.join(names)}"
    return replace(
        imported,
        module=module,
        inputs=inputs,
        outputs=outputs,
        narrowed=places,
        notes=(*imported.notes, *([note] if names else [])),
    )


def _is_wide(spec: TensorSpec) -> bool:
    return spec.dtype == DType.F32.value


def require_module(module: object, kind: type, ir: str) -> None:
    """Check that `partition` is given a module of TVM's, whose class is `kind`.

    Raises:
        ModelImportError: it is given anything else, such as a path.
    """
    if not isinstance(module, kind):
        name = f"boltgen.{ir.lower()}.partition"
        raise ModelImportError(
            f"{name} takes a tvm.IRModule of {ir} functions, and was given a "
            f"{type(module).__qualname__}: import the model with tvm.{ir.lower()}.frontend before, "
            "or call boltgen.compile, which takes paths and models"
        )


def require_main(module: Any, function: type, ir: str) -> None:
    """Check that a module has a `main` of the class `function`.

    Raises:
        ModelImportError: it has none; the message has what there is.
    """
    names = [gvar.name_hint for gvar in module.get_global_vars()]
    if "main" not in names or not isinstance(module["main"], function):
        raise ModelImportError(
            f"the module has no {ir} function 'main'; it has {', '.join(sorted(names)) or 'none'}"
        )


def first_line(error: Exception) -> str:
    """The beginning of what one of TVM's converters says: they raise whatever they please."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
