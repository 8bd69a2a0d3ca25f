"""Stops, resumes and ends a process with all that it started: compilers start further processes.

Linux only: the tree is read from /proc. Standard library alone, for `run_gpu_suite.py`.
"""

import contextlib
import os
import signal
from pathlib import Path

# A process may start another between two looks; so many looks find no new one.
_MOST_LOOKS = 20


def stop_tree(pid: int) -> None:
    """Stop a process and all below it, until `resume_tree`. Harmless where it has ended."""
    _signal_all(pid, signal.SIGSTOP)


def resume_tree(pid: int) -> None:
    """Let a process and all below it go on."""
    _signal_all(pid, signal.SIGCONT)


def end_tree(pid: int) -> None:
    """Kill a process and all below it, stopped or not."""
    stopped = _signal_all(pid, signal.SIGSTOP)  # so that none starts another meanwhile
    for one in reversed(stopped):
        _send(one, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether the process is there, and is more than a status to be read."""
    _parents, states = _processes()
    return states.get(pid, ("", "Z"))[1] != "Z"


def running_below(pid: int, names: "frozenset[str]") -> int:
    """Count the processes below `pid` of these names, without stopped and dead ones."""
    parents, states = _processes()
    found = _below(pid, parents)
    return sum(states[one][0] in names and states[one][1] not in "TtZ" for one in found)


def _signal_all(pid: int, number: int) -> "list[int]":
    told: list[int] = []
    for _ in range(_MOST_LOOKS):
        parents, _states = _processes()
        new = [one for one in [pid, *_below(pid, parents)] if one not in told]
        if not new:
            break
        for one in new:
            _send(one, number)
        told += new
    return told


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _below(pid: int, parents: "dict[int, int]") -> "list[int]":
    """List the descendants of the process `pid`."""
    found, wanted = [], {pid}
    while wanted:
        wanted = {child for child, parent in parents.items() if parent in wanted}
        found += sorted(wanted)
    return found


def _processes() -> "tuple[dict[int, int], dict[int, tuple[str, str]]]":
    """Read the parent of every process, its name and its state."""
    parents, states = {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            parents[int(folder.name)] = int(parent)
            states[int(folder.name)] = name, state
    return parents, states
