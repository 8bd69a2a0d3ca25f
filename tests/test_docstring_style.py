"""Docstrings of boltgen begin with a verb or name the thing, and name nouns again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "boltgen"
TOP = "top-level modules"
PACKAGES = (TOP, *sorted(each.parent.name for each in ROOT.glob("*/__init__.py")))
FORBIDDEN = re.compile(r"(?:What|Those|None|Of|How|Where)\b")
THOSE = re.compile(r"\bthose\b", re.IGNORECASE)
# The largest share of docstrings with a forbidden beginning, and of "those" in 1,000 words.
MOST = (0.02, 0.5)


def first_paragraphs(text: str) -> Iterator[str]:
    """Yield the first paragraph of each docstring in a module's source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield docstring.split("\n\n")[0]


def violations(paragraphs: list[str], limits: tuple[float, float]) -> list[str]:
    """Return the paragraphs that break a rule, if more of them do than the limits allow."""
    begin_hard = [each for each in paragraphs if FORBIDDEN.match(each)]
    with_those = [each for each in paragraphs if THOSE.search(each)]
    words = sum(len(each.split()) for each in paragraphs)
    count = sum(len(THOSE.findall(each)) for each in paragraphs)
    found = []
    if len(begin_hard) > limits[0] * len(paragraphs):
        found += begin_hard
    if 1000 * count > limits[1] * words:
        found += with_those
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_say_what_they_name(package: str) -> None:
    modules = ROOT.glob("*.py") if package == TOP else (ROOT / package).rglob("*.py")
    paragraphs = [each for path in modules for each in first_paragraphs(path.read_text("utf-8"))]
    assert violations(paragraphs, MOST) == []


def test_a_hard_beginning_is_found() -> None:
    hard = 'class A:\n    """What it is."""\n\ndef f():\n    """Of a graph.\n\n    More.\n    """\n'
    assert list(first_paragraphs(hard)) == ["What it is.", "Of a graph."]
    assert violations(["What it is.", "Return it."], MOST) == ["What it is."]
    assert violations(["Return those.", "Return it."], MOST) == ["Return those."]
    assert violations(["Return it.", "Whatever is given."], MOST) == []
