"""The consoles of all commands, and errors as sentences."""

from __future__ import annotations

import contextlib
import logging
import textwrap
import traceback
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from boltgen.build.progress import Reporter, Silent, reporter_for
from boltgen.cli.terminal.ending import UNREAD, ending_of, flush_streams
from boltgen.cli.terminal.tuning_progress import observer_for
from boltgen.tuning.session.progress import Observer, Quiet

# Control characters and direction marks: with them a file's name could move the cursor, change
# colours, or read differently from what it is.
_HARMLESS = {
    number: "\N{REPLACEMENT CHARACTER}"
    for number in range(0x2070)
    if unicodedata.category(chr(number)) in {"Cc", "Cf"} and chr(number) not in "\n\t\xad"
}


class TextConsole(Console):
    """A console that prints names as text: no markup, no emoji, no control sequences."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render without control sequences of the terminal, except rich's own styles."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(segment.text.translate(_HARMLESS), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise an error, because nobody reads the output any more."""
        flush_streams()
        raise SystemExit(UNREAD)


out = TextConsole()
err = TextConsole(stderr=True)


class LogHandler(logging.Handler):
    """Print log messages as text."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log message."""
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        err.print(Text(f"{prefix}{record.getMessage()}"), soft_wrap=True)


_logger = logging.getLogger("boltgen")


def be_verbose(count: int) -> None:
    """Print warnings for 0, more for 1 or 2, and only errors for -1, of what modules log."""
    levels = {-1: logging.CRITICAL, 0: logging.WARNING, 1: logging.INFO}
    _logger.setLevel(levels.get(count, logging.DEBUG))


def reporter() -> Reporter:
    """Return the reporter of a command's progress; it is silent with --quiet."""
    return Silent() if _logger.level == logging.CRITICAL else reporter_for(err)


def observer() -> Observer:
    """Return the observer of a tuning session's trials."""
    return Quiet() if _logger.level == logging.CRITICAL else observer_for(err)


def say(text: str, *, wrap: bool = True, indent: int = 2) -> None:
    """Print sentences, wrapped between words on a terminal, else as they are.

    `indent` applies to the lines of a sentence after its first.
    """
    if wrap and out.is_terminal:
        lines = (
            textwrap.fill(
                line,
                out.width,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in text.splitlines()
        )
        text = "\n".join(lines)
    out.print(Text(text), soft_wrap=True)


@contextmanager
def errors_for_people(
    debug: bool, interrupted: str = "nothing half-written was kept"
) -> Iterator[None]:
    """End a command that raises an exception with a sentence and a status; see `ending`."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except (Exception, KeyboardInterrupt) as error:
        raise typer.Exit(say_ending(error, interrupted, debug=debug)) from None


def say_ending(error: BaseException, interrupted: str, *, debug: bool = False) -> int:
    """Print why a command ends, and return the exit status."""
    if debug:
        err.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
    ending = ending_of(error, interrupted)
    if ending.message:
        said = Text(ending.message)
        said.highlight_regex("^(internal )?error", style="bold red")
        with contextlib.suppress(OSError):  # standard error is closed, too
            err.print(said, soft_wrap=True)
    return ending.status
