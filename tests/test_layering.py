"""Imports follow the data flow, one way. The source is parsed, not imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import boltgen

PACKAGE = Path(boltgen.__file__).parent
MODULES = {
    ".".join(("boltgen", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_resources" not in path.parts
}
MOST_LINES = 450

# What each layer may import of boltgen, besides itself. `errors` and `intake` are open to all.
_CORE = {"ir", "arch", "space"}
_PIPELINE = _CORE | {"tuning", "codegen", "build", "measure", "settings", "paths"}
ALLOWED = {
    "errors": set(),
    "intake": set(),
    "paths": set(),
    "settings": {"paths"},
    "ir": set(),
    "arch": set(),
    "space": {"ir", "arch"},
    "tuning": _CORE,
    "codegen": _CORE | {"paths"},
    "build": _CORE | {"codegen", "settings", "paths"},
    "measure": _CORE | {"tuning", "codegen", "build", "settings", "paths"},
    "stored": _PIPELINE,
    "options": {"ir", "space", "tuning", "build"},
    "pipeline": _PIPELINE | {"stored", "options"},
    "frontend": {"ir", "arch", "pipeline"},
    "runtime": _PIPELINE | {"options", "pipeline", "frontend"},
    "tuner": _PIPELINE | {"options", "pipeline", "frontend", "runtime", "stored"},
    "compiler": _PIPELINE | {"options", "pipeline", "frontend", "runtime", "stored", "tuner"},
}
# The edges: the public names, the command line, and what is bound to them.
_UNBOUND = {
    "",
    "cli",
    "__main__",
    "relax",
    "relay",
}
# Where outside packages and powers may be used.
EXTERNAL = {
    "tvm": ("boltgen.frontend", "boltgen.runtime"),
    "tvm_ffi": ("boltgen.frontend", "boltgen.runtime"),
    "jinja2": ("boltgen.codegen.render",),
    "subprocess": ("boltgen.build", "boltgen.measure", "boltgen.runtime"),
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
    if own in _UNBOUND:
        return
    assert own in ALLOWED, f"{name}: no layer of that name; say in ALLOWED what it may import"
    wrong = {
        target
        for target in IMPORTS[name]
        if target.split(".")[0] == "boltgen"
        and layer(target) not in ALLOWED[own] | {own, "errors", "intake"}
    }
    assert not wrong, f"{name} imports {sorted(wrong)}; {own} may import {sorted(ALLOWED[own])}"


@pytest.mark.parametrize("name", MODULES)
def test_outside_packages_stay_where_they_belong(name):
    for package, homes in EXTERNAL.items():
        if any(target.split(".")[0] == package for target in IMPORTS[name]):
            assert any(name == home or name.startswith(home + ".") for home in homes), (
                f"{name} imports {package}, which only {', '.join(homes)} may"
            )


@pytest.mark.parametrize("name", [name for name in MODULES if layer(name) == "ir"])
def test_ir_needs_the_standard_library_and_numpy_only(name):
    import sys

    roots = {target.split(".")[0] for target in IMPORTS[name]}
    assert roots <= sys.stdlib_module_names | {"numpy", "boltgen"}


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
