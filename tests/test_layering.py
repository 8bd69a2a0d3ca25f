"""Imports follow the data flow, one way. The source is parsed, not imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import boltgen
from boltgen.families.registry import FAMILIES
from boltgen.problems.kinds import KINDS

PACKAGE = Path(boltgen.__file__).parent
MODULES = {
    ".".join(("boltgen", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_resources" not in path.parts
}
MOST_LINES = 450

# What each layer may import of boltgen, besides itself. `errors`, `intake` and `installation`
# are open to all.
_KERNELS = {"ir", "problems", "arch", "codegen", "families"}
_CHOICE = _KERNELS | {"cost", "tuning"}
_MAKING = _CHOICE | {"build", "settings", "paths"}
_GRAPHS = {"graph", "passes", "frontend"}
_RUNS = {"artifact", "running", "device"}
_MODELS = _MAKING | {"stored", "options", "pipeline", "model_passes", "tvm_build"} | _GRAPHS | _RUNS
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "intake": set(),
    "installation": set(),
    "paths": set(),
    "settings": {"paths"},
    "ir": set(),
    "problems": {"ir"},
    "arch": set(),
    "codegen": {"ir", "problems", "arch", "paths"},
    "families": {"ir", "problems", "arch", "codegen"},
    "cost": {"ir", "problems", "arch", "families"},
    "tuning": _CHOICE - {"tuning"},
    "build": _KERNELS | {"settings", "paths"},
    "measure": _MAKING - {"cost", "tuning"},
    "stored": _MAKING,
    "options": _MAKING,
    "graph": {"ir", "problems"},
    "passes": {"ir", "problems", "graph", "settings"},
    "frontend": {"ir", "problems", "arch", "graph", "passes"},
    "pipeline": _MAKING | {"stored", "options"},
    "model_passes": _MAKING | {"stored", "options", "pipeline"} | _GRAPHS,
    "device": {"arch", "build", "settings", "frontend"},
    "artifact": {"arch", "families", "options", "settings"},
    "running": {"ir", "problems", "arch", "artifact", "device", "frontend", "settings"},
    "tvm_build": (_MODELS | {"measure"}) - {"tvm_build"},
    "serve": _RUNS | {"ir", "problems", "settings"},
    "report": {"ir", "problems", "arch", "families", "artifact", "graph"},
    "tuner": _MODELS | {"measure"},
    "check": _MODELS | {"measure"},
    "compiler": _MODELS | {"tuner", "check"},
    "bench": {"ir", "problems", "arch", "families", "tuning"},
    "quantiser": _MODELS,
    "relax": _MODELS,
    "relay": _MODELS,
    "": _MODELS | {"tuner", "compiler", "quantiser", "relax", "relay"},
    "cli": _MODELS | {"tuner", "check", "compiler", "quantiser", "bench", "serve", "report", ""},
    "__main__": {"cli", "settings"},
}
_WITH_TVM = ("boltgen.frontend", "boltgen.device", "boltgen.running", "boltgen.tvm_build")
# Where outside packages and powers may be used.
EXTERNAL = {
    "tvm": _WITH_TVM,
    "tvm_ffi": _WITH_TVM,
    "kserve": ("boltgen.serve",),
    "grpc": ("boltgen.serve",),
    "uvloop": ("boltgen.serve",),
    "uvicorn": ("boltgen.serve",),
    "fastapi": ("boltgen.serve",),
    "starlette": ("boltgen.serve",),
    "prometheus_client": ("boltgen.serve",),
    "opentelemetry": ("boltgen.serve",),
    "onnxruntime": ("boltgen.quantiser",),
    "jinja2": ("boltgen.codegen.render", "boltgen.report.page"),
    # Workers are started by measure.channel alone.
    "subprocess": ("boltgen.build", "boltgen.measure.channel", "boltgen.device.vgpu_program"),
}


def imports(name: str, tree: ast.Module) -> set[str]:
    """Dotted names that a module imports, in functions too; not for type checking only."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import on line {node.lineno}"
            # `from boltgen import errors` imports a module, not a name.
            base = node.module or ""
            below = {f"{base}.{alias.name}" for alias in node.names}
            found.update((below & MODULES.keys()) or {base})
    return found


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
IMPORTS = {name: imports(name, tree) for name, tree in TREES.items()}


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_the_way_the_data_flows(name):
    own = layer(name)
    assert own in ALLOWED, f"{name}: no layer of that name; say in ALLOWED what it may import"
    wrong = {
        target
        for target in IMPORTS[name]
        if target.split(".")[0] == "boltgen"
        and layer(target) not in ALLOWED[own] | {own, "errors", "intake", "installation"}
    }
    assert not wrong, f"{name} imports {sorted(wrong)}; {own} may import {sorted(ALLOWED[own])}"


def test_layers_import_each_other_in_one_order():
    order = list(TopologicalSorter(ALLOWED).static_order())  # raises CycleError
    assert set(order) == {layer(name) for name in MODULES}


