"""Record how many faults, put into passes, their tests find.

A mutant is a module of `boltgen/passes` with one change: a comparison turned round, a guard that is
always true or never, an `and` for an `or`, a number one larger, a rewrite left out. It exists only
in the memory of a process of its own. The tests of the module run in that process, and random
networks through all passes, up to the first that fails: then the mutant is killed. Mutants are
drawn by a seed, equally many of each module.

    python -m benchmarks.pass_mutations [--per-module 6] [--seed 0] [--minutes 30] [WORD ...]
    python -m benchmarks.pass_mutations --again

The record has the mutants that survived. With `--again` only these are judged, after tests were
added, and the record is updated: what one test finds, more tests find too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.record import ROOT, earlier, write

PASSES = ROOT / "boltgen" / "passes"
TESTS = ROOT / "tests" / "passes"
# Seconds of the processor after which a mutant's tests, which take a few otherwise, are endless.
_PATIENCE_S = 120
_TARGET = 0.9
# Tests that reach modules through passes of other names.
_COVERED: dict[str, tuple[str, ...]] = {
    "attention.recognise": ("attention", "dynamic_shape_constants"),
    "bound": ("pipeline",),
    "joins.fuse_head_operators": ("fuse_qkv",),
    "masks.causal": ("padding_mask", "mask_operands"),
    "movement.gather_rows": ("sink_row_permutations",),
    "movement.row_permutation": ("sink_row_permutations",),
    "norms.between_matmuls": ("fuse_into_matmuls",),
    "norms.image_norms": ("flatten_axes",),
    "norms.recognise": ("norms", "fuse_into_matmuls"),
    "norms.spelled_norms": ("norms", "flatten_axes"),
    "outline": ("attention", "norms"),
    "padding.": ("padding",),
    "precision.": ("normalise", "normalise_operators", "quantisation"),
    "precision.products": ("convolutions",),
    "regions.anchor": ("quantisation",),
    "regions.epilogue_reductions": ("fuse_into_matmuls",),
    "regions.epilogue_rules": ("epilogue_walk", "precision_properties", "quantisation"),
    "regions.epilogue_walk": ("quantisation",),
    "regions.written_values": ("precision_properties",),
    "weights.": ("packed",),
    "weights.dequantised": ("quantisation",),
}
# What is imported anew by the process of a mutant.
_ANEW = ("boltgen.passes", "tests.passes", "test_")
_OPTIONS = ("-q", "--tier", "all", "-p", "no:cacheprovider", "--durations=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of a module: the node of that number in the order of `ast.walk`.

    `source` is the text of its line, by which it is found again after edits elsewhere.
    """

    module: str
    line: int
    source: str
    change: str
    node: int
    choice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A mutant and what its tests said: "killed", "survived" or "endless"."""

    module: str
    line: int
    source: str
    change: str
    outcome: str


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def changes(node: ast.AST) -> list[str]:
    """Name the changes that a node may have."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _TURNED:
            return [f"{type(op).__name__} becomes {_TURNED[type(op)].__name__}"]
        case ast.BoolOp(op=op, values=values):
            other = "or" if isinstance(op, ast.And) else "and"
            return [f"becomes {other}", *(f"without operand {n}" for n in range(len(values)))]
        case ast.UnaryOp(op=ast.Not()):
            return ["without not"]
        case ast.If():
            return ["guard is always true", "guard is never true"]
        case ast.IfExp():
            return ["choice is always the first", "choice is always the second"]
        case ast.BinOp(op=op) if type(op) in _OTHER:
            return [f"{type(op).__name__} becomes {_OTHER[type(op)].__name__}"]
        case ast.Constant(value=bool(value)):
            return [f"{value} becomes {not value}"]
        case ast.Constant(value=int(value)):
            return [f"{value} becomes {value + 1}"]
        case ast.FunctionDef() if _is_rewrite(node):
            return ["leaves its graph as it is"]
    return []


def _is_rewrite(node: ast.FunctionDef) -> bool:
    """Whether a function is a pass: of a graph alone, and to a graph."""
    first = node.args.args[0].annotation if node.args.args else None
    names = [each.id if isinstance(each, ast.Name) else "" for each in (first, node.returns)]
    return names == ["Graph", "Graph"] and not node.name.startswith("_")


