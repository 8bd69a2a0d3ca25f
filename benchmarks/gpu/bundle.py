"""Packs the suite for a GPU machine without network: `make gpu-bundle`.

No kernel is compiled here: sources travel, with what compiles them there, and kernels that this
machine's cache has. It takes Python with PyTorch there, a driver, nvcc 13 and g++.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.building import EXAMPLE, PROFILER
from benchmarks.gpu.built import fault_of
from benchmarks.gpu.items import (
    ITEMS,
    KERNELS,
    KEYS,
    PACKED,
    RECIPE,
    SOURCES,
    WholeModel,
    key_of,
    needs_of,
    write_items,
)
from benchmarks.gpu.metaschedule import RECORDED, find_logs
from benchmarks.gpu.paper import figures
from benchmarks.gpu.plan import Part, full_plan, quick_plan, quick_wanted, sweep_plan
from benchmarks.gpu.run_gpu_suite import PACKAGES
from benchmarks.gpu.tvm_models import build_models
from benchmarks.gpu.tvm_runtime import LIBRARIES
from benchmarks.gpu.wanted import Wanted
from benchmarks.gpu.workshop import BundleError, Workshop
from benchmarks.record import ROOT, commit
from boltgen.arch import Arch, arch_named, device_for
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import OUTPUT, KernelStore, kernel_key, toolchain_text, unit_of
from boltgen.build.profiler import built_profiler
from boltgen.build.progress import reporter_for
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import TranslationUnit, library_unit
from boltgen.errors import BoltgenError
from boltgen.families.move import MoveConfig
from boltgen.settings import settings_from

MOST_BYTES = 60 << 20
# The GPU machine's Python; and the systems whose wheels it takes.
PYTHON, _PLATFORMS = "3.12", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64")
# Of the checkout, what the suite imports and compiles there.
_SOURCES = {
    "boltgen": ("*.py", "*.json", "*.j2"),
    "templates": ("*",),  # stand-ins for headers have names without a suffix, too
    "profiler": ("*",),
    "benchmarks/gpu": ("*.py",),
}
# Packages that the GPU's machine need not have: the folders of their modules.
_CARRIED = {
    "apache-tvm-ffi": "tvm_ffi",
    "ml-dtypes": "ml_dtypes",
    "platformdirs": "platformdirs",
}
_CARRIED_FILES = (".py", ".so", ".h")
_ENTRY = "run_gpu_suite.py"
_EXAMPLE = "13_two_tensor_op_fusion"


@dataclass(slots=True)
class _Packer:
    """A folder that is being filled, and the digests of its files."""

    folder: Path
    digests: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0

    def write(self, name: str, content: bytes) -> None:
        """Add a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.digests[name] = hashlib.sha256(content).hexdigest()
        self.size_bytes += len(content)

    def write_form(self, name: str, form: object) -> None:
        """Add a file of JSON, compressed where its name says so."""
        text = json.dumps(form, separators=(",", ":")).encode()
        self.write(name, lzma.compress(text) if name.endswith(PACKED) else text)

    def write_tree(self, source: Path, name: str, patterns: Sequence[str]) -> None:
        """Add the files of a folder."""
        for path in sorted({path for pattern in patterns for path in source.rglob(pattern)}):
            if path.is_file() and "__pycache__" not in path.parts:
                self.write(f"{name}/{path.relative_to(source)}", path.read_bytes())

    def sizes_bytes(self) -> dict[str, int]:
        """Sum up the files by their folders."""
        sizes: Counter[str] = Counter()
        for name in self.digests:
            sizes[str(Path(*Path(name).parts[:-1][:1]))] += (self.folder / name).stat().st_size
        return dict(sizes.most_common())


@dataclass(frozen=True, slots=True)
class Packed:
    """A bundle that was packed: the sizes of its parts, and the reason for each missing item."""

    sizes_bytes: Mapping[str, int]
    unreachable: Mapping[str, str]
    kernels: int
    compiled: int


