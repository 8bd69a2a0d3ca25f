"""What importing a model gives, whichever IR it is imported to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from boltgen.errors import ModelImportError

# A tensor type: shape, with a string for each dimension that is not known and None where there is
# no rank, and dtype.
TensorType: TypeAlias = tuple["tuple[int | str, ...] | None", str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or output: its name in the model, and what it holds.

    An extent that is not known before the model runs is a name; the shape is None where not even
    the rank is known.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model as a module with the entry `main`; inputs and outputs in calling order.

    `notes` are sentences on what was rewritten before the import, and why.
    """

    module: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()


def describe(
    module: Any,
    inputs: Sequence[tuple[str, TensorType]],
    outputs: Sequence[TensorType],
    output_names: Iterable[str] = (),
) -> ImportedModel:
    """A module and what its `main` takes and returns, outputs without names numbered."""
    names = tuple(output_names) or tuple(f"output_{place}" for place in range(len(outputs)))
    return ImportedModel(
        module=module,
        inputs=tuple(_spec(name, type_) for name, type_ in inputs),
        outputs=tuple(_spec(name, type_) for name, type_ in zip(names, outputs, strict=True)),
    )


def _spec(name: str, type_: TensorType) -> TensorSpec:
    shape, dtype = type_
    return TensorSpec(name=name, shape=shape, dtype=dtype)


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
