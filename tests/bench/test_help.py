"""Each command of `benchmarks` prints a help for `--help`, and does nothing else."""

from __future__ import annotations

import argparse
import ast
import builtins
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from benchmarks.trials.command import options
from tests.needs import ROOT

_IS_MAIN = '__name__ == "__main__"'
COMMANDS = sorted(
    path for path in (ROOT / "benchmarks").rglob("*.py") if f"\nif {_IS_MAIN}:" in path.read_text()
)


class Names(dict[str, Any]):
    """The names that a command finds: an object that does nothing for all but its own functions."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name) if hasattr(builtins, name) else MagicMock(name=name)


def _command(path: Path) -> ast.Module:
    """Return the code that runs as `__main__`, and the function `main`, without imports."""
    tree = ast.parse(path.read_text(), str(path))
    is_main = ast.dump(ast.parse(_IS_MAIN, mode="eval").body)
    kept = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name == "main")
        or (isinstance(node, ast.If) and ast.dump(node.test) == is_main)
    ]
    future = ast.parse("from __future__ import annotations").body
    return ast.Module(body=[*future, *kept], type_ignores=[])


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_help_is_all_that_a_command_prints(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that does something first does it with objects that do nothing."""
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said
    names = Names(__name__="__main__", __doc__=said, argparse=argparse, options=options, sys=sys)
    names["Path"] = Path
    with pytest.raises(SystemExit) as end:
        exec(compile(_command(path), str(path), "exec"), names)
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: ")
    assert said.split()[0] in printed
