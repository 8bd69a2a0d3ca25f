"""Make the record of an operator's attributes by its name, and check the types of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from types import NoneType
from typing import Any

from boltgen.errors import GraphError
from boltgen.graph.attributes import KINDS, Attributes


def attributes_of(operator: str, given: Mapping[str, Any]) -> Attributes:
    """Return the record of an operator's attributes, which are given by their names.

    Raises:
        GraphError: the operator has other attributes.
    """
    kinds = KINDS.get(operator, (Attributes,))
    for kind in kinds:
        with suppress(TypeError):
            return kind(**given)
    wanted = ", or ".join(", ".join(each.name for each in fields(kind)) or "none" for kind in kinds)
    raise GraphError(
        f"{operator} has the attributes {wanted}, not {', '.join(sorted(given)) or 'none'}; "
        "report this model to boltgen's authors"
    )


# The classes of values by the annotations of fields.
_CLASSES: Mapping[str, Any] = {
    **{"int": int, "float": (int, float), "bool": bool, "str": str},
    **{"tuple": tuple, "None": NoneType},
}


def mistyped(attributes: Attributes) -> str | None:
    """Return why a field's value is not of the field's type; None if all are."""
    for each in fields(attributes):
        parts = [part.partition("[")[0] for part in str(each.type).split(" | ")]
        known = tuple(_CLASSES.get(part, object) for part in parts)
        if not isinstance(getattr(attributes, each.name), known):
            return f"attribute {each.name} is of type {each.type}"
    return None
