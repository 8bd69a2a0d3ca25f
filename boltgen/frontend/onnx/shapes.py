"""The shapes of a model's inputs, from the file's declaration and the user's choice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from boltgen.errors import ModelImportError

# One extent: a number, or the name of one that is not known.
Extent = int | str
# Shapes by input, as users give them: extents that stay open are names, or ranges like "1..64".
Shapes = Mapping[str, tuple[Extent, ...]]
Ranges = Mapping[str, tuple[int, int]]


def graph_inputs(model: Any) -> list[Any]:
    """The model's inputs, without the initialisers that old exporters list among them."""
    known = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in known]


def bind_extents(declared: Mapping[str, Sequence[Extent] | None], shapes: Shapes) -> dict[str, int]:
    """Return the values that `shapes` gives to extents that `declared` names; "?" is no name.

    Raises:
        ModelImportError: there is no such input, or `shapes` gives one extent two values.
    """
    bound: dict[str, int] = {}
    first: dict[str, str] = {}
    for name, given in shapes.items():
        if name not in declared:
            raise ModelImportError(
                f"shapes names the input {name!r}, which the model does not have; it has "
                f"{', '.join(map(repr, declared)) or 'none'}"
            )
        for extent, value in zip(declared[name] or (), given, strict=False):
            if not isinstance(extent, str) or extent == "?" or isinstance(value, str):
                continue
            where = first.setdefault(extent, name)
            if bound.setdefault(extent, value) != value:
                raise ModelImportError(
                    f"the given shapes make the dimension {extent!r} both {bound[extent]} (input "
                    f"{where!r}) and {value} (input {name!r}); give it one value"
                )
    return bound


def input_shapes(model: Any, shapes: Shapes, *, symbolic: bool) -> dict[str, tuple[Extent, ...]]:
    """Return every input's shape. A dimension that stays dynamic is a name, the same for equal
    names in the file.

    `shapes` decides where the model leaves an extent open; a dimension that it fixes in one input
    is fixed in all that name it. Without `symbolic` no dimension may stay open.

    Raises:
        ModelImportError: an input has an unknown rank, is no tensor, or `shapes` contradicts the
            model or itself.
    """
    inputs = graph_inputs(model)
    declared = {value.name: _declared(value) for value in inputs}
    bound = bind_extents(declared, shapes)
    names = _Names()
    found: dict[str, tuple[Extent, ...]] = {}
    for name, extents in declared.items():
        known = None if extents is None else [_bound(each, bound) for each in extents]
        still_open = known is None or any(isinstance(each, str) for each in known)
        if name in shapes or known is None or (still_open and not symbolic):
            fixed = fix_shape(name, extents, shapes.get(name))
            known = [_bound(each, bound) for each in fixed]
        found[name] = tuple(
            names.of(name, axis, each) if isinstance(each, str) else each
            for axis, each in enumerate(known)
        )
    return found


def ranges_of(shapes: Mapping[str, Sequence[Extent]], given: Shapes) -> dict[str, tuple[int, int]]:
    """The ranges that are `given` for extents, by the names that these have in `shapes`.

    Raises:
        ModelImportError: one extent is given two ranges.
    """
    found: dict[str, tuple[int, int]] = {}
    for name, extents in given.items():
        for extent, text in zip(shapes[name], extents, strict=False):
            if not isinstance(extent, str) or not isinstance(text, str) or ".." not in text:
                continue
            low, high = map(int, text.split(".."))
            if found.setdefault(extent, (low, high)) != (low, high):
                raise ModelImportError(
                    f"the given shapes make the dimension {extent!r} both {found[extent][0]}.."
                    f"{found[extent][1]} and {text} (input {name!r}); give it one range"
                )
    return found


def _bound(extent: Extent, bound: Mapping[str, int]) -> Extent:
    return bound.get(extent, extent) if isinstance(extent, str) else extent


def _declared(value: Any) -> list[Extent] | None:
    if not value.type.HasField("tensor_type"):
        raise ModelImportError(
            f"input {value.name!r} is no tensor; only tensors are supported. Export the model with "
            "its tensors as inputs"
        )
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else (dim.dim_param or "?")
        for dim in tensor.shape.dim
    ]


class _Names:
    """Give each dynamic dimension a name that is an identifier in TVM."""

    def __init__(self) -> None:
        self._given: dict[str | tuple[str, int], str] = {}

    def of(self, value: str, axis: int, extent: str) -> str:
        key = (value, axis) if extent == "?" else extent
        if key not in self._given:
            text = f"{value}_{axis}" if extent == "?" else extent
            name = re.sub(r"\W", "_", text, flags=re.ASCII)[:64]
            name = name if name[:1].isalpha() else f"dim_{name}"
            while name in self._given.values():
                name += "_"
            self._given[key] = name
        return self._given[key]


def fix_shape(
    name: str, declared: Sequence[Extent] | None, given: tuple[Extent, ...] | None
) -> tuple[Extent, ...]:
    """Return an input's shape from the model's declaration and the user's choice.

    A dimension that the user leaves dynamic has the model's name, or "?" if the model has none.

    Raises:
        ModelImportError: a dimension stays open of which nothing is given, or the two contradict
            each other.
    """
    if given is None:
        open_axes = [axis for axis, e in enumerate(declared or []) if isinstance(e, str)]
        if declared is not None and not open_axes:
            return tuple(extent for extent in declared if isinstance(extent, int))
        what = "an unknown rank"
        example: tuple[int, ...] = (1, 3, 224, 224)
        if declared is not None:
            axis = open_axes[0]
            shown = ", ".join(map(str, declared))
            what = f"the dynamic dimension '{declared[axis]}' (axis {axis} of ({shown}))"
            example = tuple(extent if isinstance(extent, int) else 1 for extent in declared)
        text = ",".join(map(str, example))
        raise ModelImportError(
            f"input {name!r} has {what}; kernels are chosen for known sizes. Give it a shape, for "
            f"instance shapes={{{name!r}: {example}}}, or on the command line --shape {name}={text}"
        )
    known = ("?",) * len(given) if declared is None else tuple(declared)
    shown = f"the shape ({', '.join(map(str, given))}) given for input {name!r}"
    if any(isinstance(each, int) and each < 1 for each in given):
        raise ModelImportError(
            f"{shown} has no elements; give it extents of at least 1, or ranges such as 1..64"
        )
    if len(known) != len(given) or not all(map(_fits, known, given)):
        wanted = "any rank" if declared is None else f"({', '.join(map(str, known))})"
        raise ModelImportError(f"{shown} does not fit the model's {wanted}")
    return tuple(
        each if isinstance(each, int) else extent for extent, each in zip(known, given, strict=True)
    )


def _fits(declared: Extent, given: Extent) -> bool:
    """Return whether a given extent agrees with the model's declaration."""
    if isinstance(declared, int):
        return declared == given
    return isinstance(given, int) or ".." in given or given in {declared, "?"} or declared == "?"
