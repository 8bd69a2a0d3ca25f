"""Write the pages of docs/reference from the code: `python docs/write_reference.py`.

`tests/test_docs_reference.py` fails if a page is not current.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import typer

import boltgen
from boltgen import errors, settings
from boltgen.arch import ARCHES, Arch
from boltgen.cli import app
from boltgen.cli.terminal import ending
from boltgen.options import ARCH, DEFAULT_ARCH, CompileOptions, KernelOptions, TuneOptions
from boltgen.options.option import default_of, option_of
from boltgen.passes.pipeline import PIPELINE
from boltgen.passes.run import ALWAYS, Pass, Stage
from boltgen.running import session

FOLDER = Path(__file__).resolve().parent / "reference"
# The functions that take options, each with the class of its options.
TAKERS = {"compile": CompileOptions, "tune": TuneOptions, "partition": KernelOptions}
_OPTIONS = {"compile": CompileOptions, "tune": TuneOptions, "open_session": TuneOptions}
_FUNCTIONS = ("compile", "load", "tune", "open_session", "quantize", "activate")
# Options that every command has.
_COMMON = {"verbose", "quiet"}
_NOTE = "<!-- Written by docs/write_reference.py. Do not edit. -->\n\n"
_PACKAGE = Path(boltgen.__file__).parent
# An annotation, which a signature shows as a string.
_QUOTED = re.compile(r"(: |-> )'([^']*)'")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    made = {
        "options.md": _options(),
        "cli.md": _commands(),
        "python.md": _python(),
        "exit-codes.md": _exit_codes(),
        "environment.md": _environment(),
        "architectures.md": _architectures(),
        "passes.md": _passes(),
    }
    return {name: f"{_NOTE}{text.strip()}\n" for name, text in made.items()}


def _options() -> str:
    parts = [
        "# Options",
        "Each option is a keyword argument in Python: `boltgen.compile(model, pad=False)`. You can "
        "also pass all of them as one value: `options=boltgen.CompileOptions(pad=False)`. Options "
        "without a flag exist only in Python.",
        "`partition` stands for `boltgen.relax.partition` and `boltgen.relay.partition`.",
    ]
    for title, names in _by_takers().items():
        parts += [f"## Options of {title}", "\n".join(names)]
    return "\n\n".join(parts)


def _by_takers() -> dict[str, list[str]]:
    """Return the lines of all options under the names of the functions that take them."""
    takers: dict[str, list[str]] = {}
    for name, kind in TAKERS.items():
        for each in fields(kind):
            takers.setdefault(_option_line(each), []).append(name)
    arch = f"- `arch`, `--arch {ARCH.metavar}`. {_sentence(ARCH.help)} Default: `{DEFAULT_ARCH}`."
    found: dict[str, list[str]] = {", ".join(TAKERS): [arch]}
    for line, names in takers.items():
        found.setdefault(", ".join(names), []).append(line)
    return found


def _option_line(each: Field[Any]) -> str:
    option = option_of(each)
    flag = (option.names or (f"--{each.name}",))[0] if option.flag else ""
    shown = f", `{flag}{f' {option.metavar}' if option.metavar else ''}`" if flag else ""
    if option.flag is bool:
        shown += f", `--no-{each.name}`"
    default = default_of(each)
    known = "" if default is None or callable(default) else f" Default: `{default}`."
    return f"- `{each.name}`{shown}. {_sentence(option.help)}{known}"


def _sentence(text: str) -> str:
    said = " ".join(text.split())
    return said if said.endswith(".") else f"{said}."


def _passes() -> str:
    parts = [
        "# Passes",
        "`boltgen/passes/pipeline.py` has this list. A pass takes a graph and returns a graph. "
        "Each function of a model goes through all passes in this order. "
        "`boltgen compile --trace DIR` writes the graph after each pass that changed it.",
    ]
    for stage in Stage:
        parts += [f"## {stage.name.capitalize()}", stage.value]
        parts += map(_pass, (each for each in PIPELINE if each.stage is stage))
    return "\n\n".join(parts)


def _pass(each: Pass) -> str:
    lines = [each.effect, f"Its place: {each.reason}", f"Module: `boltgen/passes/{each.home}.py`."]
    if each.when is not ALWAYS:
        lines.append(f"Runs {each.when.text}.")
    if each.in_bodies:
        lines.append("The bodies of regions go through it too.")
    return f"### {each.name}\n\n" + " ".join(lines)


def _commands() -> str:
    program: Any = typer.main.get_command(app)
    parts = [
        "# Commands",
        "`boltgen COMMAND --help` prints the same text. [Exit codes](exit-codes.md) says how "
        "commands end.",
        *_common(program),
    ]
    for name, command in _leaves(program, "boltgen"):
        parts += [f"## {name}", *_command(command)]
    return "\n\n".join(parts)


def _common(program: Any) -> Iterator[str]:
    """Yield the options that every command has."""
    found = [each for each in program.params if each.name in _COMMON]
    if found:
        lines = "\n".join(f"- {_flags(each)}: {_sentence(each.help)}" for each in found)
        yield f"Every command also has these options:\n\n{lines}"


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its whole name."""
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
        return
    for key, child in children.items():
        if not child.hidden:
            yield from _leaves(child, f"{name} {key}")


