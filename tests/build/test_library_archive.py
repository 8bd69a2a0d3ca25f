"""Libraries as files: what comes back, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.arch import ARCHES
from boltgen.build.cache import Cache
from boltgen.build.library.archive import export_library, import_library
from boltgen.build.library.kernels import KernelStore, build_library, kernel_key, stored_units
from boltgen.errors import LibraryError
from boltgen.families.cutlass2.levels import library_specs
from boltgen.families.family import Level
from tests.build.fakes import fake_toolchain

(GROUP,) = library_specs(ARCHES["sm_80"], Level.QUICK, [8])["conv2d"]
MANIFEST = "boltgen-library.json"


@pytest.fixture
def tools(tmp_path: Path):
    return fake_toolchain(tmp_path / "toolkit")


@pytest.fixture
def archive(tmp_path: Path, tools) -> Path:
    cache = Cache(tmp_path / "here")
    build_library([GROUP], tools, cache, jobs=2)
    export_library(stored_units(cache), tmp_path / "library.tgz")
    return tmp_path / "library.tgz"


@pytest.fixture
def there(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "there")


def test_another_machine_finds_every_kernel(archive, there, tools):
    done = import_library(archive, there)
    assert (len(done.added), len(done.present)) == (2, 0)
    store = KernelStore(there)
    for spec in GROUP:
        assert store.find(kernel_key(spec, tools)) is not None
    again = import_library(archive, there)
    assert (len(again.added), len(again.present)) == (0, 2)
    assert build_library([GROUP], tools, there, jobs=1).found == 2


def test_equal_libraries_make_equal_files(archive, there, tmp_path):
    import_library(archive, there)
    export_library(stored_units(there), tmp_path / "again.tgz")
    assert (tmp_path / "again.tgz").read_bytes() == archive.read_bytes()


def test_kernels_of_another_toolchain_are_kept_apart(archive, there, tools):
    other = replace(tools, cutlass=replace(tools.cutlass, version="9.9"))
    build_library([GROUP], other, there, jobs=1)
    import_library(archive, there)
    store = KernelStore(there)
    paths = {store.find(kernel_key(GROUP[0], t)) for t in (tools, other)}
    assert len(paths) == 2
    assert None not in paths


def test_nothing_to_export(there, tmp_path):
    with pytest.raises(LibraryError, match="there are no kernels to export; `boltgen library"):
        export_library(stored_units(there), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_not_there(archive, there, tmp_path):
    import_library(archive, there)
    with pytest.raises(LibraryError, match="the library cannot be written to"):
        export_library(stored_units(there), tmp_path / "no" / "x")


# --- what is refused -----------------------------------------------------------------------------


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def write(path: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def declare(contents: dict[str, bytes]) -> dict[str, bytes]:
    """`contents` with a manifest that tells the truth about them."""
    units: dict[str, dict[str, object]] = {}
    for path, content in contents.items():
        if path != MANIFEST:
            key, _, name = path.partition("/")
            sha256 = hashlib.sha256(content).hexdigest()
            units.setdefault(key, {})[name] = {"bytes": len(content), "sha256": sha256}
    manifest = json.dumps({"version": 1, "units": units}).encode()
    return {MANIFEST: manifest, **{k: v for k, v in contents.items() if k != MANIFEST}}


def refused(archive: Path, there: Cache, words: str) -> None:
    with pytest.raises(LibraryError, match=words) as caught:
        import_library(archive, there)
    assert str(archive) in str(caught.value)


def test_every_cut_off_file_is_refused(archive, there):
    whole = archive.read_bytes()
    for length in (0, 1, 20, len(whole) // 2, len(whole) * 3 // 4):
        archive.write_bytes(whole[:length])
        refused(archive, there, "no kernel library|damaged")
    assert all(there.has("library", unit.key) for unit in stored_units(there))


def test_a_flipped_bit_is_found(archive, there):
    contents = members(archive)
    name = next(name for name in contents if name.endswith("kernels.so"))
    contents[name] = b"\x00" + contents[name][1:]
    write(archive, contents)
    refused(archive, there, f"is damaged: {name} is not what was exported")


def test_what_is_no_archive(tmp_path, there):
    path = tmp_path / "x"
    path.write_text("hello")
    refused(path, there, "is no kernel library, or is damaged")
    refused(tmp_path / "nowhere", there, "is no kernel library, or is damaged: .*No such file")
    write(path, {"readme.txt": b"hello"})
    refused(path, there, f"does not begin with {MANIFEST}")


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/b", "..", ".hidden", "", "x" * 200, "a\nb", "kernels.so\0"]
)
def test_no_file_lands_outside_its_unit(archive, there, tmp_path, name):
    before = sorted(path for path in tmp_path.rglob("*") if "there" not in path.parts)
    contents = members(archive)
    key = next(iter(contents.keys() - {MANIFEST})).partition("/")[0]
    manifest = json.loads(contents[MANIFEST])
    manifest["units"][key][name] = {"bytes": 4, "sha256": hashlib.sha256(b"evil").hexdigest()}
    evil = {MANIFEST: json.dumps(manifest).encode(), f"{key}/{name}": b"evil"}
    write(archive, evil | {path: c for path, c in contents.items() if path != MANIFEST})
    refused(archive, there, "a unit does not hold a file")
    assert sorted(p for p in tmp_path.rglob("*") if "there" not in p.parts) == before


@pytest.mark.parametrize("key", ["../" + "0" * 61, "0" * 63, "g" * 64])
def test_a_key_that_is_none(archive, there, key):
    unit = {name.rpartition("/")[2]: c for name, c in members(archive).items() if "/" in name}
    write(archive, declare({f"{key}/{name}": content for name, content in unit.items()}))
    refused(archive, there, "is no unit's key")


def test_links_are_refused(archive, there):
    contents = members(archive)
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            if name.endswith("kernels.so"):
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    refused(archive, there, "is damaged: '.*kernels.so' stands where")


def test_a_member_that_the_manifest_does_not_name(archive, there):
    write(archive, members(archive) | {"extra": b"x"})
    refused(archive, there, "'extra' is not in its manifest")


def test_a_unit_under_anothers_key(archive, there):
    contents = members(archive)
    first, second = sorted({name.partition("/")[0] for name in contents if "/" in name})
    swap = {first: second, second: first}
    swapped = {
        f"{swap[key]}/{file}": content
        for name, content in contents.items()
        for key, _, file in [name.partition("/")]
        if file
    }
    write(archive, declare(swapped))
    refused(archive, there, "is not what its key says")


def test_a_unit_that_is_not_whole(archive, there):
    contents = {n: c for n, c in members(archive).items() if not n.endswith("kernels.so")}
    write(archive, declare(contents))
    refused(archive, there, "holds about.json, ")


def test_another_version(archive, there):
    contents = members(archive)
    contents[MANIFEST] = json.dumps(json.loads(contents[MANIFEST]) | {"version": 2}).encode()
    write(archive, contents)
    refused(archive, there, "is of version 2, this boltgen reads 1")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1,"units":[]}', '{"version":1}'])
def test_a_manifest_that_cannot_be_read(archive, there, text):
    write(archive, {MANIFEST: text.encode()})
    refused(archive, there, "its manifest cannot be read")


def test_a_member_that_declares_too_much(archive, there):
    contents = members(archive)
    manifest = json.loads(contents[MANIFEST])
    for files in manifest["units"].values():
        files["kernels.so"]["bytes"] = 1 << 40
    write(archive, contents | {MANIFEST: json.dumps(manifest).encode()})
    refused(archive, there, "a unit does not hold a file 'kernels.so' of 1099511627776 bytes")


def test_a_library_without_units_is_one(there, tmp_path):
    path = tmp_path / "empty.tgz"
    path.write_bytes(gzip.compress(b""))
    refused(path, there, "no kernel library|damaged")


@pytest.mark.parametrize(
    ("size", "words"),
    [("1e999", "beyond double"), ("1.5", "1.5 is no number of bytes"), ("9" * 5000, "64 bits")],
)
def test_sizes_that_are_no_integers(archive, there, size, words):
    contents = members(archive)
    text = re.sub(r'"bytes": \d+', f'"bytes": {size}', contents[MANIFEST].decode(), count=1)
    write(archive, contents | {MANIFEST: text.encode()})
    refused(archive, there, words)


def test_a_bomb_is_refused(archive, there):
    contents = {MANIFEST: b'{"version": 1, "units": {}}', "x": bytes(100 << 20)}
    write(archive, contents)
    refused(archive, there, "'x' is not in its manifest|larger inside")
    deep = {MANIFEST: b"[" * 100_000}
    write(archive, deep)
    refused(archive, there, "nested more than")
