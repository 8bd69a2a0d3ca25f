"""The versions that the tests have: of every requirement, in its range, for the oldest Python."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "pyproject.toml").read_text()
OLDEST = re.search(r'^requires-python = ">=([\d.]+)"', TEXT, re.MULTILINE)[1]


def pins(name: str) -> list[Requirement]:
    return [*map(Requirement, (ROOT / "constraints" / f"{name}.txt").read_text().splitlines())]


def test_what_is_pinned_is_for_the_oldest_python() -> None:
    """As far as it is installed here: a bundle for GPU machines has some of it, too."""
    seen, wrong = set(), {}
    for pin in pins("tests"):
        if pin.marker and not pin.marker.evaluate({"python_version": OLDEST}):
            continue
        try:
            found = metadata(pin.name)
        except PackageNotFoundError:
            continue
        if pin.specifier.contains(found["Version"]):
            seen.add(pin.name)
            wanted = Requirement(f"python{found.get('Requires-Python', '')}").specifier
            if not wanted.contains(OLDEST):
                wrong[pin.name] = str(wanted)
    assert wrong == {}
    assert {"nvidia-cutlass", "jinja2", "rich"} <= seen


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("tests", ("relax", "onnx", "torch", "demo", "sign", "learned", "metaschedule", "dev")),
        ("serve", ("relax", "onnx", "serve")),
    ],
)
def test_the_tests_have_one_version_of_every_requirement(name: str, kept: tuple[str, ...]) -> None:
    toml = pytest.importorskip("tomllib").loads(TEXT)["project"]
    extras = toml["optional-dependencies"]
    texts = [*toml["dependencies"], *(text for extra in kept for text in extras[extra])]
    versions = {pin.name: str(pin.specifier)[2:] for pin in pins(name)}
    assert len(versions) == len(pins(name))
    for wanted in map(Requirement, texts):
        version = versions[wanted.name.replace("_", "-")]
        assert wanted.specifier.contains(version), (wanted, version)
