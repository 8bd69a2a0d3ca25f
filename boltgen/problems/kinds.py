"""The kinds of problems that there are, and what is asked of problems of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from boltgen.ir.dtypes import BYTES, ElementType
from boltgen.ir.extent import Dim
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gathered import Gathered
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.norm.problem import Norm
from boltgen.problems.problem import Problem


def with_extents(problem: Problem, change: Callable[[Dim], int]) -> Problem:
    """`problem` with each of its symbolic extents changed."""
    kind: Any = problem
    given = {each.name: getattr(problem, each.name) for each in fields(kind)}
    changed = {name: change(value) for name, value in given.items() if isinstance(value, Dim)}
    made: Problem = replace(kind, **changed) if changed else problem
    return made


def packed_weights(problem: Problem) -> PackedWeights | None:
    """The form in which a product's B is packed; None where it is not."""
    return problem.weights if isinstance(problem, Gemm) else None


def is_paired(problem: Problem) -> bool:
    """Whether D is made of two products of one A."""
    return isinstance(problem, Gemm) and problem.paired


def in_groups(problem: Problem) -> GroupedGemm | None:
    """A product of rows in groups, which takes `ends` besides A and B; None of any other."""
    return problem if isinstance(problem, GroupedGemm) else None


def gathered(problem: Problem) -> Gathered | None:
    """How the rows of a problem are taken of A; None where A has them in order."""
    return problem.gathered if isinstance(problem, (GroupedGemm, Norm)) else None


def element_b(problem: Problem) -> ElementType:
    """The type of B's elements in memory."""
    return problem.in_dtype if packed_weights(problem) is None else BYTES


# The kinds of problems that there are, as records and metadata name them.
PROBLEM_KINDS: tuple[type[Any], ...] = (Gemm, Conv2d, Norm, GroupedGemm, GroupNorm)


def describe(problem: Problem) -> str:
    """One line for people: `Gemm(m=64, n=10, k=128, b_layout=column, ...)`."""

    def show(value: object) -> str:
        if isinstance(value, PackedWeights):
            return value.short
        return str(value.value) if isinstance(value, Enum) else str(value)

    kind: Any = problem
    quiet = {"batch", "a_batched", "b_batched"} if problem.batch == 1 else set()
    quiet |= {"weights"} if packed_weights(problem) is None else set()
    quiet |= set() if is_paired(problem) else {"paired"}
    quiet |= set() if problem.slice_rows else {"slice_rows"}
    quiet |= {"a_rows", "rows_dtype"} if gathered(problem) is None else set()
    shown = ", ".join(
        f"{field.name}={show(getattr(problem, field.name))}"
        for field in fields(kind)
        if field.name not in quiet
    )
    return f"{type(problem).__name__}({shown})"
