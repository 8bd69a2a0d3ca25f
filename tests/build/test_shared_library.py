"""A folder of compiled kernels that machines share, with compilers that are shell scripts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.build.cache import Cache, entry_folder
from boltgen.build.compile import LOG
from boltgen.build.library.shared import FILE, export_shared, shared_folders
from boltgen.build.pool import compile_all
from boltgen.build.unit import CompiledObject, CompileFailure, TranslationUnit
from boltgen.errors import LibraryError
from tests.build.fakes import FAIL, fake_toolchain, fake_unit

ARCH = "sm_80"


@pytest.fixture
def tools(tmp_path: Path):
    return fake_toolchain(tmp_path / "toolkit")


@pytest.fixture
def library(tmp_path: Path, tools) -> Path:
    """A library of two units."""
    cache = Cache(tmp_path / "exporter")
    units = [fake_unit(tools, name, f"text of {name}") for name in "ab"]
    compile_all(units, cache, jobs=1)
    folder = tmp_path / "shared" / "kernels"
    done = export_shared(folder, units, ARCH, tools, cache)
    assert (done.added, done.present) == (2, 0)
    return folder


def compiled(tmp_path: Path, library: Path, unit: TranslationUnit):
    """The outcome of compiling with an empty cache and a compiler that fails."""
    broken = replace(unit, compiler=fake_toolchain(tmp_path / "broken", FAIL).nvcc.path)
    cache = Cache(tmp_path / "empty", shared=(library,))
    (outcome,) = compile_all([broken], cache, jobs=1)
    return outcome


def test_objects_come_from_a_read_only_library(tmp_path, tools, library):
    for path in (*library.rglob("*"), library):
        path.chmod(path.stat().st_mode & ~0o222)
    before = sorted(library.rglob("*"))
    outcome = compiled(tmp_path, library, fake_unit(tools, "a", "text of a"))
    assert isinstance(outcome, CompiledObject) and outcome.cached
    assert outcome.path.read_text() == "text of a"
    assert outcome.path.is_relative_to(tmp_path / "empty")
    assert sorted(library.rglob("*")) == before


def test_an_entry_has_no_path_of_the_machine_that_made_it(tmp_path, tools, library):
    files = [path for path in library.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"a.cu", "b.cu", "kernel.o", LOG, "manifest.json", FILE}
    assert not any(str(tmp_path) in path.read_text() for path in files)


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing", "link", "manifest"])
def test_a_damaged_entry_is_named_and_not_used(tmp_path, tools, library, damage, caplog):
    unit = fake_unit(tools, "a", "text of a")
    entry = entry_folder(library, unit.kind, unit.key)
    output = entry / unit.output
    match damage:
        case "changed":
            output.write_text("text of A")
        case "truncated":
            output.write_text("text")
        case "missing":
            output.unlink()
        case "link":
            output.unlink()
            output.symlink_to("/etc/hostname")
        case "manifest":
            (entry / "manifest.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        outcome = compiled(tmp_path, library, unit)
    assert isinstance(outcome, CompileFailure)
    assert f"entry {entry} of a kernel library is not used: " in caplog.text
    assert not Cache(tmp_path / "empty").has(unit.kind, unit.key)


def test_a_damaged_entry_is_compiled(tmp_path, tools, library):
    unit = fake_unit(tools, "a", "text of a")
    (entry_folder(library, unit.kind, unit.key) / unit.output).write_text("wrong")
    (outcome,) = compile_all([unit], Cache(tmp_path / "empty", shared=(library,)), jobs=1)
    assert isinstance(outcome, CompiledObject) and not outcome.cached
    assert outcome.path.read_text() == "text of a"


def test_the_second_library_serves_where_the_first_is_damaged(tmp_path, tools, library):
    unit = fake_unit(tools, "a", "text of a")
    second = tmp_path / "second"
    export_shared(second, [unit], ARCH, tools, Cache(tmp_path / "exporter"))
    (entry_folder(library, unit.kind, unit.key) / unit.output).write_text("wrong")
    (outcome,) = compile_all([unit], Cache(tmp_path / "empty", shared=(library, second)), jobs=1)
    assert isinstance(outcome, CompiledObject) and outcome.cached


def test_another_toolchain_or_architecture_is_told(tools, library, caplog):
    assert shared_folders([library], ARCH, tools) == (library,)
    assert not caplog.text
    other = replace(tools, cutlass=replace(tools.cutlass, version="9.9"))
    shared_folders([library], ARCH, other)
    assert f"the kernel library {library} is not used" in caplog.text
    assert f"for {ARCH} by {other.cuda_identity}" in caplog.text
    caplog.clear()
    shared_folders([library], "sm_86", tools)
    assert f"it holds kernels for {ARCH} by {tools.cuda_identity}" in caplog.text
    assert "this compilation is for sm_86" in caplog.text


def test_objects_of_another_toolchain_are_not_taken(tmp_path, tools, library):
    other = replace(tools, nvcc=replace(tools.nvcc, version=(12, 8, 1)))
    outcome = compiled(tmp_path, library, fake_unit(other, "a", "text of a"))
    assert isinstance(outcome, CompileFailure)


def test_an_export_adds_to_a_library(tmp_path, tools, library):
    cache = Cache(tmp_path / "exporter")
    units = [fake_unit(tools, name, f"text of {name}") for name in "abc"]
    compile_all(units, cache, jobs=1)
    other = replace(tools, cutlass=replace(tools.cutlass, version="9.9"))
    done = export_shared(library, units, "sm_86", other, cache)
    assert (done.added, done.present) == (1, 2)
    made_with = json.loads((library / FILE).read_text())["made_with"]
    assert made_with == {ARCH: [tools.cuda_identity], "sm_86": [other.cuda_identity]}


def test_an_export_needs_what_was_compiled(tmp_path, tools):
    cache = Cache(tmp_path / "cache")
    with pytest.raises(LibraryError, match=r"kernel k is not in the cache .*: compile the model"):
        export_shared(tmp_path / "new", [fake_unit(tools)], ARCH, tools, cache)


def test_an_export_leaves_a_folder_of_others_alone(tmp_path, tools):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LibraryError, match=rf"holds other files and no {FILE}"):
        export_shared(tmp_path, [], ARCH, tools, Cache(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"is no kernel library: .*boltgen library export"),
        ("{", "is damaged"),
        ('{"version": 1}', "is damaged"),
        ('{"version": 7, "made_with": {}}', "has version 7, this boltgen reads 1"),
    ],
)
def test_a_folder_that_is_no_library_is_an_error(tmp_path, tools, content, said):
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / FILE).write_text(content)
    with pytest.raises(LibraryError, match=said):
        shared_folders([folder], ARCH, tools)
