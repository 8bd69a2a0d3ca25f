"""The cache: whole entries or none, whatever happens to the process, the disk or the files."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boltgen.build.cache import Cache
from boltgen.errors import CacheError

KEY = "ab" + "0" * 62


def write_payload(folder: Path) -> None:
    (folder / "payload").write_bytes(b"payload")


def entries(root: Path) -> list[Path]:
    return [path for path in (root / "kernel").rglob("*") if path.is_file()]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Permissions bind only ordinary users: where tests run as root, become one for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """An empty folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_an_entry_is_built_once(cache: Cache) -> None:
    first = cache.get_or_build("kernel", KEY, write_payload)
    second = cache.get_or_build("kernel", KEY, lambda _: pytest.fail("built twice"))
    assert (first.built, second.built) == (True, False)
    assert (second.folder / "payload").read_bytes() == b"payload"


def test_the_root_is_for_its_user_only(cache: Cache) -> None:
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700


def test_what_a_build_raises_is_passed_on_and_leaves_nothing(cache: Cache) -> None:
    def build(folder: Path) -> None:
        write_payload(folder)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.get_or_build("kernel", KEY, build)
    assert not entries(cache.root)
    assert not list((cache.root / "building").iterdir())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "is not writable"),
        (errno.EIO, "cannot be used"),
    ],
)
def test_a_failing_disk_is_named_with_a_remedy(cache: Cache, code: int, said: str) -> None:
    def build(folder: Path) -> None:
        write_payload(folder)
        raise OSError(code, os.strerror(code), str(folder / "payload"))

    with pytest.raises(CacheError) as caught:
        cache.get_or_build("kernel", KEY, build)
    assert said in str(caught.value)
    assert str(cache.root) in str(caught.value)
    assert "BOLTGEN_CACHE_DIR" in str(caught.value)
    assert not entries(cache.root)
    assert not list((cache.root / "building").iterdir())


def test_a_write_that_the_system_refuses_leaves_nothing(cache: Cache) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CacheError, match=r"no space left .*nothing half-written was kept"):
            cache.get_or_build(
                "kernel", KEY, lambda folder: _ignore((folder / "big").write_bytes(bytes(65536)))
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert not entries(cache.root)


def _ignore(_: object) -> None:
    pass


def test_a_folder_that_cannot_be_created_is_named(public_folder: Path) -> None:
    (public_folder / "closed").mkdir(mode=0o555)
    root = public_folder / "closed" / "cache"
    with as_ordinary_user(), pytest.raises(CacheError) as caught:
        Cache(root)
    assert f"cache folder {root} is not writable" in str(caught.value)
    assert "set BOLTGEN_CACHE_DIR to a folder of your own" in str(caught.value)


def test_a_folder_that_is_read_only_is_named(public_folder: Path) -> None:
    root = public_folder / "cache"
    root.mkdir()
    if os.geteuid() == 0:
        os.chown(root, 65534, 65534)
    root.chmod(0o555)
    with as_ordinary_user(), pytest.raises(CacheError, match="is not writable"):
        Cache(root)
    root.chmod(0o755)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(CacheError, match=r"cache cannot be used: .*File exists"):
        Cache(tmp_path / "cache")


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(CacheError) as caught:
        Cache(tmp_path / "cache")
    assert f"belongs to user {owner}, you are user {owner + 1}" in str(caught.value)
    assert "set BOLTGEN_CACHE_DIR" in str(caught.value)


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(CacheError, match=r"is writable for other users \(mode 777\).*chmod 700"):
        Cache(root)


def _damage_payload(folder: Path) -> None:
    (folder / "payload").write_bytes(b"payloaf")


def _truncate_payload(folder: Path) -> None:
    (folder / "payload").write_bytes(b"")


def _remove_payload(folder: Path) -> None:
    (folder / "payload").unlink()


def _remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def _replace_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[1]")


def _nest_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)


def _empty_manifest(folder: Path) -> None:
    (folder / "payload").unlink()
    (folder / "manifest.json").write_text('{"files": {}}')


def _point_elsewhere(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {"../../payload": "0"}}')


def _list_another(folder: Path) -> None:
    digest = hashlib.sha256(b"other").hexdigest()
    (folder / "other").write_bytes(b"other")
    (folder / "manifest.json").write_text(json.dumps({"files": {"other": digest}}))


def _make_payload_a_folder(folder: Path) -> None:
    (folder / "payload").unlink()
    (folder / "payload").mkdir()


