"""The kernel library, built by a compiler that is a shell script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.arch import ARCHES
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import (
    KIND,
    KernelStore,
    build_library,
    chunks,
    is_current,
    kernel_key,
    read_about,
    stored_units,
    unit_of,
)
from boltgen.errors import LibraryError
from boltgen.families.cutlass2.levels import library_specs
from boltgen.families.family import Level
from boltgen.families.source import kernel_symbol
from tests.build.fakes import FAIL, fake_toolchain

GROUPS = library_specs(ARCHES["sm_80"], Level.QUICK, [8])["gemm"]
SPECS = [spec for group in GROUPS for spec in group]
# Fails where the unit holds the kernel that $BAD names.
FAIL_ON_BAD = f'if grep -q "$BAD" *.cu; then {FAIL}; fi; ' + (
    'for last; do :; done; cat *.cu > "$last"'
)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def tools(tmp_path: Path):
    return fake_toolchain(tmp_path / "toolkit")


def test_chunks_are_whole_in_order_and_of_equal_sizes():
    for count in range(40):
        parts = chunks(SPECS * 2, 8)[:0] if not count else chunks((SPECS * 2)[:count], 8)
        assert [spec for part in parts for spec in part] == (SPECS * 2)[:count]
        sizes = {len(part) for part in parts}
        assert not sizes or (max(sizes) <= 8 and max(sizes) - min(sizes) <= 1)
        assert len(parts) == -(-count // 8)


def test_a_unit_says_what_it_holds(tools):
    unit = unit_of(SPECS[:3], tools)
    about = read_about(unit.about)
    assert [kernel.symbol for kernel in about.kernels] == [kernel_symbol(s) for s in SPECS[:3]]
    assert [kernel.key for kernel in about.kernels] == [
        kernel_key(spec, tools) for spec in SPECS[:3]
    ]
    assert about.toolchain == unit.identity
    assert (about.arch, about.families) == ("sm_80", ("cutlass2",))
    for spec in SPECS[:3]:
        assert f'extern "C" int {kernel_symbol(spec)}(' in unit.text


def test_every_kernel_is_found_by_its_key(tools, cache):
    done = build_library(GROUPS, tools, cache, jobs=2)
    assert (done.made, done.found, done.failures) == (4, 0, ())
    store = KernelStore(cache)
    for spec in SPECS:
        path = store.find(kernel_key(spec, tools))
        assert path is not None
        assert kernel_symbol(spec) in path.read_text()
    again = build_library(GROUPS, tools, cache, jobs=2)
    assert (again.made, again.found) == (0, 4)
    assert all(is_current(unit, tools) for unit in stored_units(cache))


def test_a_larger_level_compiles_what_is_new(tools, cache):
    build_library(GROUPS, tools, cache, jobs=2)
    groups = library_specs(ARCHES["sm_80"], Level.STANDARD, [8])["gemm"]
    done = build_library(groups, tools, cache, jobs=2)
    assert done.found == 4
    assert done.made == len([part for group in groups for part in chunks(group)]) - 4


def test_a_kernel_that_does_not_compile_costs_only_itself(tmp_path, cache):
    bad = kernel_symbol(SPECS[2])
    body = FAIL_ON_BAD.replace("$BAD", bad)
    tools = fake_toolchain(tmp_path / "toolkit", body)
    done = build_library([SPECS[:6]], tools, cache, jobs=1)
    (failure,) = done.failures
    assert bad in failure.unit.text
    assert 'error: identifier "x" is undefined' in failure.message
    store = KernelStore(cache)
    found = [store.find(kernel_key(spec, tools)) is not None for spec in SPECS[:6]]
    assert found == [True, True, False, True, True, True]


def test_another_toolchain_is_kept_apart(tools, cache):
    build_library(GROUPS, tools, cache, jobs=2)
    key = kernel_key(SPECS[0], tools)
    cutlass = replace(tools, cutlass=replace(tools.cutlass, version="9.9"))
    nvcc = replace(tools, nvcc=replace(tools.nvcc, version=(13, 1, 0)))
    store = KernelStore(cache)
    own = stored_units(cache)
    for other in (cutlass, nvcc):
        assert not any(is_current(unit, other) for unit in own)
        assert kernel_key(SPECS[0], other) != key
        assert store.find(kernel_key(SPECS[0], other)) is None
        build_library(GROUPS[:1], other, cache, jobs=2)
    assert len({unit.about.toolchain for unit in stored_units(cache)}) == 3
    assert KernelStore(cache).find(key) == store.find(key)


def test_another_host_compiler_is_not(tools):
    """It makes the host's part, which is why a library can be used on another machine."""
    other = replace(tools, cxx=replace(tools.cxx, version="g++ 99"))
    assert kernel_key(SPECS[0], other) == kernel_key(SPECS[0], tools)
    assert unit_of(SPECS[:2], other).key == unit_of(SPECS[:2], tools).key


