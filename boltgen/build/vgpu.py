"""Find the virtual GPU's libraries in the wheel, or build them once per machine and version."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from boltgen.arch import ARCHES, Arch
from boltgen.build.cache import Cache
from boltgen.build.nvcc.children import Children
from boltgen.build.progress import Reporter, Silent
from boltgen.build.toolchain import HostCompiler, find_host_compiler
from boltgen.errors import BoltgenError, ToolchainError
from boltgen.ir.key import digest
from boltgen.paths import prebuilt_dir, resource_dir
from boltgen.settings import Settings

# The files of a complete build.
LIBRARIES = ("libvgpu.so", "libcuda.so.1", "libcudart.so.13", "libcudart.so.12")

# Loaded before a program's libraries, so that no path in the program or the environment finds
# another CUDA. The loader then uses these for later libraries of the same names.
_PRELOADED = ("libvgpu.so", "libcuda.so.1", "libcudart.so.13", "libcudart.so.12")

# The instruction sets of vgpu/Makefile, best first, and the flags in /proc/cpuinfo of a CPU that
# has them. Source: `usable` in vgpu/exec/run.cpp.
_ISA_FLAGS = {
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "f16c"}),
    "avx2": frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2", "abm"}),
    "generic": frozenset[str](),
}
_CPU = Path("/proc/cpuinfo")

# In the wheel's folder of libraries: the key of their sources, and the compiler.
_PREBUILT_KEY = "key"

_SOURCES = (".cpp", ".h", ".map", "Makefile")
_POLL_SECONDS = 0.2


def vgpu_libraries(
    settings: Settings, cache: Cache | None = None, reporter: Reporter | None = None
) -> Path:
    """Return the folder of the virtual GPU's libraries: the wheel's, the cache's, or a new build.

    Raises:
        ToolchainError: make or the host compiler is missing, or the build fails.
        CacheError: the cache cannot be used.
        BoltgenError: BOLTGEN_VGPU_ISAS has an unknown instruction set, or only ones that this CPU
            lacks.
    """
    if prebuilt := _prebuilt(settings):
        return prebuilt
    isas = _wanted_isas(settings)
    compiler = find_host_compiler(settings)
    cache = cache or Cache(settings.cache_dir)
    told = reporter or Silent()
    return cache.get_or_build(
        "vgpu",
        _key(compiler, isas),
        lambda folder: _make(folder, compiler, isas, settings, told),
        LIBRARIES,
    ).folder


def vgpu_key(settings: Settings) -> str:
    """Return the identity of this machine's virtual GPU, which need not be built yet.

    Raises:
        ToolchainError: the host compiler is missing.
        BoltgenError: BOLTGEN_VGPU_ISAS has an unknown instruction set, or only ones that this CPU
            lacks.
    """
    if prebuilt := _prebuilt(settings):
        return digest("vgpu", (prebuilt / _PREBUILT_KEY).read_text())
    return _key(find_host_compiler(settings), _wanted_isas(settings))


def prebuild(folder: Path, settings: Settings, reporter: Reporter) -> None:
    """Build the libraries with all instruction sets into `folder`, for a wheel.

    Raises:
        ToolchainError: make or the host compiler is missing, or the build fails.
    """
    compiler = find_host_compiler(settings)
    with tempfile.TemporaryDirectory() as built:
        _make(Path(built), compiler, tuple(_ISA_FLAGS), settings, reporter)
        pack_prebuilt(Path(built), folder, compiler.version)


def pack_prebuilt(libraries: Path, folder: Path, compiler: str) -> None:
    """Copy the libraries into `folder`, with the key of their sources."""
    folder.mkdir(parents=True)
    for name in LIBRARIES:
        shutil.copy(libraries / name, folder)
    (folder / _PREBUILT_KEY).write_text(f"{_source_key()}\n{compiler}\n")


def _prebuilt(settings: Settings) -> Path | None:
    """Return the wheel's libraries, or None if there are none or their sources have changed.

    Return None too if the settings ask for certain instruction sets.
    """
    folder = prebuilt_dir("vgpu")
    if folder is None or settings.vgpu_isas:
        return None
    if not all((folder / name).is_file() for name in (*LIBRARIES, _PREBUILT_KEY)):
        return None
    return folder if (folder / _PREBUILT_KEY).read_text().startswith(_source_key()) else None


def vgpu_environment(
    settings: Settings, libraries: Path, options: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a program that uses the virtual GPU in `libraries` as its CUDA.

    `options` are added to BOLTGEN_VGPU; they override options of the environment.
    """
    top = libraries.resolve()
    return settings.program_environment(
        preload=[top / name for name in _PRELOADED], libraries=top, vgpu_options=options
    )


