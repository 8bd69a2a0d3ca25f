"""The pages in docs/reference are what `docs/write_reference.py` makes of the code."""

from __future__ import annotations

import pytest

from docs.write_reference import FOLDER, pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / name
    if request.config.getoption("--update-golden"):
        path.write_text(PAGES[name], encoding="utf-8")
        return
    assert path.read_text(encoding="utf-8") == PAGES[name], "run python docs/write_reference.py"


def test_there_is_no_other_page() -> None:
    assert {path.name for path in FOLDER.iterdir()} == PAGES.keys()


def test_the_pages_have_what_the_code_has() -> None:
    assert "`calibrate`, `--calibrate FILE`" in PAGES["options.md"]
    assert "## boltgen db query" in PAGES["cli.md"]
    assert "### boltgen.relax.partition" in PAGES["python.md"]
    assert "| 70 |" in PAGES["exit-codes.md"]
    assert "`BOLTGEN_CACHE_DIR`" in PAGES["environment.md"]
    assert "| sm_90a |" in PAGES["architectures.md"]
