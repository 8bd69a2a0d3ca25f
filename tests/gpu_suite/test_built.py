"""The suite's builder keeps no kernel that boltgen would not ship."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from benchmarks.gpu.building import Builder
from benchmarks.gpu.items import KERNELS, SOURCES
from boltgen.build.cache import Cache
from tests.build.fakes import SUCCEED, fake_toolchain

REPORT = """
echo "ptxas info    : Compiling entry function 'boltgen_k_device' for 'sm_80'"
echo "    SPILLS bytes stack frame, SPILLS bytes spill stores, 0 bytes spill loads"
echo "ptxas info    : Used 255 registers, used 1 barriers"
"""


@pytest.mark.parametrize(
    ("spills", "fault", "said"),
    [
        ("0", "", ""),
        ("96", "", "boltgen ships no such kernel: it spills registers: 96 bytes"),
        ("0", "boltgen ships no such kernel: it was carried", "it was carried"),
    ],
    ids=["sound", "compiled there", "known before"],
)
def test_a_kernel_that_spills_is_not_measured(
    tmp_path: Path, spills: str, fault: str, said: str
) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    source = {
        "name": "boltgen_k",
        "text": "k",
        "is_recorded": False,
        "is_ours": True,
        "fault": fault,
    }
    (bundle / SOURCES.format(arch="sm_80")).write_bytes(
        lzma.compress(json.dumps({"boltgen_k": source}).encode())
    )
    (bundle / KERNELS.format(arch="sm_80")).write_text("{}")
    builder = Builder(
        bundle=bundle,
        work=tmp_path / "work",
        manifest={"arch": "sm_80"},
        tools=fake_toolchain(tmp_path / "toolkit", SUCCEED + REPORT.replace("SPILLS", spills)),
        cache=Cache(tmp_path / "cache"),
        jobs=1,
    )
    builder.build("boltgen_k")
    built = builder.state.find("boltgen_k")
    assert built is not None
    assert said in built.error
    assert bool(built.path) == (not said)
