"""Launches with attributes: clusters, what they may not be, and early starts of kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vgpu.cuda_programs import link, run


@pytest.fixture(scope="module", params=["libcudart.so.12", "libcudart.so.13"])
def program(
    library_folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    folder = tmp_path_factory.mktemp("clusters")
    return link("clusters", library_folder / request.param, folder, arch="sm_90")


@pytest.mark.parametrize("check", ["none", "all"])
def test_clusters_and_early_starts(program: Path, library_folder: Path, check: str) -> None:
    out, errors = run(program, library_folder, device="sm_90", check=check)
    lines = out.splitlines()
    assert lines[-1] == "passed"
    assert "finding" not in errors
    counts = {line.partition(":")[0]: line.partition(":")[2] for line in lines[:-1]}
    assert "largest 8" in lines
    # 132 multiprocessors, two blocks of 1024 threads on each; fewer in groups that hold a cluster.
    assert int(counts["clusters of 1"]) == 264
    assert int(counts["clusters of 2"]) == 132
    assert 0 < int(counts["clusters of 16"]) <= 16 < int(counts["clusters of 8"]) <= 33


def test_what_cannot_be_launched(program: Path, library_folder: Path) -> None:
    out, _ = run(program, library_folder, "wrong", device="sm_90")
    lines = out.splitlines()
    said = {
        line.partition(": ")[0]: (line.partition(": ")[2], text.strip())
        for line, text in zip(lines[::2], lines[1::2], strict=True)
    }
    invalid, size = "9 cudaErrorInvalidConfiguration", "912 cudaErrorInvalidClusterSize"
    expected = {
        "no multiple": (invalid, "the grid (10,1,1) is no multiple of a cluster of (4,1,1)"),
        "nine": (size, "16 with cudaFuncAttributeNonPortableClusterSizeAllowed"),
        "two": ("0 cudaSuccess", ""),
        "another size": (size, "the kernel was compiled for (4,1,1)"),
        "no multiple of its own": (invalid, "is no multiple of a cluster of (4,1,1)"),
        "seventeen": (size, "16 are allowed"),
        "occupancy of nine": (size, "the kernel was compiled for (4,1,1)"),
    }
    assert said.keys() == expected.keys()
    for name, (code, text) in expected.items():
        assert said[name][0] == code, name
        assert text in said[name][1], name


def test_a_device_without_clusters(library_folder: Path, tmp_path: Path) -> None:
    """Built for sm_80, as the attribute is asked for while the program runs."""
    program = link("clusters", library_folder / "libcudart.so.13", tmp_path, arch="sm_80")
    out, _ = run(program, library_folder, "wrong", device="sm_80")
    lines = out.splitlines()
    k = lines.index("two: 801 cudaErrorNotSupported")
    assert "has no clusters (sm_90 has)" in lines[k + 1]
