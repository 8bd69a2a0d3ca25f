"""Fatbins and PTX that are damaged: refused with a message, never a crash or a hang."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.ir.key import digest
from boltgen.settings import settings_from
from tests.vgpu.cuda_programs import SOURCES
from tests.vgpu.test_launches import fatbin


def sanitized_harness(libraries: Path) -> Path:
    """`mutate.cpp` with the reading and lowering of PTX under sanitizers; the operations come from
    the library. Built once for each version of the sources."""
    settings = settings_from()
    tools = find_toolchain(settings)
    root = Path(__file__).parents[2] / "vgpu"
    fuzzed = [*sorted((root / "ptx").glob("*.cpp")), root / "core/fatbin.cpp"]
    sources = [SOURCES / "mutate.cpp", *fuzzed, root / "core/error.cpp"]
    headers = sorted(root.rglob("*.h"))
    contents = tuple(path.read_text(encoding="utf-8") for path in (*sources, *headers))

    def build(folder: Path) -> None:
        command = [
            *(str(tools.cxx.path), "-std=c++20", "-O1", "-fsanitize=address,undefined"),
            *("-fno-sanitize-recover=all", "-Wno-psabi", "-I", str(root)),
            *("-o", str(folder / "mutate"), *map(str, sources)),
            *("-L", str(libraries), "-lvgpu", f"-Wl,-rpath,{libraries}"),
        ]
        subprocess.run(command, check=True, env=dict(tools.environment))

    key = digest("fuzz", contents, tools.cxx.version, str(libraries))
    return Cache(settings.cache_dir).get_or_build("example", key, build).folder / "mutate"


def test_damaged_ptx_and_fatbins_are_refused_without_a_crash(
    library_folder: Path, tmp_path: Path
) -> None:
    harness = sanitized_harness(library_folder)
    seeds = ("seed.ptx", "instructions.ptx")
    for name in seeds:
        (tmp_path / name).write_bytes((SOURCES / name).read_bytes())
    ptx = (SOURCES / "seed.ptx").read_text(encoding="utf-8")
    (tmp_path / "seed.fatbin").write_bytes(fatbin((1, 75, ptx), (2, 80, "code"), (1, 80, ptx)))
    done = subprocess.run(
        [harness, "1", "8000", *seeds, "seed.fatbin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{tmp_path / 'last_input'}: {done.stderr}"
    inputs, taken = (int(part.split()[0]) for part in done.stdout.split(","))
    assert inputs == 8000
    assert 0 < taken < inputs
