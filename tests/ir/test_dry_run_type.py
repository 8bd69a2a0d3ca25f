"""A number type is a row: with E4M3 added to a copy of boltgen, every layer refuses it by name."""

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
MEMBER = '    F32 = "float32"\n'
ROW = """    "float8_e4m3fn": _Row(
        short="e4m3",
        size_bytes=1,
        significand_bits=4,
        max_exponent=8,
        numpy=ml_dtypes.float8_e4m3fn,
        conversions={conversions},
        # PTX ISA, mma.sync: m16n8k32 of E4M3, with FP32 accumulators, from sm_89.
        accumulators={{"float32": (8, 9)}},
    ),
    "float32": _Row(
"""
CONVERSIONS = """Conversions(
            cutlass="cutlass::float_e4m3_t",
            moved="boltgen::E4m3",
            rounding="boltgen::round_to_e4m3",
            adapter="kFloat8E4m3",
            profiler=3,
        )"""


def add_row(package: Path, conversions: str) -> list[Path]:
    """Add the type to a copy of boltgen; returns the files that change."""
    changed = package / "ir" / "dtypes.py"
    text = changed.read_text(encoding="utf-8")
    for before, after in (
        ('    "float32": _Row(\n', ROW.format(conversions=conversions)),
        (MEMBER, f'    E4M3 = "float8_e4m3fn"\n{MEMBER}'),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    changed.write_text(text, encoding="utf-8")
    return [changed]


@pytest.mark.parametrize("kind", ["unconverted", "converted"])
def test_every_layer_refuses_e4m3_by_name(kind: str, tmp_path: Path) -> None:
    copy = tmp_path / "boltgen"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "_resources"))
    changed = add_row(copy, CONVERSIONS if kind == "converted" else "None")
    assert len(changed) <= MOST_FILES
    ran = subprocess.run(
        [sys.executable, str(ASKED), kind],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) >= 12
    assert all("float8_e4m3fn" in line for line in lines)
