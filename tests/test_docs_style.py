"""README and docs: links lead somewhere, and the text keeps the rules that a program can check."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Their text is written by programs, from docstrings and from test cases.
GENERATED = {
    DOCS / "contrib-operators.md",
    DOCS / "onnx-operators.md",
    DOCS / "torch-operators.md",
    *(DOCS / "reference").glob("*.md"),
}
READMES = ("README.md", "benchmarks/README.md", "profiler/README.md", "vgpu/README.md")
PAGES = [*(ROOT / name for name in READMES), *sorted(DOCS.rglob("*.md"))]
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
FORBIDDEN = re.compile(r"(?:^|[.:!?] |^[-*|>] )(What|Those|None|Of)\b", re.MULTILINE)
MOST_README_LINES = 80
MOST_CELL_WORDS = 15
MOST_SENTENCE_WORDS = 30


def prose(page: Path) -> str:
    """Return the Markdown of a page or notebook without its code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


def pages(*, written: bool = False) -> list[object]:
    """Return all pages and notebooks; with `written`, those that people write."""
    found = [*PAGES, *NOTEBOOKS]
    kept = [page for page in found if not (written and page in GENERATED)]
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in kept]


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "code", prose(page))):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_the_navigation_has_every_page() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"[\w/-]+\.(?:md|ipynb)$", config, re.MULTILINE)
    there = [page for page in (*PAGES, *NOTEBOOKS) if DOCS in page.parents]
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in there)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("page", pages(written=True))
def test_cells_of_tables_hold_facts(page: Path) -> None:
    rows = [line for line in prose(page).splitlines() if line.startswith("|")]
    for row in rows:
        for cell in row.strip("|").split(" | "):
            words = LINK.sub("link", cell).split()
            assert len(words) <= MOST_CELL_WORDS, cell


@pytest.mark.parametrize("page", pages(written=True))
def test_sentences_begin_with_a_subject_or_a_verb(page: Path) -> None:
    assert FORBIDDEN.findall(prose(page)) == []


@pytest.mark.parametrize("page", pages(written=True))
def test_sentences_are_short(page: Path) -> None:
    text = re.sub(r"^(?:\||    |#).*$", "", prose(page), flags=re.MULTILINE)
    text = re.sub(r"^(?:[-*]|\d+\.) ", "\n\n", LINK.sub("link", text), flags=re.MULTILINE)
    for paragraph in text.split("\n\n"):
        for sentence in re.split(r"(?<=[.!?:;]) ", " ".join(paragraph.split())):
            assert len(sentence.split()) <= MOST_SENTENCE_WORDS, sentence