def _command(command: Any) -> Iterator[str]:
    yield from _help(command.help or "")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    options = [each for each in options if each.name not in _COMMON]
    lines = [f"- `{_metavar(each)}`: {_sentence(each.help or '')}" for each in arguments]
    lines += [
        f"- {_flags(each)}: {_sentence(each.help or '')}{_default(each)}"
        for each in options
        if each.help and not each.hidden
    ]
    yield "\n".join(lines)


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a command's help; examples become a block for the console."""
    for paragraph in inspect.cleandoc(text.replace("\b", "")).split("\n\n"):
        title, _, rest = paragraph.strip().partition("\n")
        if title in {"Example:", "Examples:"}:
            lines = textwrap.dedent(rest).splitlines()
            yield "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])
        elif paragraph.strip():
            yield " ".join(paragraph.split())


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _flags(option: Any) -> str:
    takes_none = getattr(option, "is_flag", False) or getattr(option, "count", False)
    kind = "" if takes_none else f" {_metavar(option)}"
    names = [*(f"{name}{kind}" for name in option.opts), *option.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def _default(option: Any) -> str:
    shown = option.default
    if shown is None or callable(shown) or isinstance(shown, bool) or shown == []:
        return " Required." if option.required else ""
    return f" Default: `{shown}`."


def _python() -> str:
    parts = [
        "# Python",
        "`import boltgen` gives these names. Every error that boltgen raises on purpose is a "
        "`boltgen.BoltgenError`.",
        "## Functions",
    ]
    for name in _FUNCTIONS:
        parts += _described(f"boltgen.{name}", getattr(boltgen, name), _OPTIONS.get(name))
    for module in ("relax", "relay"):
        parts.append(f"## boltgen.{module}")
        parts += _of_module(module)
    parts.append("## Classes")
    for title, kind in (
        ("boltgen.Artifact", boltgen.Artifact),
        ("The session that Artifact.open returns", session.Session),
        ("boltgen.Session", boltgen.Session),
        ("boltgen.Database", boltgen.Database),
        ("boltgen.Arch", boltgen.Arch),
    ):
        parts += [f"### {title}", *_docstring(inspect.getdoc(kind))]
        for name, method in vars(kind).items():
            function = getattr(method, "__func__", method)
            if inspect.isfunction(function) and not name.startswith("_"):
                parts += _described(name, function, None, level="####")
    parts += ["## Errors", "\n".join(_errors())]
    return "\n\n".join(parts)


def _described(
    name: str, function: Any, options: Any = None, *, level: str = "###"
) -> Iterator[str]:
    signature = inspect.signature(function)
    hidden = {each.name for each in fields(options)} if options else set()
    kept = [p for p in signature.parameters.values() if p.name not in {*hidden, "self", "cls"}]
    text = _QUOTED.sub(r"\1\2", str(signature.replace(parameters=kept)))
    yield f"{level} {name}"
    yield f"```text\n{name.rpartition('.')[2]}{text}\n```"
    yield from _docstring(inspect.getdoc(function))
    if options:
        yield "It also takes these [options](options.md): " + ", ".join(sorted(hidden)) + "."


def _of_module(name: str) -> Iterator[str]:
    """Yield the public functions of `boltgen/NAME.py`, which is not imported: it needs its TVM."""
    tree = ast.parse((_PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    yield from _docstring(ast.get_docstring(tree))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"### boltgen.{name}.{node.name}"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            yield f"```text\n{node.name}({ast.unparse(node.args)}){returns}\n```"
            yield from _docstring(ast.get_docstring(node))


def _docstring(text: str | None) -> Iterator[str]:
    """Yield the paragraphs of a docstring; its sections become lists and examples code."""
    for paragraph in (text or "").split("\n\n"):
        title, _, rest = paragraph.strip().partition("\n")
        if title in {"Raises:", "Keyword arguments:", "Source:"} and rest:
            if title == "Keyword arguments:":
                continue  # they are options, which have a page
            yield title
            yield "\n".join(_items(textwrap.dedent(rest)))
        elif title == "Example:":
            yield f"```text\n{textwrap.dedent(rest)}\n```"
        elif paragraph.strip():
            yield " ".join(paragraph.split())


def _items(text: str) -> Iterator[str]:
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line.strip())
    for item in items:
        name, colon, said = item.partition(":")
        yield f"- `{name}`:{said}" if colon and name.isidentifier() else f"- {item}"


def _errors() -> Iterator[str]:
    tree = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.BoltgenError)
    }
    for name, kind in tree.items():
        yield f"- `{name}`: {' '.join((inspect.getdoc(kind) or '').split())}"


