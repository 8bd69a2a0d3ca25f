"""Compiling through the cache and in the pool, with a compiler that is a shell script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boltgen.build import pool
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.unit import CompiledObject, CompileFailure, safe_name
from boltgen.errors import CacheError, CompileError, ToolchainError
from tests.build.fakes import FAIL, fake_toolchain, fake_unit

HOSTILE = "a'b\"c`$(touch pwned);\n*/ ../../x\u2603"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def start(self, title: str, total: int = 0, left: object = None) -> None:
        self.heard.append(f"{title} {total}")

    def step(self, what: str) -> None:
        self.heard.append(what)

    def end(self) -> None:
        self.heard.append("end")


def test_object_source_log_and_command_are_kept_together(cache: Cache, tmp_path: Path) -> None:
    tools = fake_toolchain(tmp_path / "toolkit", "echo said; for last; do :; done; echo o > $last")
    compiled = compile_unit(fake_unit(tools), cache)
    assert isinstance(compiled, CompiledObject)
    assert compiled.path.read_text() == "o\n"
    assert compiled.source.read_text() == "kernel"
    assert compiled.log.read_text() == "said\n"
    command = (compiled.path.parent / "command.txt").read_text()
    assert command == f"{tools.nvcc.path} -c k.cu -o kernel.o\n"
    again = compile_unit(fake_unit(tools), cache)
    assert isinstance(again, CompiledObject)
    assert (again.cached, again.path, again.seconds) == (True, compiled.path, 0.0)


def test_a_failure_names_the_first_error_and_what_was_kept(cache: Cache, tmp_path: Path) -> None:
    unit = fake_unit(fake_toolchain(tmp_path / "toolkit", FAIL))
    failure = compile_unit(unit, cache)
    assert isinstance(failure, CompileFailure)
    assert failure.error == 'k.cu(7): error: identifier "x" is undefined'
    assert failure.source.read_text() == "kernel"
    assert 'expected a ";"' in failure.log.read_text()
    assert not cache.has("kernel", unit.key)
    with pytest.raises(CompileError) as caught:
        objects_or_raise([failure, failure])
    message = str(caught.value)
    assert "nvcc failed on kernel 'k': k.cu(7): error: identifier" in message
    assert f"command: {' '.join(unit.command)}" in message
    assert f"source:  {failure.source}" in message
    assert f"log:     {failure.log}" in message
    assert message.endswith("1 more failed to compile")


def test_a_failure_can_be_repeated_and_repaired(cache: Cache, tmp_path: Path) -> None:
    failing = fake_toolchain(tmp_path / "toolkit", FAIL)
    assert isinstance(compile_unit(fake_unit(failing), cache), CompileFailure)
    assert isinstance(compile_unit(fake_unit(failing), cache), CompileFailure)
    repaired = fake_toolchain(tmp_path / "toolkit")
    assert isinstance(compile_unit(fake_unit(repaired), cache), CompiledObject)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 3", "it ends with status 3"),
        ("echo out of luck; exit 3", "it ends with status 3: out of luck"),
        ("exit 0", "it reports success but wrote no output"),
        ("for last; do :; done; : > $last", "it reports success but wrote no output"),
        ("kill -9 $$", "killed by signal SIGKILL: too little memory? fewer jobs need less"),
        (
            "echo \"nvcc error : 'cicc' died due to signal 9 (Kill signal)\"; exit 9",
            "'cicc' died due to signal 9 (Kill signal): too little memory?",
        ),
    ],
)
def test_what_a_failure_says(cache: Cache, tmp_path: Path, body: str, said: str) -> None:
    failure = compile_unit(fake_unit(fake_toolchain(tmp_path / "toolkit", body)), cache)
    assert isinstance(failure, CompileFailure)
    assert said in failure.error


def test_a_compiler_that_meets_a_full_disk(cache: Cache, tmp_path: Path) -> None:
    body = "echo 'fatal error: error writing to /x: No space left on device'; exit 1"
    unit = fake_unit(fake_toolchain(tmp_path / "toolkit", body))
    with pytest.raises(CacheError, match=r"no space left .*nothing half-written was kept"):
        compile_unit(unit, cache)
    assert not cache.has("kernel", unit.key)
    assert not list((cache.root / "building").iterdir())


def test_a_compiler_that_vanished(cache: Cache, tmp_path: Path) -> None:
    tools = fake_toolchain(tmp_path / "toolkit")
    tools.nvcc.path.unlink()
    with pytest.raises(ToolchainError, match=r"nvcc cannot be started: No such file.*doctor"):
        compile_unit(fake_unit(tools), cache)


def test_temporary_files_go_with_the_build(cache: Cache, tmp_path: Path) -> None:
    body = 'for last; do :; done; echo x > "$TMPDIR/tmpxft"; echo "$TMPDIR" > "$last"'
    compiled = compile_unit(fake_unit(fake_toolchain(tmp_path / "toolkit", body)), cache)
    assert isinstance(compiled, CompiledObject)
    temporary = Path(compiled.path.read_text().strip())
    assert temporary.is_relative_to(cache.root)
    assert not temporary.exists()


def test_hostile_names_reach_no_shell_and_no_other_folder(cache: Cache, tmp_path: Path) -> None:
    unit = fake_unit(fake_toolchain(tmp_path / "toolkit"), name=HOSTILE)
    compiled = compile_unit(unit, cache)
    assert isinstance(compiled, CompiledObject)
    assert compiled.source.parent == compiled.path.parent
    assert compiled.source.name == "a_b_c_touch_pwned_.._.._x_.cu"
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("conv2d_1", "conv2d_1"),
        ("", "unnamed"),
        ("..", "unnamed"),
        ("-o", "o"),
        ("/etc/passwd", "_etc_passwd"),
        ("x" * 300, "x" * 80),
        ("\u2603", "_"),
    ],
)
def test_safe_name(name: str, file_name: str) -> None:
    assert safe_name(name) == file_name


def test_the_key_covers_text_flags_and_tools_but_no_paths(tmp_path: Path) -> None:
    here, there = fake_toolchain(tmp_path / "here"), fake_toolchain(tmp_path / "there")
    assert fake_unit(here).key == fake_unit(there).key
    assert fake_unit(here).key == fake_unit(here, name="another").key
    assert fake_unit(here).key != fake_unit(here, text="other").key


def test_equal_units_are_compiled_once_and_progress_is_told(cache: Cache, tmp_path: Path) -> None:
    body = 'for last; do :; done; cat *.cu > "$last"; echo run >> ' + str(tmp_path / "runs")
    tools = fake_toolchain(tmp_path / "toolkit", body)
    units = [fake_unit(tools, text=text) for text in "abacab"]
    recorder = Recorder()
    outcomes = compile_all(units, cache, jobs=2, reporter=recorder, title="kernels")
    objects = objects_or_raise(outcomes)
    assert [compiled.path.read_text() for compiled in objects] == list("abacab")
    assert (tmp_path / "runs").read_text() == "run\n" * 3
    assert recorder.heard[0] == "kernels 3"
    assert recorder.heard[-1] == "end"
    assert len(recorder.heard) == 5
    recorder.heard.clear()
    compile_all(units, cache, jobs=2, reporter=recorder)
    assert recorder.heard == []


def test_one_failure_does_not_hide_the_others(cache: Cache, tmp_path: Path) -> None:
    body = (
        'if grep -q bad *.cu; then echo "error: bad"; exit 1; fi; for l; do :; done; cat *.cu >$l'
    )
    tools = fake_toolchain(tmp_path / "toolkit", body)
    units = [fake_unit(tools, text=text) for text in ("good", "bad", "fine")]
    outcomes = compile_all(units, cache, jobs=2)
    assert [type(outcome) for outcome in outcomes] == [
        CompiledObject,
        CompileFailure,
        CompiledObject,
    ]


def test_an_error_stops_the_other_compilers(cache: Cache, tmp_path: Path) -> None:
    body = 'if grep -q full *.cu; then echo "No space left on device"; exit 1; fi; sleep 60'
    tools = fake_toolchain(tmp_path / "toolkit", body)
    units = [fake_unit(tools, text=text) for text in ("slow", "full", "slow too")]
    started = time.monotonic()
    with pytest.raises(CacheError, match="no space left"):
        compile_all(units, cache, jobs=2)
    assert time.monotonic() - started < 10
    assert not list((cache.root / "building").iterdir())


# A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
_INTERRUPTED = """
import signal
import sys
from pathlib import Path
from boltgen.build import pool
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all
from tests.build.fakes import fake_toolchain, fake_unit