def _make_manifest_a_folder(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()


def _make_payload_a_pipe(folder: Path) -> None:
    (folder / "payload").unlink()
    os.mkfifo(folder / "payload")


def _make_entry_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_damage_payload, "payload is not what was written"),
        (_truncate_payload, "payload is not what was written"),
        (_remove_payload, "payload is missing"),
        (_remove_manifest, "manifest.json is missing"),
        (_damage_manifest, "manifest.json cannot be read"),
        (_replace_manifest, "manifest.json cannot be read"),
        (_nest_manifest, "manifest.json cannot be read"),
        (_empty_manifest, "manifest.json cannot be read"),
        (_point_elsewhere, "manifest.json cannot be read"),
        (_list_another, "payload is missing"),
        (_make_payload_a_folder, "payload cannot be read: it is a folder, not a file"),
        (_make_manifest_a_folder, "manifest.json cannot be read: it is a folder, not a file"),
        (_make_payload_a_pipe, "payload cannot be read: it is a pipe or a device, not a file"),
        (_make_entry_a_file, "manifest.json cannot be read: Not a directory"),
    ],
)
def test_a_damaged_entry_is_said_and_built_again(
    cache: Cache, caplog: pytest.LogCaptureFixture, damage: object, said: str
) -> None:
    folder = cache.get_or_build("kernel", KEY, write_payload).folder
    damage(folder)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        entry = cache.get_or_build("kernel", KEY, write_payload, ["payload"])
    assert entry.built
    assert (entry.folder / "payload").read_bytes() == b"payload"
    assert cache.has("kernel", KEY)
    assert [record.getMessage() for record in caplog.records] == [
        f"cache entry {folder} is damaged ({said}); it is built again"
    ]


_KILLED = """
import sys, time
from pathlib import Path
from boltgen.build.cache import Cache

def build(folder):
    (folder / "payload").write_bytes(b"half")
    print("building", flush=True)
    time.sleep(60)

Cache(Path(sys.argv[1])).get_or_build("kernel", sys.argv[2], build)
"""


def test_a_killed_build_is_never_believed(cache: Cache) -> None:
    command = [sys.executable, "-c", _KILLED, str(cache.root), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.kill()
    assert not cache.has("kernel", KEY)
    entry = cache.get_or_build("kernel", KEY, write_payload)
    assert entry.built
    assert (entry.folder / "payload").read_bytes() == b"payload"


def test_what_killed_builds_left_is_swept(cache: Cache) -> None:
    command = [sys.executable, "-c", _KILLED, str(cache.root), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        Cache(cache.root)
        assert len(list((cache.root / "building").glob("*/*/payload"))) == 1, "it is under way"
        process.kill()
    Cache(cache.root)
    assert not list((cache.root / "building").iterdir())


def test_a_sweep_leaves_a_build_that_a_wrong_clock_makes_old(cache: Cache) -> None:
    with cache.scratch("kernel") as folder:
        for path in (folder, folder.parent):
            os.utime(path, (0, 0))
        Cache(cache.root)
        assert folder.is_dir()
    assert not list((cache.root / "building").iterdir())


def _share(root: Path, log: Path) -> None:
    def build(folder: Path) -> None:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.02)
        write_payload(folder)

    cache = Cache(root)
    for index in range(4):
        entry = cache.get_or_build("kernel", f"{index:064x}", build)
        if (entry.folder / "payload").read_bytes() != b"payload":
            raise AssertionError("a half-written entry was seen")


def test_eight_processes_build_each_entry_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    processes = [context.Process(target=_share, args=(tmp_path / "cache", log)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0] * 8
    assert log.read_text() == "built\n" * 4


def tree(folder: Path, size: int = 4) -> Path:
    (folder / "sources").mkdir(parents=True)
    (folder / "payload").write_bytes(bytes(size))
    (folder / "sources" / "k.cu").write_text("")
    return folder


def test_a_folder_that_was_put_is_found_whole(cache: Cache, tmp_path: Path) -> None:
    assert cache.find("model", KEY) is None
    cache.put("model", KEY, tree(tmp_path / "files"), most_bytes=1000)
    found = cache.find("model", KEY)
    assert found is not None
    assert (found / "payload").read_bytes() == bytes(4)
    assert (found / "sources" / "k.cu").exists()


def test_a_damaged_folder_is_said_and_not_found(
    cache: Cache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put("model", KEY, tree(tmp_path / "files"), most_bytes=1000)
    (cache.folder("model", KEY) / "sources" / "k.cu").write_text("evil")
    assert cache.find("model", KEY) is None
    assert "sources/k.cu is not what was written" in caplog.text


def test_the_least_recently_used_make_room(cache: Cache, tmp_path: Path) -> None:
    keys = [f"{index:064x}" for index in range(3)]
    for age, key in zip((300, 200), keys, strict=False):
        cache.put("model", key, tree(tmp_path / key, size=1000), most_bytes=2800)
        then = time.time() - age
        os.utime(cache.folder("model", key), (then, then))
    assert cache.find("model", keys[0]) is not None  # now the second is the oldest
    cache.put("model", keys[2], tree(tmp_path / keys[2], size=1000), most_bytes=2800)
    assert [cache.find("model", key) is not None for key in keys] == [True, False, True]


def test_a_folder_that_is_too_large_is_not_kept(cache: Cache, tmp_path: Path) -> None:
    cache.put("model", KEY, tree(tmp_path / "files", size=5000), most_bytes=1000)
    assert cache.find("model", KEY) is None