def test_modules_import_each_other_in_one_order():
    """Those that are imported for type checking only too."""
    within = {name: (IMPORTS[name] & MODULES.keys()) - {name} for name in MODULES}
    assert len(list(TopologicalSorter(within).static_order())) == len(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_outside_packages_stay_where_they_belong(name):
    for package, homes in EXTERNAL.items():
        if any(target.split(".")[0] == package for target in IMPORTS[name]):
            assert any(name == home or name.startswith(home + ".") for home in homes), (
                f"{name} imports {package}, which only {', '.join(homes)} may"
            )


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_imported_that_only_a_checkout_has(name):
    """Nor by its name, as importlib would."""
    texts = {
        node.value
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    dotted = {text for text in texts if re.fullmatch(r"\w+(\.\w+)+", text)}
    roots = {target.split(".")[0] for target in IMPORTS[name] | dotted}
    assert not roots & {"benchmarks", "tests", "models"}


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "models"])
def test_only_tests_import_tests(folder: str) -> None:
    """What both need is in benchmarks/cases and benchmarks/harness."""
    found = {
        str(path.relative_to(PACKAGE.parent)): target
        for path in sorted((PACKAGE.parent / folder).rglob("*.py"))
        for target in imports(path.name, ast.parse(path.read_text(encoding="utf-8")))
        if target.split(".")[0] == "tests"
    }
    assert not found


@pytest.mark.parametrize("name", [name for name in MODULES if layer(name) in ("ir", "problems")])
def test_ir_needs_the_standard_library_and_numpys_types_only(name):
    import sys

    roots = {target.split(".")[0] for target in IMPORTS[name]}
    assert roots <= sys.stdlib_module_names | {"numpy", "ml_dtypes", "boltgen"}


# Where it may be asked of which class a problem or a configuration is: elsewhere one asks itself.
_FAMILY_HOMES = {
    family.name: ".".join(family.config_type.__module__.split(".")[:3]) for family in FAMILIES
}
_HOMES = {
    **{kind.__name__: ("boltgen.problems", "boltgen.families") for kind in KINDS.problem_types},
    **{family.config_type.__name__: (_FAMILY_HOMES[family.name],) for family in FAMILIES},
}


def classes_asked_for(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of classes in `isinstance`, `issubclass`, `case` and comparisons, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                asked: list[ast.AST] = [kinds]
            case ast.MatchClass(cls=kind):
                asked = [kind]
            case ast.Compare(left=left, comparators=others):
                asked = [left, *others]
            case _:
                continue
        for inner in (inner for each in asked for inner in ast.walk(each)):
            if isinstance(inner, ast.Name | ast.Attribute):
                yield inner.id if isinstance(inner, ast.Name) else inner.attr, inner.lineno


def inside(name: str, homes: tuple[str, ...]) -> bool:
    return any(name == home or name.startswith(home + ".") for home in homes)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_problem_or_a_configuration_is_matters_to_its_family_only(name):
    wrong = {
        f"{kind} on line {line}"
        for kind, line in classes_asked_for(TREES[name])
        if kind in _HOMES and not inside(name, _HOMES[kind])
    }
    assert not wrong, f"{name} asks for {sorted(wrong)}: let the value answer by a method"


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, Gemm)",
        "isinstance(x, (int, problem.Gemm))",
        "issubclass(x, Conv2d | Gemm)",
        "match x:\n    case Gemm(m=m): pass",
        "match x:\n    case (1, problem.Gemm()): pass",
        "type(x) is Gemm",
    ],
)
def test_every_way_to_ask_for_a_class_is_found(text):
    assert "Gemm" in {kind for kind, _ in classes_asked_for(ast.parse(text))}


@pytest.mark.parametrize("name", MODULES)
def test_a_family_is_named_only_within_itself(name):
    others = tuple(home for home in _FAMILY_HOMES.values() if not inside(name, (home,)))
    wrong = {each for each in IMPORTS[name] if inside(each, others)}
    assert not wrong, f"{name} imports {sorted(wrong)}: ask families.registry, or share the part"


@pytest.mark.parametrize("name", MODULES)
def test_the_environment_is_read_in_settings_only(name):
    reads = {
        f"line {node.lineno}"
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv", "environb"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    names = {
        alias.name
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for alias in node.names
    }
    reads |= names & {"environ", "getenv", "environb"}
    assert not reads or name == "boltgen.settings", f"{name} reads the environment: {reads}"


def test_no_import_cycles():
    graph = {name: (targets - {name}) & MODULES.keys() for name, targets in IMPORTS.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join((*path, name))}"
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_read_in_one_sitting(name):
    lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{name} has {lines} lines; split it by concern"


def test_the_operations_of_the_virtual_gpu_know_no_text_stream_or_option() -> None:
    folder = PACKAGE.parent / "vgpu" / "exec"
    wrong = [
        f"{path.name}: {line}"
        for path in sorted([*folder.glob("*.h"), *folder.glob("*.cpp")])
        for line in path.read_text("utf-8").splitlines()
        if line.startswith('#include "')
        and not line.startswith(('#include "exec/', '#include "vg'))
    ]
    assert len(list(folder.glob("*.cpp"))) > 20
    assert wrong == []