signal.signal(signal.SIGINT, signal.default_int_handler)
top, root = Path(sys.argv[1]), Path(sys.argv[2])
body = "sleep 60 & echo $! > " + str(top) + "/pid-$$; mv " + str(top) + "/pid-$$ " + str(top)
tools = fake_toolchain(top, body + "/started; wait")
compile_all([fake_unit(tools, text=t) for t in "ab"], Cache(root), jobs=1)
"""


def test_an_interrupt_kills_the_compilers_and_leaves_nothing(cache: Cache, tmp_path: Path) -> None:
    top = tmp_path / "toolkit"
    command = [sys.executable, "-c", _INTERRUPTED, str(top), str(cache.root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 20
        while not (top / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        grandchild = int((top / "started").read_text())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in said
    assert not _is_running(grandchild)
    assert not list((cache.root / "building").iterdir())
    assert not (cache.root / "kernel").exists()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that nobody has waited for yet is dead all the same.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


WGMMA = '#include "boltgen/gemm_sm90.h"\n'
# Fails if another compiler runs at the same time.
ALONE = (
    'mkdir {0}/alone || exit 3\nsleep 0.1\nrmdir {0}/alone\nfor last; do :; done; echo o > "$last"'
)


def test_compilers_start_when_they_fit_into_memory(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = fake_toolchain(tmp_path / "toolkit", ALONE.format(tmp_path))
    units = [fake_unit(tools, name, WGMMA + name) for name in "abcd"]
    for available, fit in ((5e9, True), (1e9, True), (50e9, False)):
        monkeypatch.setattr(pool, "available_bytes", lambda available=available: available)
        outcomes = compile_all(units, Cache(tmp_path / f"{available}"), jobs=4)
        assert all(isinstance(each, CompiledObject) for each in outcomes) == fit


def test_the_longest_unit_starts_first(cache: Cache, tmp_path: Path) -> None:
    body = f'ls *.cu >> {tmp_path}/order\nfor last; do :; done; echo o > "$last"'
    tools = fake_toolchain(tmp_path / "toolkit", body)
    short, long = (fake_unit(tools, "short", "x"), fake_unit(tools, "long", WGMMA))
    outcomes = compile_all([short, long], cache, jobs=1)
    assert (tmp_path / "order").read_text().split() == ["long.cu", "short.cu"]
    assert [outcome.unit.name for outcome in outcomes] == ["short", "long"]


def test_the_memory_that_is_available() -> None:
    assert 1e8 < pool.available_bytes() < 1e14
