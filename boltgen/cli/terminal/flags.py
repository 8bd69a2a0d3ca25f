"""Options of the command line, made from the fields of `boltgen.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from boltgen.cli.terminal.console import errors_for_people
from boltgen.intake.numerals import MOST_JOBS
from boltgen.options import ARCH, DEFAULT_ARCH, ModelOptions
from boltgen.options.option import Option, default_of, option_of

Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Arch = Annotated[str, typer.Option("--arch", metavar=ARCH.metavar, help=ARCH.help)]
ArchOrNone = Annotated[str | None, typer.Option("--arch", metavar=ARCH.metavar, help=ARCH.help)]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, max=MOST_JOBS, metavar="N", help="Compilers that run at once."),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a .pt2 file.")]
Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX or .pt2 files.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `compile` wrote.")]

__all__ = [
    "DEFAULT_ARCH",
    "Arch",
    "ArchOrNone",
    "Debug",
    "Folder",
    "Jobs",
    "Model",
    "Models",
    "with_options",
]


def with_options(
    kind: type[ModelOptions], only: frozenset[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a command of a function with a parameter `options` of `kind`.

    The command has an option for each field with a flag, or for the fields in `only`. An invalid
    value ends the command with a sentence.
    """
    flags = [
        each
        for each in fields(kind)
        if option_of(each).flag is not None and (only is None or each.name in only)
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            asked = {each.name: given.pop(each.name) for each in flags}
            with errors_for_people(given["debug"]):
                options = kind(**{name: each for name, each in asked.items() if each is not None})
            function(options=options, **given)

        parameters = []
        for own in inspect.signature(function, eval_str=True).parameters.values():
            if own.name == "options":
                parameters += [
                    _keyword(each.name, _flag(option_of(each)), default_of(each)) for each in flags
                ]
            else:
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        command.__doc__ = function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _flag(option: Option) -> Any:
    """Return typer's annotation of an option."""
    told = typer.Option(*option.names, metavar=option.metavar, help=option.help)
    return Annotated[option.flag, told]