def host_isas(cpu: Path = _CPU) -> tuple[str, ...]:
    """Return the instruction sets that this CPU can execute, best first."""
    found = re.search(r"^flags\s*:(.*)$", cpu.read_text(), re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    return tuple(isa for isa, needed in _ISA_FLAGS.items() if needed <= flags)


def _wanted_isas(settings: Settings) -> tuple[str, ...]:
    """Return the instruction sets to compile the virtual GPU for, best first."""
    usable = host_isas()
    if not settings.vgpu_isas:
        return usable[:1]
    asked = " ".join(settings.vgpu_isas)
    if unknown := sorted(set(settings.vgpu_isas) - _ISA_FLAGS.keys()):
        raise BoltgenError(
            f"BOLTGEN_VGPU_ISAS={asked}: there is no instruction set {unknown[0]!r}; give some of "
            f"{', '.join(_ISA_FLAGS)}, with spaces between them"
        )
    if not set(settings.vgpu_isas) & set(usable):
        raise BoltgenError(
            f"BOLTGEN_VGPU_ISAS={asked}: this CPU cannot execute that; add one of "
            f"{', '.join(usable)}, or unset it"
        )
    return tuple(isa for isa in _ISA_FLAGS if isa in settings.vgpu_isas)


def _key(compiler: HostCompiler, isas: tuple[str, ...]) -> str:
    return digest("vgpu", _source_key(), isas, compiler.version)


def _source_key() -> str:
    source = resource_dir("vgpu")
    files = sorted(path for path in source.rglob("*") if path.name.endswith(_SOURCES))
    contents = tuple((str(path.relative_to(source)), path.read_text()) for path in files)
    return digest("vgpu sources", contents, device_table())


def device_table() -> str:
    """Return the devices that the virtual GPU imitates, as initialisers of `DeviceModel`.

    They are the rows of `boltgen.arch`, one per compute capability; see core/device.h.
    """
    rows: dict[tuple[int, int], Arch] = {}
    for arch in ARCHES.values():
        rows.setdefault(arch.compute_capability, arch)
    return "".join(map(_device_model, rows.values()))


def _device_model(arch: Arch) -> str:
    major, minor = arch.compute_capability
    tensor_flop = arch.tensor_f32_acc_tflops * 1e6 / arch.max_mhz / arch.sm_count
    # Memory makes two transfers per clock.
    dram_khz = arch.dram_gb_per_s * 1e6 * 8 / 2 / arch.dram_bus_bits
    rates = {
        "fp32_results": arch.fp32_per_clock,
        "half_results": arch.half_per_clock,
        "fp64_results": arch.fp64_per_clock,
        "special_results": arch.special_per_clock,
        "mma_flop": round(tensor_flop * arch.mma_sync_fraction),
        "wgmma_flop": round(tensor_flop),
        "l2_bytes": arch.l2_bytes_per_clock,
        "memory_clocks": arch.memory_latency_clocks,
        "host_mb_per_s": round(arch.pcie_gb_per_s * 1000),
    }
    model = {
        "capability": 10 * major + minor,
        "name": f'"vgpu {arch.name} ({arch.device.split()[0]})"',
        "multiprocessors": arch.sm_count,
        "threads_per_sm": arch.max_threads_per_sm,
        "blocks_per_sm": arch.max_ctas_per_sm,
        "registers_per_sm": arch.registers_per_sm,
        "shared_per_sm": arch.shared_memory_per_sm_bytes,
        "shared_per_block_optin": arch.shared_memory_per_cta_bytes,
        "shared_reserved": arch.reserved_shared_memory_bytes,
        "l2_bytes": arch.l2_bytes,
        "clock_khz": arch.max_mhz * 1000,
        "memory_clock_khz": round(dram_khz),
        "memory_bus_bits": arch.dram_bus_bits,
        "memory_bytes": f"{arch.dram_bytes}ull",
        "fp32_per_fp64": arch.fp32_per_clock // arch.fp64_per_clock,
        "rates": f"{{{_fields(rates)}}}",
    }
    return f"{{{_fields(model)}}},\n"


def _fields(values: Mapping[str, object]) -> str:
    return ",\n ".join(f".{name} = {value}" for name, value in values.items())


def _make(
    folder: Path,
    compiler: HostCompiler,
    isas: tuple[str, ...],
    settings: Settings,
    reporter: Reporter,
) -> None:
    make = shutil.which("make", path=settings.search_path)
    if not make:
        raise ToolchainError(
            "make is not on PATH; the virtual GPU is built with it: install it (Debian and "
            "Ubuntu: `apt install make`)"
        )
    source = resource_dir("vgpu")
    devices = folder / "devices.inc"
    devices.write_text(device_table())
    command = (
        make,
        "-C",
        str(source),
        f"-j{settings.jobs}",
        f"CXX={compiler.path}",
        f"ISAS={' '.join(isas)}",
        f"OUT={folder}",
        f"DEVICES={devices}",
    )
    log = folder / "build.log"
    status = _run(command, folder, log, settings, reporter)
    missing = [name for name in LIBRARIES if not (folder / name).is_file()]
    if status or missing:
        raise ToolchainError(
            f"the virtual GPU cannot be built with {compiler.path} ({compiler.version}): "
            f"{_reason(log) or f'no {missing[0]} was made'}\n"
            f"  it needs g++ 11 or newer; by hand: make -C {source} OUT=<folder> "
            f"ISAS='{' '.join(isas)}' PYTHON={sys.executable}"
        )
    shutil.rmtree(folder / "obj", ignore_errors=True)


def _reason(log: Path) -> str:
    """Return the line of make's output with the failure's reason, a compiler's error first."""
    said = log.read_text(errors="replace").splitlines()
    for sign in ("error:", "***"):
        for line in said:
            if sign in line:
                return line.strip()
    return said[-1].strip() if said else ""


def _run(
    command: tuple[str, ...], folder: Path, log: Path, settings: Settings, reporter: Reporter
) -> int:
    """Run make and return its status; report progress by the object files that appear."""
    environment = dict(settings.compiler_environment)
    children = Children()
    if status := children.run((*command, "-n"), folder=folder, environment=environment, log=log):
        return status
    total = log.read_text(errors="replace").count(" -c ")
    reporter.start("building the virtual GPU", total)
    seen: set[Path] = set()
    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(
                children.run, command, folder=folder, environment=environment, log=log
            )
            try:
                while True:
                    finished = running.done()
                    for path in sorted(set((folder / "obj").rglob("*.o")) - seen):
                        seen.add(path)
                        reporter.step(str(path.relative_to(folder / "obj")))
                    if finished:
                        return running.result()
                    wait([running], timeout=_POLL_SECONDS)
            except BaseException:
                children.stop()
                raise
    finally:
        reporter.end()


if __name__ == "__main__":
    print(device_table(), end="")