def pack(
    folder: Path,
    arch: Arch,
    shop: Workshop,
    *,
    quick: bool = False,
    sweep: Sequence[str] = (),
    compile_models: bool = False,
    python: str = PYTHON,
    recorded: Path = RECORDED,
) -> Packed:
    """Make a bundle in `folder`, in place of the bundle that is there.

    TVM is too large to travel, so models are packed compiled: from the cache, or with
    `compile_models` after compiling them. The bundle has the logs of MetaSchedule in `recorded` for
    GPUs of `arch`. A quick bundle, which is for the virtual GPU, has the virtual GPU's logs. A
    `sweep` has many kernels of `cutlass3` for the GEMMs of these names, and nothing else.

    Raises:
        BundleError: the bundle is larger than `MOST_BYTES`; a log cannot be used; `folder` is there
            and is no bundle; a name of `sweep` is no GEMM's.
        BoltgenError: a compiler is missing, or the cache cannot be used; with `compile_models` a
            model does not compile.
    """
    if folder.exists() and not (folder / "manifest.json").is_file():
        raise BundleError(f"{folder} is there and is no bundle: give another --out, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as name:
        packer = _Packer(Path(name))
        logs = find_logs(recorded, device_for(arch.name), virtual=quick)
        wanted = replace(quick_wanted(arch) if quick else Wanted(arch), logs=logs)
        parts = _plan(wanted, quick=quick, sweep=sweep, recorded=recorded)
        libraries, unreachable = _models(packer, wanted, shop, compile_models=compile_models)
        _write_plan(packer, arch, parts, unreachable)
        _write_sources(packer, python, shop)
        profiler = built_profiler(shop.tools, shop.cache)
        if profiler:
            libraries = {PROFILER: profiler, **libraries}
        kernels, compiled = _write_kernels(packer, wanted, parts, libraries, shop)
        manifest = {
            "arch": arch.name,
            "toolchain": toolchain_text(shop.tools),
            "commit": commit(),
            "python": python,
            "figures": figures(),
            "unreachable": unreachable,
            "files": packer.digests,
        }
        (packer.folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
        packer.folder.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(packer.folder, folder)
        return Packed(packer.sizes_bytes(), unreachable, kernels, compiled)


def _plan(wanted: Wanted, *, quick: bool, sweep: Sequence[str], recorded: Path) -> tuple[Part, ...]:
    if not sweep:
        return (quick_plan if quick else full_plan)(wanted)
    try:
        return sweep_plan(wanted, sweep, sorted(recorded.glob("*/*.jsonl.gz")))
    except ValueError as error:
        raise BundleError(str(error)) from error


def size_table(sizes: Mapping[str, int]) -> str:
    """Show sizes by part as a table in MB, with their sum."""
    rows = [*sizes.items(), ("together", sum(sizes.values()))]
    return "\n".join(f"  {part:20}{size / 1e6:8.2f} MB" for part, size in rows)


def _models(
    packer: _Packer, wanted: Wanted, shop: Workshop, *, compile_models: bool
) -> tuple[dict[str, Path], dict[str, str]]:
    """Find the libraries of models; and why some have none, by the keys of their items."""
    libraries: dict[str, Path] = {}
    unreachable: dict[str, str] = {}
    for name, shape in wanted.models.items():
        log = wanted.logs.get(name)
        found = build_models(name, shape, wanted.arch, log, shop, compile=compile_models)
        if found is None:
            unreachable[f"models/{name}"] = (
                "its libraries are not in the cache, and TVM is too large to travel: pack once "
                "with --compile-models"
            )
            continue
        libraries |= found[0]
        packer.write_form(RECIPE.format(arch=wanted.arch.name, name=name), found[1])
    return libraries, unreachable


def _write_plan(
    packer: _Packer, arch: Arch, parts: Sequence[Part], unreachable: Mapping[str, str]
) -> None:
    """Add the items that can be reached, and for people their keys by the parts of the plan."""
    kept = [
        Part(part.title, tuple(one for one in part.items if key_of(one) not in unreachable))
        for part in parts
    ]
    name = ITEMS.format(arch=arch.name)
    write_items(packer.folder / name, tuple(item for part in kept for item in part.items))
    packer.write(name, (packer.folder / name).read_bytes())
    packer.write_form(
        KEYS.format(arch=arch.name), {part.title: [*map(key_of, part.items)] for part in kept}
    )


def _write_kernels(
    packer: _Packer,
    wanted: Wanted,
    parts: Sequence[Part],
    libraries: Mapping[str, Path],
    shop: Workshop,
) -> tuple[int, int]:
    """Add all sources, and what is compiled, the most valuable first, as far as it fits.

    Return how many kernels there are, and how many of them are compiled.
    """
    arch = wanted.arch.name
    store = KernelStore(shop.cache)
    sources: dict[str, dict[str, Any]] = {}
    found = dict(libraries)
    for symbol, spec in wanted.specs.items():
        unit = unit_of([spec], shop.tools)
        # No record is of a move.
        is_recorded = spec.family != MoveConfig.family
        path = store.find(kernel_key(spec, shop.tools)) or _built(unit, shop)
        fault = fault_of(path, symbol) if path else ""
        sources[symbol] = {
            **{"name": unit.name, "text": unit.text, "is_recorded": is_recorded},
            **{"is_ours": True, "fault": fault},
        }
        if path and not fault:
            found[symbol] = path
    names: dict[str, str] = {}
    for symbol, text in wanted.programs.items():
        name = names.setdefault(text, symbol)  # a text is compiled once, under one name
        about = {"is_recorded": False, "is_ours": False, "fault": ""}
        sources[symbol] = {"name": name, "text": text, **about}
        if path := _built(library_unit(name, text, arch, "", shop.tools), shop):
            found[symbol] = path
    packer.write_form(SOURCES.format(arch=arch), sources)
    carried: dict[str, str] = {}
    order = [
        PROFILER,
        *(symbol for part in parts for item in part.items for symbol in needs_of(item)),
    ]
    models = {
        one
        for part in parts
        for item in part.items
        if isinstance(item, WholeModel)
        for one in needs_of(item)
    }
    for symbol in dict.fromkeys(order):
        if symbol not in found:
            continue
        content = found[symbol].read_bytes()
        name = f"kernels/{hashlib.sha256(content).hexdigest()[:16]}.so{PACKED}"
        if name not in packer.digests:
            is_packed = found[symbol].suffix == PACKED
            content = content if is_packed else lzma.compress(content, preset=1)
            if packer.size_bytes + len(content) > MOST_BYTES:
                if symbol in models:
                    raise BundleError(
                        f"with {symbol} the bundle is larger than {MOST_BYTES / 1e6:.1f} MB\n"
                        f"{size_table(packer.sizes_bytes())}"
                    )
                continue  # its source travels
            packer.write(name, content)
        carried[symbol] = name
    packer.write_form(KERNELS.format(arch=arch), carried)
    return len(sources), sum(symbol in sources for symbol in carried)


def _built(unit: TranslationUnit, shop: Workshop) -> Path | None:
    """Find the library that `building` made of a source, here or in a rehearsal."""
    folder = shop.cache.find(unit.kind, unit.key, [OUTPUT])
    return folder / OUTPUT if folder else None


def _write_sources(packer: _Packer, python: str, shop: Workshop) -> None:
    """Add what every plan needs: sources, headers, packages, the runtimes of CUDA and TVM."""
    packer.write(shop.tools.nvcc.runtime.name, shop.tools.nvcc.runtime.read_bytes())
    for name, patterns in _SOURCES.items():
        packer.write_tree(ROOT / name, name, patterns)
    packer.write(_ENTRY, (ROOT / "benchmarks" / "gpu" / _ENTRY).read_bytes())
    packer.write("models/__init__.py", b"")
    packer.write("models/parameters.py", (ROOT / "models" / "parameters.py").read_bytes())
    packer.write("benchmarks/__init__.py", b"")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in _packages(python, shop):
            entry = tarfile.TarInfo(f"{PACKAGES}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    packer.write(f"{PACKAGES}.tar{PACKED}", lzma.compress(packed.getvalue(), preset=3))


def _packages(python: str, shop: Workshop) -> Iterator[tuple[str, bytes]]:
    """Read the packages that the GPU's machine lacks: names and contents of files."""
    for package in _CARRIED:
        yield from _package_files(package, python)
    tvm = Path(str(importlib.util.find_spec("tvm").origin)).parent / "lib"  # type: ignore[union-attr]
    for name in LIBRARIES:
        yield f"tvm_runtime/{name}", (tvm / name).read_bytes()
    include = shop.tools.cutlass.include
    yield "cutlass_library/__init__.py", b""
    folders = {
        "cutlass_library/source/include": include,
        EXAMPLE.removeprefix(f"{PACKAGES}/"): include.parent / "examples" / _EXAMPLE,
    }
    for name, folder in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".hpp", ".inl", ".cuh"):
                yield f"{name}/{path.relative_to(folder)}", path.read_bytes()


def _package_files(package: str, python: str) -> Iterator[tuple[str, bytes]]:
    """Read a package for a Python: the installed one, or else its wheel, which pip fetches."""
    if python == "{}.{}".format(*sys.version_info):
        found = importlib.metadata.files(package) or []
        paths = {str(path): Path(str(path.locate())) for path in found}
        names = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", "--python-version", python, "-d", folder]
            command += [f"--platform={platform}" for platform in _PLATFORMS]
            version = importlib.metadata.version(package)
            done = subprocess.run(
                [*command, f"{package}=={version}"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise BundleError(
                    f"pip cannot fetch {package} {version} for Python {python}: "
                    f"{done.stderr.strip()[-300:]}; make the bundle where there is a network"
                )
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
                names = {name: archive.read(name) for name in archive.namelist()}
    for name, content in names.items():
        is_code = name.startswith(f"{_CARRIED[package]}/") and name.endswith(_CARRIED_FILES)
        if is_code or name.endswith(".dist-info/METADATA"):  # which says the version
            yield name, content


def workshop(jobs: int | None = None) -> Workshop:
    """Find this machine's compilers and cache.

    Raises:
        BoltgenError: a compiler is missing, or the cache cannot be used.
    """
    settings = settings_from()
    return Workshop(
        settings=settings,
        tools=find_toolchain(settings),
        cache=Cache(settings.cache_dir),
        jobs=jobs or settings.jobs,
        reporter=reporter_for(),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path("dist/gpu-bundle")
    parser.add_argument("--out", type=Path, default=default, help=f"default: {default}")
    parser.add_argument("--arch", default="sm_90a", help="default: sm_90a")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="a few small items, to try the suite")
    which.add_argument(
        "--sweep",
        nargs="+",
        default=[],
        metavar="MxNxK[-row]",
        help="many kernels of cutlass3 for these GEMMs, and nothing else",
    )
    parser.add_argument("--compile-models", action="store_true", help="compile section models here")
    parser.add_argument("--python", default=PYTHON, help=f"the GPU machine's; default: {PYTHON}")
    parser.add_argument("--jobs", type=int, help="compilers at once, for models")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        packed = pack(
            options.out,
            arch_named(options.arch),
            workshop(options.jobs),
            quick=options.quick,
            sweep=options.sweep,
            compile_models=options.compile_models,
            python=options.python,
        )
    except (BoltgenError, BundleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.out}, in {time.monotonic() - started:.0f} s:\n{size_table(packed.sizes_bytes)}"
    )
    print(f"{packed.kernels} kernels, of which {packed.compiled} are compiled")
    for key, reason in packed.unreachable.items():
        print(f"not in the bundle: {key}: {reason}")
    print(f"on the GPU machine:\n  python3 {_ENTRY} --minutes 9 --out results")
    return 0


if __name__ == "__main__":
    sys.exit(main())
