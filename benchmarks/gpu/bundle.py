"""Packs the suite for a GPU machine without network: `make gpu-bundle`.

Everything is compiled here, through boltgen's cache, so that a second run is quick; kernels are
compressed. There it takes Python, numpy, PyTorch and a driver.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.choices import add_choice
from benchmarks.gpu.checks import OUTPUTS, WRONG
from benchmarks.gpu.items import ITEMS, KERNELS, RECIPE, SOURCE, SOURCE_HEADERS, write_items
from benchmarks.gpu.kernels import (
    BundleError,
    beyond_sources,
    compile_kernels,
    included_headers,
    link_sources,
)
from benchmarks.gpu.models_run import METASCHEDULE, RUNTIME
from benchmarks.gpu.portable import complaints, libraries_of
from benchmarks.gpu.results import read_form, unpacked
from benchmarks.gpu.rig import PACKED
from benchmarks.gpu.run_gpu_suite import PACKAGES
from benchmarks.gpu.tuned_log import RECORDED, find_logs
from benchmarks.gpu.tvm_runtime import LIBRARIES
from benchmarks.gpu.wanted import (
    Wanted,
    full_items,
    quick_items,
    quick_wanted,
)
from benchmarks.gpu.wanted_models import MODEL_ALONE, MODEL_OURS, MODEL_TUNED
from benchmarks.record import commit
from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.library import toolchain_text
from boltgen.build.profiler import LIBRARY, profiler_library
from boltgen.build.progress import Reporter, reporter_for
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.errors import BoltgenError
from boltgen.families.family import Level
from boltgen.settings import Settings, settings_from

MOST_BYTES = 60 << 20
_KERNELS = "kernels"
# Of boltgen's sources, what the suite imports there; and of packages that it needs, those that are
# pure Python: whatever compiled parts they have are left out, and they do without.
_MODULES = ("__init__.py", "arch.py", "errors.py", "paths.py", "settings.py")
_SOURCES = ("intake", "ir", "space", "tuning", "codegen", "measure", "build")
_PACKAGES = ("filelock", "jinja2", "markupsafe")
_ROOT = Path(__file__).resolve().parent.parent.parent
_SUITE = Path(__file__).resolve().parent
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
        self.note(name)

    def note(self, name: str) -> None:
        """Take a file that is there into the manifest."""
        self.digests[name] = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def write_tree(self, source: Path, name: str, patterns: Iterable[str] = ("*.py",)) -> None:
        """Add the files of a folder."""
        for pattern in patterns:
            for path in sorted(source.rglob(pattern)):
                self.write(f"{name}/{path.relative_to(source)}", path.read_bytes())

    def write_library(self, path: Path, arch: str) -> str:
        """Add a shared library, compressed; its name."""
        content = path.read_bytes()
        name = f"{_KERNELS}/{arch}/{hashlib.sha256(content).hexdigest()[:16]}.so{PACKED}"
        if name not in self.digests:
            self.write(name, lzma.compress(content, preset=6))
        return name

    def write_source(self, text: str) -> str:
        """Add the source of kernels, compressed; its name."""
        name = f"sources/{hashlib.sha256(text.encode()).hexdigest()[:16]}{SOURCE}"
        if name not in self.digests:
            self.write(name, lzma.compress(text.encode()))
        return name

    def write_archive(self, name: str, files: Mapping[str, bytes]) -> None:
        """Add files as one archive, in which they have no owner and no date."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:xz") as archive:
            for file, content in files.items():
                about = tarfile.TarInfo(file)
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))
        self.note(name)

    def write_packed(self, path: Path) -> str:
        """Add a shared library that is compressed already; its name."""
        content = path.read_bytes()
        name = f"kernels/{hashlib.sha256(content).hexdigest()[:16]}.so{PACKED}"
        self.write(name, content)
        return name

    def write_manifest(self, arches: Sequence[str], toolchain: str) -> None:
        """Say what the bundle holds."""
        form = {
            "arches": arches,
            "toolchain": toolchain,
            "commit": commit(),
            "files": self.digests,
        }
        (self.folder / "manifest.json").write_text(json.dumps(form, indent=1))

    def sizes_bytes(self) -> dict[str, int]:
        """Of all files, by what they are part of: an arch's kernels, or what is in one folder."""
        sizes: Counter[str] = Counter()
        for name in self.digests:
            folders = Path(name).parts[:-1]
            part = "/".join(folders[: 2 if folders[:1] == (_KERNELS,) else 1]) or "single files"
            sizes[part] += (self.folder / name).stat().st_size
        return dict(sizes.most_common())


