"""What README and docs tell users to type: programs run as they stand, commands exist.

A program may use what the text around it has only in words: a model's file, `mod`, `images`. Each
has an entry in PROGRAMS, which says what stands before it, and what of it is replaced, because it
would need a GPU or minutes. A program without an entry fails.
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
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper

from boltgen.cli import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RELAY = ROOT / ".venv-relay" / "bin" / "python"


@dataclass(frozen=True)
class Program:
    """How a program of the documentation is run."""

    before: str = ""
    replaced: dict[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)


_RELAX = """
import onnx
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.settings import settings_from
provide_cuda_runtime(settings_from())
import tvm
from tvm.relax.frontend.onnx import from_onnx
mod = from_onnx(onnx.load("model.onnx"), {"input": [24, 64]})
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
"""

# By a line that no other program has.
PROGRAMS = {
    'artifact = boltgen.compile("model.onnx", arch="sm_80")': Program(
        before="import numpy\nimages = numpy.ones((24, 64), numpy.float32)"
    ),
    "session.warm_up()": Program(
        before="import boltgen, numpy\nimages = numpy.ones((24, 64), numpy.float32)\n"
        "artifact = boltgen.compile('model.onnx', arch='sm_80')"
    ),
    "torch.nn.Sequential": Program(),
    "boltgen.relax.partition": Program(before=_RELAX),
    "boltgen.relay.partition": Program(
        before="import boltgen.relay, onnx\nonnx_model = onnx.load('model.onnx')", python=RELAY
    ),
    "boltgen.tune(": Program(
        before="import boltgen",
        replaced={'budget="120s"': 'budget="2trials"', 'device="cuda"': 'device="vgpu"'},
    ),
    "boltgen.open_session": Program(
        before="import boltgen",
        replaced={'budget="60s"': 'budget="2trials", device="vgpu"'},
    ),
    "FAMILIES.register(MyFamily())": Program(
        before="from tests.families.test_toy_family import Toy as MyFamily"
    ),
    "def random_search(": Program(
        before="import random\n"
        "from boltgen.tuning.strategies.strategy import InOrder, SearchProblem"
    ),
}


def blocks(language: str) -> list[object]:
    """(page, text) of every block of code in `language`."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page.name}:{line}"))
    return found


def write_model(path: Path) -> None:
    """A product, its activation, and a softmax that TVM computes; one fixed input."""
    weight = np.linspace(-1, 1, 64 * 40, dtype=np.float32).reshape(64, 40)
    nodes = [
        helper.make_node("MatMul", ["input", "w"], ["dense"]),
        helper.make_node("Relu", ["dense"], ["active"]),
        helper.make_node("Softmax", ["active"], ["output"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, (24, 64))],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, (24, 40))],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_runs(text: str, tmp_path: Path) -> None:
    matching = [program for line, program in PROGRAMS.items() if line in text]
    assert len(matching) == 1, "the program has no entry in PROGRAMS, or several"
    (program,) = matching
    assert program.python.is_file(), f"{program.python} is missing: run `make relay-env`"
    for name in ("model.onnx", "m.onnx"):
        write_model(tmp_path / name)
    for old, new in program.replaced.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "program.py").write_text(f"{program.before}\n{text}", encoding="utf-8")
    done = subprocess.run(
        [str(program.python), "program.py"],
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


def test_every_entry_is_of_a_program() -> None:
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [line for line in PROGRAMS if line not in texts] == []


def commands() -> list[object]:
    """Every command line of boltgen's: in blocks for the console, and in running text."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [
            *re.findall(r"^\$ (.+)$", text, re.MULTILINE),
            *re.findall(r"`(boltgen [^`]+)`", text),
        ]
        found.update({line.partition("  #")[0].strip(): page.name for line in lines})
    return [pytest.param(line, id=f"{name}:{line}") for line, name in found.items()]


def check_boltgen(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        name = words.pop(0)
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
        case _:
            pytest.fail(f"nobody checks commands of {program}")
