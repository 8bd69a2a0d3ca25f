"""A pass of the pipeline, the arguments of a run of all passes, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from boltgen.graph.graph import Choice, Expr, Extents, Graph, Noted
from boltgen.graph.rules import recording
from boltgen.ir.dtypes import DType
from boltgen.passes.outline import CarvedRegion, Symbols, computes_all
from boltgen.passes.regions.products import Rejects
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.region import Placement, Region
from boltgen.problems.workload import Cutter, separate


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The options and inputs of a run of all passes over a module.

    `normalise` makes it `precision`, NHWC and free of batch norms; `allow_nonfinite` takes weights
    that are NaN or infinite. `cut` says which products become one kernel. `padding` has the times
    that decide about padding, and `joining` the times that decide about horizontal fusion and fused
    sums; None leaves it out. `rejects` says why no kernel computes a workload; products are summed
    in `accumulate`. `observed` has the least and the greatest element of expressions of the
    function `main`, as it is imported. The inputs of `main` that are `narrowed`, by position, have
    the type `precision`, and FP32 to their author. With `trace`, graphs are verified between
    passes, and that folder gets the text of each graph that a pass changed.
    """

    normalise: bool = True
    precision: DType = DType.F16
    allow_nonfinite: bool = False
    cut: Cutter = separate
    padding: GraphCosts | None = None
    joining: GraphCosts | None = None
    rejects: Rejects = computes_all
    accumulate: DType = DType.F32
    observed: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    narrowed: frozenset[int] = frozenset()
    trace: Path | None = None


DEFAULT_PASSES = Passes()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason of a pass that left an operator as it is; `shape` is its result's."""

    pass_name: str
    operator: str
    shape: Extents | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioned:
    """A module's functions with their regions carved out, by name.

    `padding` says of each product whose tensors could have more channels what was chosen,
    `notes` what else a reader should know, `refusals` why operators are in no region, `choices`
    what a pass of a name chose by times or by a rule, and `fired` how often each rule of each
    pass rewrote something, by the names of both. `write` makes the IR's module of it, where
    each region in its argument has a workspace of so many bytes.
    """

    graphs: Mapping[str, Graph]
    carved: Mapping[str, CarvedRegion]
    placements: tuple[Placement, ...]
    padding: tuple[str, ...]
    notes: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    choices: tuple[tuple[str, Choice], ...]
    fired: Mapping[str, Counter[str]]
    write: Callable[[Partitioned, Mapping[str, int]], Any]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions, in the order in which they were carved out."""
        return tuple(carved.region for carved in self.carved.values())

    def module(self, workspaces: Mapping[str, int] | None = None) -> Any:
        """The IR's module, which calls each region by its symbol.

        `workspaces` has the bytes that TVM plans for a region's call, by the region's symbol.
        """
        return self.write(self, workspaces or {})


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of all passes over the functions of a module, and what the passes leave.

    `function` is the name of the function whose graph the passes rewrite now. `packs_weights` tells
    whether regions may take packed weights, `writes_volumes` whether the IR computes convolutions
    of volumes in NDHWC.
    """

    passes: Passes
    symbols: Symbols
    packs_weights: bool
    writes_volumes: bool = True
    function: str = "main"
    carved: dict[str, CarvedRegion] = field(default_factory=dict)
    padding: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    choices: list[tuple[str, Choice]] = field(default_factory=list)
    fired: dict[str, Counter[str]] = field(default_factory=dict)

    def refuse(self, pass_name: str, expr: Expr, reason: str) -> None:
        """Keep the reason of a pass that leaves the operator `expr` as it is."""
        self.refusals.append(Refusal(pass_name, expr.op, expr.shape, reason))


def _always(_: Run) -> bool:
    return True


class Stage(Enum):
    """A part of the pipeline; the value is its purpose."""

    IMPORT = "Add to the imported graph what only the author's own operators show."
    RESPELL = "Rewrite the spellings of authors and importers to the one that later passes know."
    PRECISION = "Make the graph FP16 or BF16 and NHWC, and shorten what this leaves."
    MASKS = "Bring the masks of attention to a form that kernels load."
    JOIN = "Fuse anchors that share an input or follow each other, where times say so."
    OUTLINE = "Make a call of each region."
    LEGALISE = "Replace operators that no IR of TVM has."


@dataclass(frozen=True, slots=True)
class When:
    """A condition under which a pass runs, and its name for people."""

    text: str
    holds: Callable[[Run], bool]


ALWAYS = When("always", _always)
NORMALISING = When("unless the caller keeps dtypes and layouts", lambda run: run.passes.normalise)
FUSING = When("with `--fuse`", lambda run: run.passes.joining is not None)
PADDING = When("with `--pad`", lambda run: run.passes.padding is not None)
PACKING = When(
    "for FP16, where the IR takes packed weights",
    lambda run: run.packs_weights and run.passes.precision is DType.F16,
)


def nothing(_: Run) -> tuple[Any, ...]:
    """Give a rewrite that needs nothing but the graph no further arguments."""
    return ()


def the_run(run: Run) -> tuple[Any, ...]:
    """Give a rewrite the run itself, in which it leaves more than a graph."""
    return (run,)


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of a graph that has a place in the pipeline.

    `rewrite` takes the graph and what is `given` of a run; one of `passes.bound` has its work done
    in the module `works_in`. `effect` says what the pass does, `reason` why it runs at its place.
    `in_bodies` tells whether the bodies of regions go through the pass too.
    """

    stage: Stage
    name: str
    rewrite: Callable[..., Graph | Noted]
    effect: str
    reason: str
    when: When = ALWAYS
    given: Callable[[Run], tuple[Any, ...]] = nothing
    works_in: str = ""
    in_bodies: bool = False

    @property
    def home(self) -> str:
        """The module of the rewrite in `boltgen/passes`."""
        own = self.rewrite.__module__.removeprefix("boltgen.passes.").replace(".", "/")
        return self.works_in or own

    def run(self, graph: Graph, run: Run) -> Graph:
        """Return the graph that the pass makes of `graph`; keep its notes and choices in `run`.

        `run` counts the rules that fired. Where a rule matched an operator and left it, `run` keeps
        the rule's reason.
        """
        with recording() as log:
            made = self.rewrite(graph, *self.given(run))
        if log.fired:
            run.fired.setdefault(self.name, Counter()).update(log.fired)
        for miss in log.near:
            run.refuse(self.name, miss.operator, f"rule '{miss.rule}': {miss.reason}")
        if isinstance(made, Graph):
            return made
        run.notes.update(dict.fromkeys(made.notes))
        run.choices += [(self.name, each) for each in made.choices]
        return made.graph
