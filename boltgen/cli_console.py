"""What all commands share: the consoles, and errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from boltgen.errors import BoltgenError

out = Console()
err = Console(stderr=True)

Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`name=1,3,224,224` as a name, which may hold an equals sign, and a shape.

    Raises:
        typer.BadParameter: it is not of that form.
    """
    name, _, extents = text.rpartition("=")
    parts = extents.split(",")
    if not name or not all(part.strip().isdigit() for part in parts):
        raise typer.BadParameter(f"--shape {text!r} is not of the form name=1,3,224,224")
    return name, tuple(int(part) for part in parts)


Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", help="An input's shape, name=1,3,224,224; for dynamic dimensions."),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Compilers that run at once.")]
Accumulate = Annotated[str, typer.Option(help="What products are summed in: float32 or float16.")]
Fuse = Annotated[
    bool, typer.Option(help="Make one kernel of products in sequence where that is faster.")
]
Pad = Annotated[
    bool, typer.Option(help="Give tensors more channels where that is faster: whole vectors.")
]
Frontend = Annotated[
    str | None, typer.Option(help="relax or relay; by default what the installed TVM has.")
]


@contextmanager
def errors_for_people(
    debug: bool, interrupted: str = "nothing half-written was kept"
) -> Iterator[None]:
    """End with status 1 and a sentence where boltgen raises, with 130 where a user interrupts."""
    try:
        yield
    except BoltgenError as error:
        if debug:
            raise
        err.print(Text("error: ", style="bold red") + Text(str(error)), soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print(f"interrupted; {interrupted}")
        raise typer.Exit(130) from None