def _changed(node: ast.AST, choice: int) -> ast.AST:
    """The node with the change of that number; the node itself is not touched."""
    made = copy.deepcopy(node)
    match made:
        case ast.Compare():
            made.ops = [_TURNED[type(made.ops[0])]()]
        case ast.BoolOp() if choice == 0:
            made.op = ast.Or() if isinstance(made.op, ast.And) else ast.And()
        case ast.BoolOp():
            del made.values[choice - 1]
            return made if len(made.values) > 1 else made.values[0]
        case ast.UnaryOp():
            return made.operand
        case ast.If() | ast.IfExp():
            made.test = ast.Constant(value=choice == 0)
        case ast.BinOp():
            made.op = _OTHER[type(made.op)]()
        case ast.Constant(value=bool(value)):
            made.value = not value
        case ast.Constant(value=int(value)):
            made.value = value + 1
        case ast.FunctionDef():
            made.body = [ast.Return(value=ast.Name(id=made.args.args[0].arg, ctx=ast.Load()))]
    return ast.copy_location(made, node)


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().generic_visit(node)


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a module."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    # An annotation, a default of a signature or a text of a message is no rewrite.
    skipped = {id(each) for node in ast.walk(tree) for each in _skipped(node)}
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for choice, change in enumerate(changes(node)):
            line = getattr(node, "lineno", 0)
            source = lines[line - 1].strip() if line else ""
            found.append(
                Mutant(
                    module=module,
                    line=line,
                    source=source,
                    change=change,
                    node=number,
                    choice=choice,
                )
            )
    return found


def _skipped(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that are not changed."""
    within: list[ast.AST] = []
    match node:
        case ast.FunctionDef():
            within = [node.args, *filter(None, [node.returns]), *node.decorator_list]
        case ast.ClassDef():
            # The default of a field is one of its class's signature.
            fields = (each.value for each in node.body if isinstance(each, ast.AnnAssign))
            within = [*node.decorator_list, *node.bases, *filter(None, fields)]
        case ast.AnnAssign():
            within = [node.annotation]
        case ast.JoinedStr() | ast.Assert() | ast.Raise():
            within = [node]
        case ast.Call(func=ast.Name(id="zip" | "cast")):
            within = [*node.keywords]
    for each in within:
        yield from ast.walk(each)


def mutated(mutant: Mutant) -> str:
    """Return the source of a mutant's module."""
    path = ROOT.joinpath(*mutant.module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(ast.walk(tree))[mutant.node]
    made = _Replacing(node, _changed(node, mutant.choice)).visit(tree)
    return ast.unparse(ast.fix_missing_locations(made))


def tests_of(module: str) -> list[Path]:
    """Return the tests of a module: by its name, by what they import, and by `_COVERED`.

    Whole networks come last: all passes work on them.
    """
    name = module.removeprefix("boltgen.passes.")
    names = [name.rpartition(".")[2]]
    for prefix, tests in _COVERED.items():
        names += tests if name.startswith(prefix) else ()
    found = [TESTS / f"test_{each}.py" for each in names]
    found += [path for path in sorted(TESTS.glob("test_*.py")) if _imports(path, module)]
    found.append(TESTS / "test_random_networks.py")
    return [path for path in dict.fromkeys(found) if path.exists()]


def _imports(path: Path, module: str) -> bool:
    text = path.read_text(encoding="utf-8")
    package, _, name = module.rpartition(".")
    return f"from {module} import" in text or f"from {package} import {name}\n" in text


def _unchanged(module: str) -> Mutant:
    """A module without a change, which no test may find."""
    return Mutant(module=module, line=0, source="", change="none", node=0, choice=0)


def judge(mutant: Mutant, tests: list[Path], limit_s: int = _PATIENCE_S) -> str:
    """Run the tests of a mutant's module in a process of their own."""
    return _outcome(_started(mutant, tests, limit_s))


def _started(mutant: Mutant, tests: list[Path], limit_s: int) -> int:
    child = os.fork()
    if child == 0:
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            os._exit(_child(mutant, tests))
    return child


def _outcome(child: int) -> str:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return "endless"
    return "survived" if code == 0 else "killed"


def _child(mutant: Mutant, tests: list[Path]) -> int:
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    try:
        _install(mutant)
    except Exception:
        return 1
    return int(pytest.main([*_OPTIONS, "-x", *map(str, tests)]))


def _warm() -> None:
    """Import what the tests import, once for all mutants.

    Random graphs are the same ones in each run; none that a mutant fails on is kept. A busy
    machine, which makes a test slow, kills no mutant.
    """
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, suppress_health_check=slow
    )
    settings.load_profile("mutants")
    pytest.main([*_OPTIONS, "--collect-only", "-qq", "--no-summary", str(TESTS)])


def _install(mutant: Mutant) -> None:
    """Put the mutant where the module is imported from."""
    source = mutated(mutant)

    class Loader(importlib.machinery.SourceFileLoader):
        def source_to_code(self, data: object, path: object, **options: object) -> object:  # type: ignore[override]
            del data, options
            return compile(source, str(path), "exec")

        def get_code(self, fullname: str) -> object:  # type: ignore[override]
            return self.source_to_code(None, self.get_filename(fullname))

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            del path, target
            if name != mutant.module:
                return None
            file = str(ROOT.joinpath(*name.split(".")).with_suffix(".py"))
            return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))

    for name in [each for each in sys.modules if each.startswith(_ANEW)]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]


