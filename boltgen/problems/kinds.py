"""The registry of the kinds of problems. Each folder beside this module is a kind."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from boltgen import problems
from boltgen.errors import BoltgenError
from boltgen.problems.kind import Kind
from boltgen.problems.problem import Problem


class Kinds:
    """The kinds by the names of their classes, in the order of registration."""

    def __init__(self, found: Iterable[Kind]) -> None:
        self._kinds: dict[str, Kind] = {}
        for kind in found:
            self.register(kind)

    def register(self, kind: Kind) -> None:
        """Add a kind.

        Raises:
            BoltgenError: a kind has a class of this name.
        """
        name = kind.problem_type.__name__
        if name in self._kinds:
            raise BoltgenError(
                f"there are two kinds of problems with a class {name}; rename one of the classes"
            )
        self._kinds[name] = kind

    def remove(self, name: str) -> None:
        """Remove the kind whose class has this name."""
        del self._kinds[name]

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._kinds.values()))

    def of(self, problem: Problem) -> Kind:
        """Return the kind of a problem.

        Raises:
            BoltgenError: no kind is registered for its class.
        """
        name = type(problem).__name__
        kind = self._kinds.get(name)
        if kind is None or type(problem) is not kind.problem_type:
            raise BoltgenError(
                f"{name} is no kind of problems; the kinds are {', '.join(self._kinds)}; register "
                "it in boltgen.problems.kinds.KINDS"
            )
        return kind

    @property
    def problem_types(self) -> tuple[type, ...]:
        """The classes of problems, as records and metadata name them."""
        return tuple(kind.problem_type for kind in self)


def _found() -> Iterator[Kind]:
    for module in pkgutil.iter_modules(problems.__path__):
        if module.ispkg:
            yield importlib.import_module(f"{problems.__name__}.{module.name}.kind").KIND


KINDS = Kinds(_found())
