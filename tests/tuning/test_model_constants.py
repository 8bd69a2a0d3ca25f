"""The constants' file: whole, within bounds, and each with an origin."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from benchmarks.fit_cost_model import write
from boltgen.errors import RecordError
from boltgen.families.constants import (
    NAMES,
    PATH,
    ModelConstants,
    described,
    shared_constants,
    values_of,
)


def test_every_constant_has_a_unit_a_meaning_and_an_origin():
    constants = described()
    assert tuple(constants) == NAMES == tuple(field.name for field in fields(ModelConstants))
    for name, constant in constants.items():
        assert constant.unit, name
        assert constant.meaning, name
        assert constant.origin.startswith(("source: ", "fitted: ", "estimate, not yet fitted")), (
            name
        )
        assert constant.low < constant.high, name
    assert shared_constants() == values_of(constants)


def test_an_architecture_that_was_measured_has_values_of_its_own(tmp_path):
    path = tmp_path / "constants.json"
    path.write_text(PATH.read_text())
    own = replace(described(path=path)["launch_us"], value=0.75, origin="fitted: x (y), 9")
    write(described(path=path) | {"launch_us": own}, "sm_80", path)
    assert described("sm_80", path)["launch_us"] == own
    assert json.loads(path.read_text())["arches"]["sm_80"] == {
        "launch_us": {"value": 0.75, "origin": "fitted: x (y), 9"}
    }
    assert described("sm_75", path) == described(path=path)
    path.write_text(
        path.read_text().replace('"launch_us": {\n        "value"', '"x": {\n        "value"')
    )
    with pytest.raises(RecordError, match="has no model constants: 'x'"):
        described("sm_80", path)


def test_no_constant_claims_a_fit_without_its_measurements():
    # Fits are of recorded measurements, our own or published ones.
    folders = ("benchmarks/recorded", "benchmarks/data")
    recorded = {path.name for f in folders for path in (PATH.parents[2] / f).glob("**/*")}
    arches = ("", *json.loads(PATH.read_text())["arches"])
    for name, constant in (each for arch in arches for each in described(arch).items()):
        if constant.origin.startswith("fitted: "):
            datasets = constant.origin.removeprefix("fitted: ").partition(" (")[0].split(", ")
            assert set(datasets) <= recorded, name


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "constants.json"
    path.write_text(PATH.read_text())
    constants = described()
    constants["launch_us"] = replace(constants["launch_us"], value=3.25, origin="fitted: x (y), 9")
    write(constants, path=path)
    assert described(path=path) == constants


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda form: form.update(format="other"), "format 'other'"),
        (lambda form: form["constants"].pop("launch_us"), "missing or unknown.*launch_us"),
        (lambda form: form["constants"]["launch_us"].update(value=99.0), "launch_us = 99.0 is not"),
        (lambda form: form["constants"]["launch_us"].pop("unit"), "has no model constants"),
        (lambda form: form.pop("constants"), "has no model constants"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, message):
    form = json.loads(PATH.read_text())
    change(form)
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(form))
    with pytest.raises(RecordError, match=message):
        described(path=path)
    with pytest.raises(RecordError, match="has no model constants"):
        described(path=tmp_path / "absent.json")