def _exit_codes() -> str:
    written = re.findall(r"^(\d+)\s+(\S.*)$", ending.__doc__ or "", re.MULTILINE)
    statuses = vars(ending).get("STATUSES", dict(written))
    rows = (f"| {code} | {said} |" for code, said in statuses.items())
    lines = ["| status | meaning |", "|---|---|", *rows]
    return "\n\n".join(
        [
            "# Exit codes",
            "\n".join(lines),
            "A file that a command writes appears whole or not at all. After status 70, a file in "
            "`reports/` of the cache folder describes the error: versions, command line, and "
            "traceback. Please report it.",
        ]
    )


def _environment() -> str:
    found: dict[str, str] = {}
    name = ""
    for line in (settings.__doc__ or "").splitlines():
        match = re.match(r"([A-Z][A-Z_.]+)\s\s+(\S.*)$", line)
        if match:
            name, found[match[1]] = match[1], match[2]
        elif name and line.startswith(" "):
            found[name] += f" {line.strip()}"
    lines = [f"- `{name}`: {_sentence(said)}" for name, said in found.items()]
    return "\n\n".join(
        [
            "# Environment variables",
            "\n".join(lines),
            "Only the owner can read the cache folder (mode 0700). You may delete it at any time.",
        ]
    )


def _architectures() -> str:
    head = [
        "| name | GPU | FP16 TFLOP/s, sums in FP32 | DRAM GB/s | L2 | mma.sync reaches |",
        "|---|---|---|---|---|---|",
    ]
    return "\n\n".join(
        [
            "# Architectures",
            "Give one of these names to `--arch`, or the name of a GPU: `A100`, `RTX 4090`. The "
            "figures are published ones of the GPU in the second column. `boltgen/arch.py` has the "
            "source of each figure and marks estimates.",
            "\n".join([*head, *_rows(ARCHES.values())]),
            "Kernels use the instruction `mma.sync`. The last column says which share of the "
            "peak it can reach. On sm_90a kernels of matmuls, convolutions and attention also use "
            "`wgmma` and TMA, if those are measured or predicted to be faster.",
        ]
    )


def _rows(arches: Iterable[Arch]) -> Iterator[str]:
    for arch in arches:
        yield (
            f"| {arch.name} | {arch.device} | {arch.tensor_f32_acc_tflops:g} | "
            f"{arch.dram_gb_per_s:g} | {arch.l2_bytes >> 20} MiB | {arch.mma_sync_fraction:.0%} |"
        )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, page in pages().items():
        (FOLDER / file).write_text(page, encoding="utf-8")