def pack(
    folder: Path,
    arches: Sequence[Arch],
    *,
    quick: bool,
    level: Level,
    settings: Settings,
    jobs: int,
    reporter: Reporter,
    recorded: Path = RECORDED,
    gpu: str = "",
) -> dict[str, int]:
    """Make a bundle in `folder`, in place of what is there; its parts' sizes in bytes.

    MetaSchedule's logs are those in `recorded` of GPUs of `arches`, or of the one whose folder is
    `gpu`; a quick bundle, which is for the virtual GPU, has the virtual GPU's.

    Raises:
        BundleError: a kernel does not compile, a library needs a newer system than that of
            `portable.OLDEST`, or the bundle is larger than `MOST_BYTES`.
        LogError: a log of MetaSchedule's cannot be used.
        BoltgenError: a compiler is missing, or the cache cannot be used.
    """
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as name:
        packer = _Packer(Path(name))
        for arch in arches:
            logs = find_logs(recorded, arch.name, virtual=quick, gpu=gpu)
            wanted = replace(quick_wanted(arch) if quick else Wanted(arch, level), logs=logs)
            items = (quick_items if quick else full_items)(wanted)
            libraries, failures = compile_kernels(
                wanted.specs.values(), tools, cache, jobs=jobs, reporter=reporter
            )
            if failures:
                raise BundleError(
                    f"{len(failures)} kernels of {arch.name} do not compile; the first: "
                    f"{failures[0].message}"
                )
            write_items(packer.folder / ITEMS.format(arch=arch.name), items)
            packer.note(ITEMS.format(arch=arch.name))
            libraries |= link_sources(wanted.sources, tools, cache, jobs=jobs, reporter=reporter)
            kernels = {
                symbol: packer.write_library(libraries[symbol], arch.name)
                for symbol in (*wanted.specs, *wanted.sources)
            }
            kernels |= _write_beyond(packer, wanted, tools)
            kernels |= _write_models(
                packer, wanted, tools, cache, settings=settings, jobs=jobs, reporter=reporter
            )
            packer.write(KERNELS.format(arch=arch.name), json.dumps(kernels).encode())
        _write_rest(packer, tools, cache, reporter)
        if said := complaints(libraries_of(packer.folder)):
            raise BundleError(f"libraries cannot be loaded everywhere: {'; '.join(said[:5])}")
        packer.write_manifest([arch.name for arch in arches], toolchain_text(tools))
        for arch in arches:
            _record_outputs(packer, arch, settings, vgpu_libraries(settings, cache, reporter))
        packer.write_manifest([arch.name for arch in arches], toolchain_text(tools))
        sizes = packer.sizes_bytes()
        if sum(sizes.values()) > MOST_BYTES:
            raise BundleError(
                f"the bundle is larger than {MOST_BYTES / 1e6:.1f} MB: give a smaller --level, or "
                f"fewer --arch\n{size_table(sizes)}"
            )
        packer.folder.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(packer.folder, folder)
    return sizes


def size_table(sizes: Mapping[str, int]) -> str:
    """Sizes by part as a table in MB, with their sum."""
    rows = [*sizes.items(), ("together", sum(sizes.values()))]
    return "\n".join(f"  {part:20}{size / 1e6:8.2f} MB" for part, size in rows)


def _write_models(
    packer: _Packer,
    wanted: Wanted,
    tools: Toolchain,
    cache: Cache,
    *,
    settings: Settings,
    jobs: int,
    reporter: Reporter,
) -> dict[str, str]:
    """Whole models; of each library's symbol the file's name."""
    # TVM takes seconds to load.
    from benchmarks.gpu.model_build import build_model, build_tuned_model  # noqa: PLC0415

    written: dict[str, str] = {}
    for name, shape in wanted.models.items():
        built = build_model(
            shape, wanted.arch, tools, cache, settings=settings, jobs=jobs, reporter=reporter
        )
        written[MODEL_OURS.format(name=name)] = packer.write_packed(built.ours)
        written[MODEL_ALONE.format(name=name)] = packer.write_packed(built.alone)
        recipe = json.loads(built.recipe.read_text())
        if log := wanted.logs.get(name):
            tuned, coverage = build_tuned_model(
                shape, wanted.arch, tools, cache, log, settings=settings
            )
            written[MODEL_TUNED.format(name=name)] = packer.write_packed(tuned)
            recipe[METASCHEDULE] = {**asdict(log.about), **asdict(coverage)}
        path = RECIPE.format(arch=wanted.arch.name, name=name)
        packer.write(path, json.dumps(recipe, separators=(",", ":")).encode())
    return written


