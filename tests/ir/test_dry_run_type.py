"""A number type is a row: with one added to a copy of boltgen, every layer refuses it by name.

So does every layer that does not multiply refuse the floats of 8 bits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boltgen

ASKED = Path(__file__).with_name("refused_type.py")
PACKAGE = Path(boltgen.__file__).parent
# The most files that a number type in a dry run may change.
MOST_FILES = 12
NEW = "float8_e4m3fnuz"
MEMBER = '    F32 = "float32"\n'
ROW = """    "float8_e4m3fnuz": _Row(
        short="e4m3z",
        size_bytes=1,
        significand_bits=4,
        max_exponent=8,
        numpy=ml_dtypes.float8_e4m3fnuz,
        conversions={conversions},
        # No GPU of NVIDIA's multiplies it.
        accumulators={{"float32": (8, 9)}},
    ),
    "float32": _Row(
"""
CONVERSIONS = """Conversions(
            cutlass="cutlass::float_e4m3z_t",
            moved="boltgen::E4m3z",
            rounding="boltgen::round_to_e4m3z",
            adapter="kFloat8E4m3z",
            profiler=3,
        )"""


def add_row(package: Path, conversions: str) -> list[Path]:
    """Add the type to a copy of boltgen; returns the files that change."""
    changed = package / "ir" / "dtypes.py"
    text = changed.read_text(encoding="utf-8")
    for before, after in (
        ('    "float32": _Row(\n', ROW.format(conversions=conversions)),
        (MEMBER, f'    FNUZ = "float8_e4m3fnuz"\n{MEMBER}'),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    changed.write_text(text, encoding="utf-8")
    return [changed]


@pytest.mark.parametrize("kind", ["unconverted", "converted"])
def test_every_layer_refuses_a_new_type_by_name(kind: str, tmp_path: Path) -> None:
    copy = tmp_path / "boltgen"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "_resources"))
    changed = add_row(copy, CONVERSIONS if kind == "converted" else "None")
    assert len(changed) <= MOST_FILES
    ran = subprocess.run(
        [sys.executable, str(ASKED), kind, NEW],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) >= 12
    assert all(NEW in line for line in lines)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_all_but_matmuls_refuse_floats_of_eight_bits_by_name(name: str) -> None:
    command = [sys.executable, str(ASKED), "narrow", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) >= 20
