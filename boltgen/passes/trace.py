"""Watch the graphs between passes: verify each, and write each graph that changed."""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass
from pathlib import Path

from boltgen.errors import BoltgenError, GraphError
from boltgen.graph.graph import Graph
from boltgen.graph.text import Constants, print_graph
from boltgen.graph.verify import Verifier
from boltgen.passes.run import Pass

# The name of the first text of a function.
IMPORTED = "imported"
_SUFFIX = ".graph.txt"
_HEAD = "# function "


class Watch:
    """Sees each graph after each pass; with a `folder` it writes a trace there.

    A function has a folder of the trace, and each of its files the number and the name of the pass
    that changed the graph: `0/12-set_precision.graph.txt`. It removes an earlier trace there.

    Raises:
        BoltgenError: the folder cannot be written, or has other files in the place of a trace.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None:
            _remove_trace(folder)
        self._folder = folder
        self._verifier = Verifier()
        self._constants = Constants()
        self._functions: dict[str, Path] = {}
        self._last = ""

    def begin(self, function: str, graph: Graph) -> None:
        """See the graph of a function as it was imported."""
        if self._folder is not None:
            path = self._folder / str(len(self._functions))
            path.mkdir()
            self._functions[function], self._last = path, ""
        self._see(function, graph, 0, IMPORTED)

    def passed(self, function: str, before: Graph, after: Graph, number: int, each: Pass) -> None:
        """See the graph that the pass of that number made of the graph `before`.

        Raises:
            GraphError: the graph breaks a rule; the message names the pass.
        """
        if after is not before:
            self._see(function, after, number, each.name)

    def body(self, symbol: str, graph: Graph, each: Pass) -> None:
        """See the body of a region after a pass."""
        self._verify(f"the body of the region {symbol}", graph, each.name)

    def _see(self, function: str, graph: Graph, number: int, name: str) -> None:
        if self._folder is not None:
            text = print_graph(graph, self._constants)
            if text != self._last:
                path = self._functions[function] / f"{number:02}-{name}{_SUFFIX}"
                path.write_text(f"{_HEAD}{function!r}\n{text}", encoding="utf-8")
                self._last = text
        self._verify(f"the function {function}", graph, name)

    def _verify(self, whose: str, graph: Graph, name: str) -> None:
        try:
            self._verifier.verify(graph)
        except GraphError as error:
            seen = f"the trace is in {self._folder}" if self._folder else "use --trace to see it"
            when = "as imported" if name == IMPORTED else f"after the pass {name}"
            raise GraphError(f"{when}, {whose} is no graph: {error}; {seen}") from None


@dataclass(frozen=True, slots=True)
class Step:
    """A text of a trace: the graph after the pass `name`."""

    name: str
    text: str


def read_trace(folder: Path) -> dict[str, tuple[Step, ...]]:
    """Return the texts of a trace by the names of the functions, in the order of the passes.

    Raises:
        BoltgenError: the folder has no trace, or cannot be read.
    """
    found: dict[str, tuple[Step, ...]] = {}
    try:
        for place in _places(folder):
            steps = []
            head = ""
            for path in sorted(place.glob(f"*{_SUFFIX}")):
                head, _, text = path.read_text(encoding="utf-8").partition("\n")
                name = path.name.removesuffix(_SUFFIX).partition("-")[2]
                steps.append(Step(name, text))
            if head.startswith(_HEAD):
                found[ast.literal_eval(head.removeprefix(_HEAD))] = tuple(steps)
    except OSError as error:
        raise BoltgenError(
            f"the trace in {folder} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, SyntaxError) as error:
        raise BoltgenError(f"the trace in {folder} cannot be read: {error}") from error
    if not found:
        raise BoltgenError(f"{folder} has no trace: `boltgen compile --trace DIR` writes one")
    return found


def _places(folder: Path) -> list[Path]:
    """The folders of functions in a trace, in order."""
    found = [each for each in folder.iterdir() if each.name.isdecimal()]
    return sorted(found, key=lambda each: int(each.name))


def _remove_trace(folder: Path) -> None:
    """Make a folder for a trace, without the functions of an earlier trace.

    Raises:
        BoltgenError: it cannot be made, or holds other files in the place of a function.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        places = _places(folder)
        for place in places:
            others = [each for each in place.iterdir() if not each.name.endswith(_SUFFIX)]
            if others:
                raise BoltgenError(
                    f"{place} holds {others[0].name}, which is no part of a trace: "
                    "give --trace another folder"
                )
        for place in places:
            shutil.rmtree(place)
    except OSError as error:
        raise BoltgenError(
            f"--trace: {error.filename or folder} cannot be written: {error.strerror or error}"
        ) from error
