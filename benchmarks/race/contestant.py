"""A contestant of the race, and its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.race.machine import Machine
from benchmarks.race.problems import Problem


class CannotRunError(Exception):
    """A contestant has no kernel for a problem, or is not installed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """PTX that a contestant runs, and the ptxas that belongs to its compiler."""

    ptx: str
    ptxas: Path


class Entry(Protocol):
    """One configuration of a contestant for one problem."""

    @property
    def label(self) -> str:
        """The configuration, in short."""
        ...

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Compute the problem from tensors at `addresses`, into `output`.

        Raises:
            CannotRunError: the entry does not compile, or refuses the problem.
            LaunchError: the virtual GPU refuses it.
        """
        ...

    def compiled(self) -> Sequence[Compiled]:
        """List the modules that `launch` used."""
        ...


class Contestant(Protocol):
    """Somebody's kernels."""

    @property
    def name(self) -> str:
        """The name in the table."""
        ...

    @property
    def version(self) -> str:
        """The version of the package that the kernels come from."""
        ...

    def entries(self, problem: Problem, arch: str) -> Sequence[Entry]:
        """List the configurations to try; the one with the least modelled time races.

        Raises:
            CannotRunError: it has none for this problem or architecture.
        """
        ...
