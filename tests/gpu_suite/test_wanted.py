"""What a whole bundle has, without compiling it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.items import Race, key_of, read_items, write_items
from benchmarks.gpu.paper import RATIOS
from benchmarks.gpu.predicted import predicted_items
from benchmarks.gpu.wanted import Wanted, full_items
from boltgen.arch import arch_named
from boltgen.space.library import Level


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    return Wanted(arch_named("sm_90"), Level.QUICK)


@pytest.fixture(scope="module")
def items(wanted: Wanted):
    return full_items(wanted)


def test_items_have_names_of_their_own(items):
    keys = [key_of(item) for item in items]
    assert len(set(keys)) == len(keys)
    assert all(key.count("/") == 1 for key in keys)  # a name is also a file's


def test_every_section_is_there(items):
    sections = {item.section for item in items}
    assert sections == {
        *("check", "gemm", "conv", "epilogue", "b2b", "padding", "copy", "tune"),
    }


def test_every_product_has_kernels_in_the_bundle(wanted: Wanted, items):
    for item in items:
        if isinstance(item, Race):
            assert item.product.choices
            assert all(choice.kernel in wanted.specs for choice in item.product.choices)


def test_every_ratio_of_the_papers_has_an_item(items):
    """But those of whole models, which are not in the suite yet."""
    keys = {key_of(item) for item in items}
    assert {key for key in RATIOS if not key.startswith("models/")} <= keys


def test_what_is_predicted_is_what_is_measured(items):
    predicted = predicted_items(arch_named("sm_90")).keys()
    keys = {key_of(item) for item in items}
    assert predicted <= keys
    raced = {"gemm", "conv", "epilogue", "b2b", "padding"}
    assert {key for key in keys if key.partition("/")[0] in raced} == predicted


def test_items_are_read_as_they_were_written(items, tmp_path: Path):
    write_items(tmp_path / "items.json", items)
    assert read_items(tmp_path / "items.json") == items
