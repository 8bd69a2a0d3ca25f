"""The constants' file: whole, within bounds, and each with an origin."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from boltgen.errors import RecordError
from boltgen.families.constants import (
    NAMES,
    PATH,
    ModelConstants,
    described,
    model_constants,
    values_of,
    write,
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
    assert model_constants() == values_of(constants)


def test_no_constant_claims_a_fit_without_its_measurements():
    # Fits are of recorded measurements, which lie in benchmarks/recorded.
    recorded = {path.name for path in PATH.parents[2].glob("benchmarks/recorded/**/*") if path}
    for name, constant in described().items():
        if constant.origin.startswith("fitted: "):
            datasets = constant.origin.removeprefix("fitted: ").partition(" (")[0].split(", ")
            assert set(datasets) <= recorded, name


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "constants.json"
    constants = described()
    constants["launch_us"] = replace(constants["launch_us"], value=3.25, origin="fitted: x (y), 9")
    write(constants, path)
    assert described(path) == constants


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
        described(path)
    with pytest.raises(RecordError, match="has no model constants"):
        described(tmp_path / "absent.json")
