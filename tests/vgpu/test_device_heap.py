"""malloc and printf in kernels: what memcheck knows of blocks, the heap's limit, every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vgpu.cuda_programs import link, run


@pytest.fixture(scope="module")
def heap(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heap")
    return link("heap", library_folder / "libcudart.so.13", folder, arch="sm_80")


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        ("past", "is 0 bytes past the end of the 24-byte block that a kernel got from malloc"),
        ("before", "lies in the heap of malloc, before its first block"),
        ("freed", "lies in the 24-byte block that a kernel freed at byte 8"),
    ],
)
def test_blocks_are_known_one_by_one(
    heap: Path, library_folder: Path, misuse: str, said: str
) -> None:
    out, err = run(heap, library_folder, misuse)
    assert out == "cudaErrorIllegalAddress\n"
    assert "out-of-bounds global" in err
    assert said in err


def test_what_kernels_do_not_free_is_a_leak(heap: Path, library_folder: Path) -> None:
    out, err = run(heap, library_folder, "leaked", check="memcheck")
    assert out == "cudaSuccess\n"
    assert "leak: at the end 24 bytes in 1 of the blocks that kernels got from malloc" in err
    for intact in ("intact", "busy"):
        out, err = run(heap, library_folder, intact, check="memcheck,initcheck,racecheck")
        assert out.startswith("cudaSuccess")
        assert "malloc" not in err


def test_the_limit_of_the_heap(heap: Path, library_folder: Path) -> None:
    out, _ = run(heap, library_folder, "limits")
    assert out.splitlines() == [
        "cudaSuccess 8388608",
        "7 MiB: 1, 9 MiB: 0",
        "cudaErrorInvalidValue",
        "cudaSuccess",
        "9 MiB: 1 of 16777216",
        "8388608 after a reset",
    ]


def test_printf_formats_as_c_does(
    library_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("prints")
    program = link("prints", library_folder / "libcudart.so.13", folder, arch="sm_80")
    out, _ = run(program, library_folder)
    lanes = [f"{-t}|{t:5}|{t:<5}|{t:05}|{t:+}|{t: }|{t - 16}" for t in range(32)]
    real = 3.14159265
    single = [
        "4000000000|beef|BEEF|0xbeef|10|010|0000BEEF",
        "-1234567890123|18446744073709551615|10000000000|4|4464|44",
        f"{real:f}|{real:5.2f}|{real:<9.3f}|{real:+.1f}|{real:e}|{real:.3E}|3.14159|1E-09",
        "inf|-inf|0x1p+0|2",
        "ok|text|     right|left      |cu|%|100%",
        "0x1234|(nil)",
        "no arguments",
        "7".zfill(600),
    ]
    assert sorted(out.splitlines()) == sorted(lanes + single)