def sample(per_module: int, seed: int, only: list[str]) -> list[Mutant]:
    """Draw mutants, as many of each module: the first one of all modules, then the second ones."""
    chosen: list[list[Mutant]] = []
    for path in sorted(PASSES.rglob("*.py")):
        drawn = random.Random(f"{seed} {path.relative_to(ROOT)}")
        every = mutants_of(path)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if only and not any(word in module for word in only):
            continue
        chosen.append(drawn.sample(every, min(per_module, len(every))))
    random.Random(seed).shuffle(chosen)  # so that a run that ends early has judged all rooms
    return [own[turn] for turn in range(per_module) for own in chosen if turn < len(own)]


def survivors(kept: Sequence[Mapping[str, Any]]) -> list[Mutant]:
    """Return the mutants that survived, as the record has them, where their lines still stand."""
    found = []
    for each in kept:
        path = ROOT.joinpath(*each["module"].split(".")).with_suffix(".py")
        made = mutants_of(path) if path.exists() else []
        same = [m for m in made if (m.source, m.change) == (each["source"], each["change"])]
        if same:
            found.append(min(same, key=lambda mutant: abs(mutant.line - each["line"])))
    return found


def main() -> None:
    """Draw mutants, judge them and record the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="judge modules with one of these words alone")
    parser.add_argument("--per-module", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="draw no mutant after so many")
    parser.add_argument("--again", action="store_true", help="judge the record's survivors alone")
    options = parser.parse_args()
    os.nice(5)
    _warm()
    verdicts: list[Verdict] = []
    start = time.monotonic()
    kept = earlier("pass_mutations") if options.again else {}
    chosen = (
        survivors(kept["survivors"])
        if options.again
        else sample(options.per_module, options.seed, options.modules)
    )
    tests = dict.fromkeys(test for mutant in chosen for test in tests_of(mutant.module))
    unchanged = _started(_unchanged(chosen[0].module), list(tests), 10 * _PATIENCE_S)
    for mutant in chosen:
        if time.monotonic() - start > options.minutes * 60:
            break
        own = tests_of(mutant.module)
        outcome = judge(mutant, own) if own else "survived"
        verdicts.append(
            Verdict(
                module=mutant.module,
                line=mutant.line,
                source=mutant.source,
                change=mutant.change,
                outcome=outcome,
            )
        )
        print(f"{outcome:8} {mutant.module}:{mutant.line} {mutant.change}", flush=True)
    if _outcome(unchanged) != "survived":
        sys.exit("the tests fail without a change; mend them first")
    counts = Counter(each.outcome for each in verdicts)
    if options.again:
        if len(verdicts) < len(chosen):
            sys.exit("not all survivors were judged; give more --minutes")
        before = Counter(kept["outcomes"])
        del before["survived"]
        counts += before
    mutants = counts.total()
    score = 1.0 - counts["survived"] / max(1, mutants)
    print(f"{mutants} mutants, {score:.1%} found (target {_TARGET:.0%})")
    if options.modules:
        return
    minutes = (time.monotonic() - start) / 60 + kept.get("minutes", 0.0)
    figures = {
        "seed": kept.get("seed", options.seed),
        "mutants": mutants,
        "score": round(score, 3),
        "outcomes": dict(counts),
        "minutes": round(minutes, 1),
        "survivors": [asdict(each) for each in verdicts if each.outcome == "survived"],
    }
    write("pass_mutations", figures, target=f"{_TARGET:.0%} of the mutants are found")


if __name__ == "__main__":
    main()
