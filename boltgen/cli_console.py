"""What all commands share: the consoles, options, and errors as sentences."""

from __future__ import annotations

import contextlib
import logging
import traceback
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from boltgen.ending import UNREAD, ending_of, flush_streams
from boltgen.intake.numerals import MOST_EXTENT, MOST_JOBS, shown, whole_number

# Controls and marks of direction: a name in a file could use them to move the cursor, to colour, or
# to say something else than it does.
_HARMLESS = {
    number: "\N{REPLACEMENT CHARACTER}"
    for number in range(0x2070)
    if unicodedata.category(chr(number)) in {"Cc", "Cf"} and chr(number) not in "\n\t\xad"
}


class TextConsole(Console):
    """A console to which names are text: no markup, no emoji, nothing that a terminal obeys."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What to print, without what a terminal would obey; styles are rich's own."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(segment.text.translate(_HARMLESS), segment.style)

    def on_broken_pipe(self) -> None:
        """Nobody reads the output any more."""
        flush_streams()
        raise SystemExit(UNREAD)


out = TextConsole()
err = TextConsole(stderr=True)


class WarningsHandler(logging.Handler):
    """Prints what modules warn of, as text."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        err.print(Text(f"warning: {record.getMessage()}"), soft_wrap=True)


Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`name=1,3,224,224` as a name, which may hold an equals sign, and a shape.

    Raises:
        typer.BadParameter: it is not of that form.
    """
    name, _, extents = text.rpartition("=")
    parts = extents.split(",")
    wrong = f"--shape {shown(text)} is not of the form name=1,3,224,224"
    if not name:
        raise typer.BadParameter(wrong)
    try:
        return name, tuple(whole_number(part, 0, MOST_EXTENT) for part in parts)
    except ValueError as error:
        raise typer.BadParameter(f"{wrong}: {error}") from None


Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", help="An input's shape, name=1,3,224,224; for dynamic dimensions."),
]
Jobs = Annotated[int | None, typer.Option(min=1, max=MOST_JOBS, help="Compilers that run at once.")]
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
    """End with a sentence and the status of `boltgen.ending` where something is raised."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (Exception, KeyboardInterrupt) as error:
        raise typer.Exit(say_ending(error, interrupted, debug=debug)) from None


def say_ending(error: BaseException, interrupted: str, *, debug: bool = False) -> int:
    """Say why a command ends; the status to end with."""
    if debug:
        err.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
    ending = ending_of(error, interrupted)
    if ending.message:
        said = Text(ending.message)
        said.highlight_regex("^(internal )?error", style="bold red")
        with contextlib.suppress(OSError):  # there is nowhere left to say it
            err.print(said, soft_wrap=True)
    return ending.status
