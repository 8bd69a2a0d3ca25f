"""What pyproject.toml pins can be installed on the oldest Python that it names."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement

TEXT = (Path(__file__).parent.parent / "pyproject.toml").read_text()
OLDEST = re.search(r'^requires-python = ">=([\d.]+)"', TEXT, re.MULTILINE)[1]
PINS = [Requirement(text) for text in re.findall(r'"([\w.-]+==[^"]+)"', TEXT)]


def test_what_is_pinned_is_for_the_oldest_python():
    """As far as it is installed here: a bundle for GPU machines has some of it, too."""
    seen, wrong = set(), {}
    for pin in PINS:
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
