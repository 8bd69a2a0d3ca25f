"""Find out what a test module needs, from its imports and from the names in it.

The source is parsed, not imported, so that a tier can be chosen without TVM, PyTorch or a compiler.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Need(Enum):
    """Something that takes long to install, to import or to run."""

    TVM = "tvm"
    TORCH = "torch"
    ONNX = "onnx"
    SERVER = "server"
    COMPILER = "compiler"
    PROCESS = "process"
    BROWSER = "browser"


_PACKAGES = {
    "tvm": Need.TVM,
    "tvm_ffi": Need.TVM,
    "torch": Need.TORCH,
    "timm": Need.TORCH,
    "transformers": Need.TORCH,
    "onnx": Need.ONNX,
    "onnxruntime": Need.ONNX,
    "kserve": Need.SERVER,
    "grpc": Need.SERVER,
    "tritonclient": Need.SERVER,
    "schemathesis": Need.SERVER,
    "subprocess": Need.PROCESS,
    "multiprocessing": Need.PROCESS,
    "PyQt6": Need.BROWSER,
}
# Names with which a test, or a fixture of its folder, compiles something or loads a device.
_NAMES = {
    "activate": Need.COMPILER,
    "build_libraries": Need.COMPILER,
    "compile_all": Need.COMPILER,
    "compile_unit": Need.COMPILER,
    "find_toolchain": Need.COMPILER,
    "vgpu_libraries": Need.COMPILER,
}
_OURS = ("boltgen", "tests", "benchmarks", "models")


@cache
def needs_of(test: Path) -> frozenset[Need]:
    """Return what the test module `test` needs: itself, its folders' conftest.py, and all imports.

    Modules of `tests` count with the imports inside their functions; other modules of this
    repository only with those at their top, since they import TVM where they use it.
    """
    folders = [test.parent, *test.parent.parents]
    below = folders[: folders.index(ROOT / "tests")]
    pending = [test, *_present(folder / "conftest.py" for folder in below)]
    found: set[Need] = set()
    seen: set[Path] = set()
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            own = _own(path)
            found |= own.needs
            pending += own.imports
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Own:
    """What one module needs itself, and the files of ours that it imports."""

    needs: frozenset[Need]
    imports: tuple[Path, ...]


@cache
def _own(path: Path) -> _Own:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_test = path.is_relative_to(ROOT / "tests")
    needs: set[Need] = set()
    modules: dict[str, None] = {}
    for node in ast.walk(tree) if is_test else tree.body:
        match node:
            case ast.Import():
                modules |= dict.fromkeys(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(base)):
                names = (f"{base}.{alias.name}" for alias in node.names)
                modules |= dict.fromkeys((base, *names))
            case ast.Attribute(value=ast.Name(id="boltgen"), attr="compile"):
                needs.add(Need.COMPILER)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _NAMES:
                needs.add(_NAMES[name])
    files: list[Path] = []
    for module in modules:
        top = module.partition(".")[0]
        if top in _OURS:
            files += _files(module)
        elif top in _PACKAGES and (is_test or _PACKAGES[top] is not Need.PROCESS):
            needs.add(_PACKAGES[top])
    return _Own(frozenset(needs), tuple(files))


@cache
def _files(module: str) -> list[Path]:
    """The files that an import of `module` runs: its packages' and its own."""
    parts = module.split(".")
    paths = [ROOT.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    return _present(
        file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")
    )


def _present(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.is_file()]