def _write_beyond(packer: _Packer, wanted: Wanted, tools: Toolchain) -> dict[str, str]:
    """Sources of kernels for a compiler on the GPU's machine; of each symbol the file's name."""
    sources = beyond_sources(wanted.beyond.values())
    texts = [text for text, _ in sources]
    packer.write_archive(SOURCE_HEADERS, included_headers(texts, wanted.arch.name, tools))
    return {symbol: packer.write_source(text) for text, symbols in sources for symbol in symbols}


def _record_outputs(packer: _Packer, arch: Arch, settings: Settings, vgpu: Path) -> None:
    """Run section check on the virtual GPU, and keep its outputs for the GPU's to be compared with.

    Raises:
        BundleError: a kernel is wrong there.
    """
    environment = vgpu_environment(settings, vgpu, {"device": arch.name})
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, _ENTRY, "--virtual", "--sections", "check"]
        command += ["--out", out, "--minutes", str(_RECORDING_MINUTES)]
        done = subprocess.run(
            command, cwd=packer.folder, env=environment, capture_output=True, text=True, check=False
        )
        path = Path(out) / "slice-1-of-1.json"
        if done.returncode or not path.is_file():
            raise BundleError(f"the suite fails on the virtual GPU: {done.stderr[-2000:]}")
        items = read_form(path)["items"]
    for key, item in items.items():
        if not item.get("verdict", WRONG).startswith(WRONG):
            if "output" in item:
                name = f"{OUTPUTS.format(arch=arch.name)}/{key.partition('/')[2]}.xz"
                packer.write(name, lzma.compress(unpacked(item["output"])))
        else:
            said = item.get("verdict") or item["error"]
            raise BundleError(f"on the virtual GPU {key} is {said}\n{done.stderr[-2000:]}")


def _write_rest(packer: _Packer, tools: Toolchain, cache: Cache, reporter: Reporter) -> None:
    profiler = profiler_library(tools, cache, reporter)
    packer.write(LIBRARY, profiler.read_bytes())
    packer.write(tools.nvcc.runtime.name, tools.nvcc.runtime.read_bytes())
    for path in runtime_libraries():
        packer.write(RUNTIME.format(name=path.name), lzma.compress(path.read_bytes()))
    packer.write(_ENTRY, (_SUITE / _ENTRY).read_bytes())
    packer.write("models/__init__.py", b"")
    packer.write("models/parameters.py", (_ROOT / "models" / "parameters.py").read_bytes())
    packer.write("benchmarks/__init__.py", b"")
    packer.write_tree(_SUITE, "benchmarks/gpu")
    for name in _MODULES:
        packer.write(f"boltgen/{name}", (_ROOT / "boltgen" / name).read_bytes())
    for name in _SOURCES:
        packer.write_tree(_ROOT / "boltgen" / name, f"boltgen/{name}", ("*.py", "*.json"))
    for name in _PACKAGES:
        packer.write_tree(_package(name), f"{PACKAGES}/{name}")


def runtime_libraries() -> list[Path]:
    """TVM's runtime as it is installed: what `tvm_runtime` loads, in its order."""
    packages = {name: _package("tvm_ffi" if "ffi" in name else "tvm") for name in LIBRARIES}
    return [folder / "lib" / name for name, folder in packages.items()]


def _package(name: str) -> Path:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise BundleError(f"the package {name} is not installed; install boltgen again")
    return Path(spec.origin).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("dist/gpu-bundle"), help="default: dist/gpu-bundle"
    )
    parser.add_argument(
        "--arch", action="append", help="may be given again; default: sm_80 and sm_90"
    )
    levels = "which configurations section tune has; default: full"
    add_choice(parser, "--level", Level.FULL, levels)
    parser.add_argument("--quick", action="store_true", help="a few small items, to try the suite")
    parser.add_argument("--jobs", type=int, help="compilers at once")
    parser.add_argument(
        "--gpu", default="", help="the folder of recorded/ that has MetaSchedule's logs to take"
    )
    options = parser.parse_args()
    settings = settings_from()
    try:
        sizes = pack(
            options.out,
            [arch_named(name) for name in options.arch or ("sm_80", "sm_90")],
            quick=options.quick,
            level=options.level,
            settings=settings,
            jobs=options.jobs or settings.jobs,
            reporter=reporter_for(),
            gpu=options.gpu,
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
