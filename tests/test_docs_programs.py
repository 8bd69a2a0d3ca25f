"""README and docs: every program runs and prints what the page says, and every command exists.

The Python blocks of a page are one program, which runs in a folder with `models/`. A block `text`
right after a Python block is what that block prints.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from boltgen.cli import app

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RELAY = ROOT / ".venv-relay" / "bin" / "python"
SERVE = ROOT / ".venv-serve" / "bin" / "python"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
# Printed between the blocks of a program.
MARK = "--- end of a block ---"


@dataclass(frozen=True)
class Needs:
    """A program's needs beside its page: code before and after it, replacements, an interpreter."""

    before: str = ""
    after: str = "pass"
    replaced: dict[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)


_SERVER = """
import boltgen
from benchmarks.harness.server import serving
boltgen.compile("models/digits/digits.onnx", arch="sm_80").save("digits.boltgen")
running = serving([Path("digits.boltgen").absolute()])
server = running.__enter__()
"""
# The page's program may fail, and the server has to end all the same.
_RUN = """
from pathlib import Path
{before}
try:
    exec(compile(Path("page.py").read_text(), "page.py", "exec"), globals())
finally:
    {after}
"""

_SHORT = 'budget="2trials", device="vgpu", rest="off", level="quick"'

# A page that is not here needs nothing. Replacements stand for a GPU, for minutes, or for a port.
NEEDS = {
    "tutorials/tuning.md": Needs(
        replaced={
            'budget="120s", device="cuda"': _SHORT,
            'budget="60s"': _SHORT,
        }
    ),
    "tutorials/serving.md": Needs(
        before=_SERVER,
        after="running.__exit__(None, None, None)",
        replaced={'"http://127.0.0.1:8080': 'f"http://{server.http}'},
        python=SERVE,
    ),
    "how-to/relay.md": Needs(python=RELAY),
    "develop/kernel-family.md": Needs(
        before="from tests.families.test_toy_family import TOY",
        replaced={
            "KernelFamily(config_type=MyConfig, rejects=rejects, space=space, ...)": "TOY",
        },
    ),
}


def name_of(page: Path) -> str:
    """Return a page's path in the docs, or README.md."""
    return page.relative_to(DOCS if DOCS in page.parents else ROOT).as_posix()


def programs() -> list[object]:
    """Return the blocks of each page that has Python: (text, output) pairs."""
    found = []
    for page in PAGES:
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        if blocks:
            found.append(pytest.param(name_of(page), blocks, id=name_of(page)))
    return found


@pytest.mark.parametrize(("page", "blocks"), programs())
def test_the_program_of_a_page_runs(
    page: str, blocks: list[tuple[str, str]], tmp_path: Path
) -> None:
    needs = NEEDS.get(page, Needs())
    assert needs.python.is_file(), f"{needs.python} is missing: see the Makefile"
    program = f"\nprint({MARK!r})\n".join(["", *(text for text, _ in blocks)])
    for old, new in needs.replaced.items():
        assert old in program
        program = program.replace(old, new)
    (tmp_path / "page.py").write_text(program, encoding="utf-8")
    run = _RUN.format(before=needs.before, after=needs.after)
    (tmp_path / "run.py").write_text(run, encoding="utf-8")
    (tmp_path / "models").symlink_to(ROOT / "models")
    done = subprocess.run(
        [str(needs.python), "run.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "TOPHUB_LOCATION": "NONE",
            "BOLTGEN_DATA_DIR": str(tmp_path / "data"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    _, *printed = done.stdout.split(f"{MARK}\n")
    for found, (text, wanted) in zip(printed, blocks, strict=True):
        if wanted:
            assert found == wanted, text


def test_every_page_with_needs_has_a_program() -> None:
    pages = {name_of(page) for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))}
    assert NEEDS.keys() <= pages


def commands() -> list[object]:
    """Return every command line of boltgen's: in blocks for the console, and in running text."""
    found = {}
    for page in PAGES:
        if GENERATED in page.parents:
            continue  # from the commands themselves
        text = page.read_text(encoding="utf-8")
        lines = [
            *re.findall(r"^\$ (.+)$", text, re.MULTILINE),
            *re.findall(r"`(boltgen [^`]+)`", text),
        ]
        found.update({line.partition("  #")[0].strip(): name_of(page) for line in lines})
    return [pytest.param(line, id=f"{name}:{line}") for line, name in found.items()]


def check_boltgen(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        name = words.pop(0)
        if name == "COMMAND":
            return
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    options = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts)}
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    given = 0
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            given += 1
            continue
        assert word in options, f"there is no option {word!r}"
        option = options[word]
        if not getattr(option, "is_flag", False):
            assert words, f"{word} is given no value"
            words.pop(0)
    assert given <= len(arguments) or any(p.nargs == -1 for p in arguments)


@pytest.mark.parametrize("line", commands())
def test_a_command_exists(line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    while re.fullmatch(r"[A-Z_]+=\S+", program):
        program, *words = words
    match program:
        case "boltgen":
            check_boltgen(words)
        case "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            for target in words:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        case "pip":
            (extras,) = re.findall(r"\[([\w,]+)\]", line)
            project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
        case "python":
            assert (ROOT / words[0]).is_file()
        case "openssl":
            pass  # not ours
        case _:
            pytest.fail(f"nobody checks commands of {program}")


def test_the_commands_of_the_first_page_run(tmp_path: Path) -> None:
    text = (DOCS / "start" / "first-model.md").read_text(encoding="utf-8")
    (tmp_path / "models").symlink_to(ROOT / "models")
    with np.load(ROOT / "models" / "digits" / "heldout.npz") as arrays:
        np.savez(tmp_path / "images.npz", input=arrays["images"][:40])
    printed = {}
    for line in re.findall(r"^\$ boltgen (.+)$", text, re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-m", "boltgen", *shlex.split(line)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        printed[line.split()[0]] = done.stdout
    (quoted,) = re.findall(r"^```text\n(checked.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for line in quoted.splitlines():
        assert line.removesuffix("...") in printed["compile"]
    logits = np.load(tmp_path / "outputs.npz")["logits"]
    assert logits.argmax(axis=1)[:10].tolist() == [7, 6, 3, 7, 7, 3, 2, 8, 9, 3]