def test_the_key_covers_boltgens_headers(tools, tmp_path):
    copy = tmp_path / "templates"
    for path in tools.templates.rglob("*.h"):
        target = copy / path.relative_to(tools.templates)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    header = copy / "boltgen" / "operands.h"
    header.write_text(header.read_text() + "// changed\n")
    changed = replace(tools, templates=copy)
    assert kernel_key(SPECS[0], changed) != kernel_key(SPECS[0], tools)


def test_a_damaged_unit_is_not_found_and_is_built_again(tools, cache, caplog):
    build_library(GROUPS, tools, cache, jobs=2)
    key = kernel_key(SPECS[0], tools)
    path = KernelStore(cache).find(key)
    assert path is not None
    path.write_text("damage")
    assert KernelStore(cache).find(key) is None
    assert "is damaged" in caplog.text
    assert build_library(GROUPS, tools, cache, jobs=2).made == 1
    assert KernelStore(cache).find(key) is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 7}', "\xff"])
def test_a_unit_that_cannot_be_read_is_passed_over(tools, cache, caplog, text):
    build_library([SPECS[:2]], tools, cache, jobs=1)
    (unit,) = stored_units(cache)
    (unit.folder / "about.json").write_text(text, encoding="latin-1")
    assert stored_units(cache) == []
    assert str(unit.folder) in caplog.text


def test_another_version_of_the_description_is_named(tools):
    form = json.loads(unit_of(SPECS[:1], tools).about) | {"version": 7}
    with pytest.raises(LibraryError, match="has version 7, this boltgen reads 1"):
        read_about(json.dumps(form))


def test_a_build_that_is_killed_goes_on_where_it_was(tmp_path):
    """Killed without a chance to clean up, at two moments; nothing half-written is found."""
    script = tmp_path / "build.py"
    count = tmp_path / "count"
    body = f'echo x >> {count}; sleep 0.1; for last; do :; done; cat *.cu > "$last"'
    tools = fake_toolchain(tmp_path / "toolkit", body)
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from boltgen.build.cache import Cache\n"
        "from boltgen.build.library.kernels import build_library\n"
        "from tests.build.fakes import fake_toolchain\n"
        f"from {__name__} import GROUPS\n"
        f"tools = fake_toolchain(Path({str(tmp_path / 'toolkit')!r}), {body!r})\n"
        f"build_library(GROUPS, tools, Cache(Path({str(tmp_path / 'cache')!r})), jobs=1)\n"
    )
    root = Path(__file__).resolve().parent.parent.parent
    for most_started in (1, 3):
        child = subprocess.Popen(
            [sys.executable, script],
            env=os.environ | {"PYTHONPATH": str(root)},
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while started_units(count) < most_started and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it had not ended by itself"
    cache = Cache(tmp_path / "cache")
    units = stored_units(cache)
    assert all(cache.has(KIND, unit.key) for unit in units)
    started = started_units(count)
    assert started >= 3
    done = build_library(GROUPS, tools, cache, jobs=2)
    assert done.found == len(units)
    assert done.made == 4 - len(units)
    assert started_units(count) == started + done.made


def started_units(count: Path) -> int:
    return len(count.read_text().split()) if count.exists() else 0
