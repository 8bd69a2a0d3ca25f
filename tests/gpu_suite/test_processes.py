"""Stopping, resuming and ending a process with all that it started."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.gpu.processes import (
    _below,
    _processes,
    end_tree,
    is_alive,
    resume_tree,
    running_below,
    stop_tree,
)

# A process that starts a process in a session of its own, as `build.children` does, which starts
# another one.
TREE = """
import subprocess, sys, time
inner = "import subprocess; subprocess.run(['sleep', '300'])"
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
time.sleep(300)
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def tree() -> Iterator[int]:
    """A process with a child and a grandchild, which sleeps."""
    with subprocess.Popen([sys.executable, "-c", TREE]) as process:
        until(lambda: running_below(process.pid, frozenset({"sleep"})) == 1)
        yield process.pid
        end_tree(process.pid)


def states(pid: int) -> list[str]:
    parents, found = _processes()
    return [found[one][1] for one in (pid, *_below(pid, parents))]


def test_a_tree_is_stopped_and_resumed(tree: int):
    assert len(states(tree)) == 3
    stop_tree(tree)
    until(lambda: states(tree) == ["T"] * 3)
    assert running_below(tree, frozenset({"sleep"})) == 0
    assert is_alive(tree)
    resume_tree(tree)
    until(lambda: "T" not in states(tree))
    assert running_below(tree, frozenset({"sleep"})) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_a_tree_ends_as_a_whole(tree: int, stopped: bool):
    parents, _ = _processes()
    everyone = _below(tree, parents)
    assert len(everyone) == 2
    if stopped:
        stop_tree(tree)
    end_tree(tree)
    until(lambda: not any(map(is_alive, (tree, *everyone))))


def test_a_process_that_has_ended_is_no_error():
    with subprocess.Popen(["true"]) as process:
        pass
    assert not is_alive(process.pid)
    for act in (stop_tree, resume_tree, end_tree):
        act(process.pid)
