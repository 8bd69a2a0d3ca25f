"""Check the shapes of a run's inputs.

Equal names must mean equal extents, formulas must hold, and every dimension must be in its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boltgen.artifact.metadata import DimensionInfo, TensorInfo
from boltgen.errors import InputError
from boltgen.ir.extent_text import Formula, formula_of, solve

Shapes = Mapping[str, Sequence[int]]


def check_sizes(
    expected: Sequence[TensorInfo], shapes: Shapes, dimensions: Sequence[DimensionInfo]
) -> dict[str, int]:
    """Compare the `shapes` of inputs, by name, with the model's; return the size of each dimension.

    Raises:
        InputError: a shape differs, two shapes contradict each other, or a dimension is out of
            range. The message has the input, both values, and the model's shape.
    """
    known: dict[str, int] = {}
    formulas: list[tuple[TensorInfo, int, Formula, int]] = []
    for info in expected:
        shape = tuple(shapes[info.name])
        if info.shape is None:
            continue
        if len(shape) != len(info.shape):
            raise _unfit(expected, info, shape, known)
        for axis, (want, have) in enumerate(zip(info.shape, shape, strict=True)):
            formula = formula_of(want) if isinstance(want, str) else None
            if formula is not None and not formula.is_name and have:
                formulas.append((info, axis, formula, have))
            # No dimension may be 0: TVM's sums over nothing are undefined.
            elif have != (known.setdefault(str(want), have) if formula and have else want):
                raise _unfit(expected, info, shape, known)
    solve(((formula, have) for _, _, formula, have in formulas), known)
    for info, axis, formula, have in formulas:
        problem = _contradiction(formula, have, known)
        if problem is not None:
            raise InputError(
                f"input {info.name!r} has the extent {have} at axis {axis}, {problem}; "
                f"{taken(expected)}"
            )
    for each in dimensions:
        _check_range(expected, shapes, each, known, dimensions)
    return known


def names_in(expected: Sequence[TensorInfo]) -> tuple[str, ...]:
    """Return the dimensions in the shapes of inputs, in order, without repetitions."""
    extents = (extent for info in expected for extent in info.shape or ())
    formulas = (formula_of(extent) for extent in extents if isinstance(extent, str))
    return tuple(dict.fromkeys(name for formula in formulas for name in formula.names))


def shape_at(shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with these sizes for its dimensions; an extent below 0 becomes 0."""
    return tuple(
        max(formula_of(extent).at(sizes), 0) if isinstance(extent, str) else extent
        for extent in shape
    )


def taken(expected: Sequence[TensorInfo]) -> str:
    """Return the inputs of a model, as the end of a message."""
    return "the model takes " + "; ".join(map(str, expected))


def _unfit(
    expected: Sequence[TensorInfo], info: TensorInfo, shape: Sequence[int], known: Mapping[str, int]
) -> InputError:
    named = "".join(f", with {name} = {value}" for name, value in known.items())
    none = "; no dimension may be 0" if 0 in shape and info.shape and 0 not in info.shape else ""
    return InputError(
        f"input {info.name!r} has shape {tuple(shape)}, expected {info.shape}{named}{none}; "
        f"{taken(expected)}"
    )


def _contradiction(formula: Formula, have: int, known: Mapping[str, int]) -> str | None:
    """Return why an extent contradicts its formula, as a part of a sentence, or None."""
    unknown = [name for name in formula.names if name not in known]
    if unknown:
        return f"which is {formula.text} for no whole {' and '.join(unknown)}"
    wanted = formula.at(known)
    if wanted == have and all(known[name] >= 1 for name in formula.names):
        return None
    values = ", ".join(f"{name} = {known[name]}" for name in formula.names)
    return f"expected {formula.text} = {wanted}, with {values}, each 1 or more"


def _check_range(
    expected: Sequence[TensorInfo],
    shapes: Shapes,
    limits: DimensionInfo,
    known: Mapping[str, int],
    dimensions: Sequence[DimensionInfo],
) -> None:
    formula = formula_of(limits.name)
    if not all(name in known for name in formula.names):
        return
    value = formula.at(known)
    if limits.low <= value and (limits.high is None or value <= limits.high):
        return
    info = next(
        each
        for each in expected
        if any(
            set(formula.names) & set(formula_of(extent).names)
            for extent in each.shape or ()
            if isinstance(extent, str)
        )
    )
    upper = f"to {limits.high}" if limits.high is not None else "on"
    ranges = {each.name: each for each in dimensions}
    suggested = _suggested(info.shape or (), shapes[info.name], ranges)
    remedy = f", for instance --shape {info.name}={suggested}" if suggested else ""
    raise InputError(
        f"input {info.name!r} has {limits.name} = {value}, the model was compiled for "
        f"{limits.low} {upper}: compile it with another range{remedy}"
    )


def _suggested(
    shape: Sequence[int | str], found: Sequence[int], ranges: Mapping[str, DimensionInfo]
) -> str:
    """Return ranges with the found sizes, as an option's value; "" for shapes with formulas."""
    extents = []
    for extent, value in zip(shape, found, strict=True):
        if isinstance(extent, str) and not formula_of(extent).is_name:
            return ""
        limits = ranges.get(str(extent))
        if limits is None or limits.high is None:
            extents.append(str(extent))
        else:
            extents.append(f"{min(limits.low, value)}..{max(limits.high, value)}")
    return ",".join(extents)
