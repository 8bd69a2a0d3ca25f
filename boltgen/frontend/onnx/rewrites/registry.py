"""The table of rewritings: operators that a converter lacks or has wrongly, as standard ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from boltgen.frontend.onnx.scope import Builder

# Takes a node and writes what takes its place; False leaves the node as it is.
# Raises `UnsupportedError` where a converter would compute other numbers than ONNX has for it.
Rewriting: TypeAlias = Callable[[Any, Builder], bool]


class UnsupportedError(Exception):
    """A form of an operator that no converter takes as ONNX has it: `what` it is, and a remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewriting of one operator.

    `why` is a sentence for people; it is "" where the rule only refuses some forms. With `below`,
    it lifts nodes of operator sets older than that to the form of set 13. `only` names the one
    importer that wants it.
    """

    apply: Rewriting
    why: str
    below: int = 0
    only: str = ""


RULES: dict[str, list[Rule]] = {}


def rewrites(
    *operators: str, why: str = "", below: int = 0, only: str = ""
) -> Callable[[Rewriting], Rewriting]:
    """Enter a rewriting into the table, for the operators that it takes."""

    def enter(apply: Rewriting) -> Rewriting:
        for operator in operators:
            rule = Rule(apply=apply, why=why, below=below, only=only)
            RULES.setdefault(operator, []).append(rule)
        return apply

    return enter
