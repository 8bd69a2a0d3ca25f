"""Local rewrites as values, and the driver that applies them to a graph.

    X = Var("x")
    RULE = Rule(
        name="drop a factor of one",
        pattern=op("multiply", X, Number("one", 1.0)),
        write=lambda found, builder: found["x"],
    )
    graph = rewrite(graph, (RULE,))

Rules are indexed by the operator at the root of their pattern. The driver writes the graph anew, in
order: where a rule fires, what it wrote is tried again at once, and the whole graph is tried again
until no rule fires. So a chain of rewrites takes one pass over the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial

from boltgen.errors import GraphError
from boltgen.graph.facts import Values, is_static_call
from boltgen.graph.graph import Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.graph.patterns import Bound, Match, Op, Reader, bindings, occurs, read_elsewhere, reads

# Rules fire less often than this for each operator, or they undo each other.
_MOST_FIRINGS = 64


def _always(_: Match) -> None:
    """Let a rule fire on every match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewrite of what `pattern` matches to the value that `write` writes.

    `unless` returns the reason why a match stays as it is, None if the rule fires, and "" for a
    match that nobody expects to change: it is not recorded. `write` returns a value of the shape
    and type of the root; its range, if one was observed, stays known. A rule that needs shapes
    leaves operators of unknown shapes.
    """

    name: str
    pattern: Op | Reader
    write: Callable[[Match, GraphBuilder], int]
    unless: Callable[[Match], str | None] = _always
    needs_shapes: bool = True

    def obstacle(self, found: Match) -> str | None:
        """Return why a match stays as it is, as `unless` does."""
        is_known = all(is_static_call(found.values, each) for each in found.members)
        return self.unless(found) if is_known or not self.needs_shapes else "a shape is unknown"


@dataclass(frozen=True, slots=True)
class NearMiss:
    """An operator that a rule's pattern matched, and the reason why it stayed as it is."""

    rule: str
    operator: Expr
    reason: str


@dataclass(frozen=True, slots=True)
class RuleLog:
    """The number of times that each rule fired, and its near misses."""

    fired: Counter[str] = field(default_factory=Counter)
    near: list[NearMiss] = field(default_factory=list)


_LOG: ContextVar[RuleLog | None] = ContextVar("rules", default=None)


@contextmanager
def recording() -> Iterator[RuleLog]:
    """Record the rules that fire, and nearly do, until the end of the block."""
    log = RuleLog()
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Return `graph` after `rules`, as often as one of them fires; `graph` itself if none does.

    Raises:
        GraphError: the rules fire without end.
    """
    most = _MOST_FIRINGS * (len(graph) + 1)
    log = _LOG.get()
    while True:
        by_root: dict[str, tuple[Rule, ...]] = {}
        for rule in rules:
            for root in rule.pattern.ops if occurs(rule.pattern, graph.operators) else ():
                by_root[root] = (*by_root.get(root, ()), rule)
        near: dict[tuple[str, int], NearMiss] = {}
        roots = sorted(index for root in by_root for index in graph.operators.get(root, ()))
        search = _Search(graph, graph, None, partial(reads, graph), None if log is None else near)
        if not any(search.first(by_root[graph[index].op], index) for index in roots):
            if log is not None:
                log.near.extend(near.values())
            return graph
        sweep = _Sweep(graph, by_root, most)
        graph = sweep.run()
        most -= sweep.fired.total()
        if log is not None:
            log.fired.update(sweep.fired)


@dataclass(slots=True)
class _Search:
    """A search for rules that match; see `Match` for the first fields.

    `reads` tells how often a value is read, `near` gets what each rule nearly matched at an index.
    """

    values: Values
    source: Graph
    origins: Mapping[int, int] | None
    reads: Callable[[int], int]
    near: dict[tuple[str, int], NearMiss] | None = None

    def first(self, rules: Sequence[Rule], index: int) -> tuple[Rule, Match] | None:
        """Return the first of `rules` that rewrites the value at `index`, and what it matched."""
        for rule in rules:
            for bound in bindings(self.values, rule.pattern, index, Bound()):
                found = Match(self.values, self.source, index, bound, self.origins)
                shared = read_elsewhere(self.values, bound, self.reads)
                reason = rule.obstacle(found)
                if shared and reason != "":
                    reason = f"others read the {shared} too"
                if reason is None:
                    return rule, found
                if self.near is not None and reason:
                    miss = NearMiss(rule.name, self.values[index], reason)
                    self.near.setdefault((rule.name, index), miss)
        return None


class _Sweep(GraphBuilder):
    """One graph, written anew, with the rules that fire on the way.

    `reads` counts the operators so far that read each value, and the operators and results of the
    source that will.
    """

    def __init__(self, source: Graph, rules: Mapping[str, tuple[Rule, ...]], most: int) -> None:
        super().__init__()
        self._source = source
        self._rules = rules
        self._most = most
        self._reads: list[int] = []
        self._origins: dict[int, int] = {}
        self._search = _Search(self, source, self._origins, self._reads.__getitem__)
        self.fired: Counter[str] = Counter()

    def add(self, expr: Expr) -> int:
        index = super().add(expr)
        self._reads.append(0)
        for arg in expr.args:
            self._reads[arg] += 1
        return index

    def run(self) -> Graph:
        """Return the graph after the rules that fired."""
        names: dict[int, int] = {}
        for index, expr in enumerate(self._source.exprs):
            made = self.add(renamed(expr, names))
            for arg in self[made].args:
                self._reads[arg] -= 1  # it was one of the expected readers
            names[index] = self._rewritten(made, index)
        return self.graph(mapped(self._source.results, names))

    def _rewritten(self, made: int, index: int) -> int:
        """Return what rules make of the value `made`, which was at `index` of the source."""
        readers = reads(self._source, index)
        self._reads[made] += readers
        self._origins[made] = index
        while (found := self._first(made)) is not None:
            rule, match = found
            before, end = self[made], len(self.exprs)
            new = rule.write(match, self)
            self._check(rule, before, self[new])
            if new >= end and self[new].observed is None and before.observed is not None:
                self.exprs[new] = replace(self[new], observed=before.observed)
            self._reads[new] += readers
            self._reads[made] -= readers
            self._release(made)
            made = new
            self._origins.setdefault(made, index)
        return made

    def _first(self, index: int) -> tuple[Rule, Match] | None:
        rules = self._rules.get(self[index].op)
        return None if rules is None else self._search.first(rules, index)

    def _check(self, rule: Rule, before: Expr, after: Expr) -> None:
        self.fired[rule.name] += 1
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise GraphError(
                f"rule '{rule.name}' made {after.dtype} {after.shape} of {before.op}, which is "
                f"{before.dtype} {before.shape}; report this model to boltgen's authors"
            )
        if self.fired.total() > self._most:
            raise GraphError(
                f"rule '{rule.name}' fires without end on {before.op} {before.shape}; report this "
                "model to boltgen's authors"
            )

    def _release(self, index: int) -> None:
        """Forget that a value reads others if nothing reads it."""
        pending = [index]
        while pending:
            at = pending.pop()
            if self._reads[at] or self[at].pinned:
                continue
            for arg in self[at].args:
                self._reads[arg] -= 1
                pending.append(arg)
