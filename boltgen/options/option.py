"""The definition of an option: a field of a dataclass, with help and check in its metadata.

Functions take such fields as keyword arguments (`takes`), and make options of them (`chosen`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from boltgen.cost.model import COST_MODELS
from boltgen.intake.given import Check
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.objectives import Total
from boltgen.tuning.strategies import STRATEGIES

_METADATA = "option"
# The users' names for defaults that are no texts.
_NAMES: dict[Any, str] = {
    **{strategy: name for name, strategy in STRATEGIES.items()},
    **{model: name for name, model in COST_MODELS.items()},
    Total(): "total",
}

Kind = TypeVar("Kind", bound="Options")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Option:
    """The facts about an option that a field does not have itself.

    `check` turns the field's name and the given value into the value to keep, or refuses it. `flag`
    is the type of the command line's option, or None if only Python has the option; `metavar` names
    the value in the help. An option is `is_decisive` if it is part of the model's key in the cache.
    It is not if a compiled model does not depend on it, or is never cached with it.
    """

    help: str
    check: Check
    flag: Any = None
    metavar: str | None = None
    names: tuple[str, ...] = ()
    is_decisive: bool = True


def described(said: str, check: Check, flag: Any = None, **more: Any) -> dict[str, Option]:
    """The metadata of a field with an `Option`."""
    return {_METADATA: Option(said, check, flag, **more)}


def option_of(each: Field[Any]) -> Option:
    """Return the `Option` of a field."""
    found: Option = each.metadata[_METADATA]
    return found


def default_of(each: Field[Any]) -> Any:
    """Return the default of a field as a user would write it, or None if it is empty."""
    match each.default:
        case value if value is MISSING:
            return None
        case Enum(value=text):
            return text
        case Budget() as budget:
            return str(budget)
        case value if value in _NAMES:
            return _NAMES[value]
        case value:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Fields with options, whose values are checked; a field may also have none.

    Raises:
        BoltgenError: a value is none of its option's; the message names the option.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            if _METADATA in each.metadata:
                checked = option_of(each).check(each.name, getattr(self, each.name))
                object.__setattr__(self, each.name, checked)

    @property
    def decisive(self) -> dict[str, Any]:
        """The fields that a compiled model depends on."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if _METADATA in each.metadata and option_of(each).is_decisive
        }


def chosen(kind: type[Kind], options: Kind | None, overrides: Mapping[str, Any]) -> Kind:
    """Return `options`, or the defaults of `kind`, with the `overrides` in their fields.

    Raises:
        TypeError: the options are of another kind, or no option has the name of an override.
        BoltgenError: a value is none of its option's.
    """
    if not isinstance(options, (kind, type(None))):
        raise TypeError(f"options are {kind.__name__}, not {type(options).__name__}")
    return replace(options or kind(), **overrides)


def takes(kind: type[Options]) -> Callable[[Function], Function]:
    """Let a function that passes its `overrides` to `chosen` show them in its signature and help.

    Its parameter `overrides` becomes the fields of `kind`.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        keywords = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default_of(each),
                annotation=each.type,
            )
            for each in fields(kind)
        ]
        kept = [p for p in own.parameters.values() if p.name != "overrides"]
        said = "\n".join(f"    {each.name}: {option_of(each).help}" for each in fields(kind))
        function.__signature__ = own.replace(parameters=[*kept, *keywords])  # type: ignore[attr-defined]
        function.__doc__ = (
            f"{inspect.cleandoc(function.__doc__ or '')}\n\nKeyword arguments:\n{said}\n"
        )
        return function

    return decorate
