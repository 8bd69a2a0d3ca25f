"""Options and fixtures that all tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_GOLDEN = _TESTS / "golden"
# Folders whose files share a fixture that takes minutes.
_OF_ONE_PROCESS = {"gpu_suite"}


@pytest.fixture(scope="session", autouse=True)
def _no_measurements_of_the_user() -> Iterator[None]:
    """Kernels are chosen the same for whoever runs the tests; child processes included."""
    with tempfile.TemporaryDirectory(prefix="boltgen-data-") as folder:
        os.environ["BOLTGEN_DATA_DIR"] = folder
        yield
        del os.environ["BOLTGEN_DATA_DIR"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files in tests/golden anew instead of comparing with them",
    )


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes run the tests, those of a file run in one, which has its fixtures."""
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        parts = item.path.relative_to(_TESTS).parts
        group = parts[0] if parts[0] in _OF_ONE_PROCESS else "/".join(parts)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with the file `tests/golden/<name>`."""

    def check(name: str, text: str) -> None:
        path = _GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read it"
        assert text == path.read_text(), f"{name} changed: read the diff, then --update-golden"

    return check
