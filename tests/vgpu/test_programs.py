"""Whole CUDA programs of ours, for the API and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vgpu.cuda_programs import SOURCES, link, run


@pytest.fixture(scope="module")
def faults(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    return link("faults", library_folder / "libcudart.so.13", folder)


def test_graphs_through_the_driver_and_events_in_graphs(
    library_folder: Path, tmp_path: Path
) -> None:
    program = link("driver_graphs", library_folder / "libcudart.so.13", tmp_path)
    assert run(program, library_folder, device="sm_75")[0] == "passed\n"


@pytest.mark.parametrize("runtime", ["libcudart.so.12", "libcudart.so.13"])
def test_streams_events_graphs_and_threads(
    library_folder: Path, tmp_path: Path, runtime: str
) -> None:
    program = link("graphs", library_folder / runtime, tmp_path)
    assert run(program, library_folder, device="sm_75")[0] == "passed\n"


def test_graphs_built_of_nodes(library_folder: Path, tmp_path: Path) -> None:
    program = link("built_graphs", library_folder / "libcudart.so.13", tmp_path)
    assert run(program, library_folder, device="sm_75")[0] == "passed\n"
    out, _ = run(program, library_folder, device="sm_75", seed="3", check="all")
    assert out == "passed\n"
    # In the order of their making, nodes with a missing dependency look right.
    assert run(program, library_folder, "x", device="sm_75")[0] == "32 of 32 right\n"
    out, _ = run(program, library_folder, "x", device="sm_75", seed="1")
    assert 0 < int(out.split()[0]) < 32


@pytest.mark.parametrize("runtime", ["libcudart.so.12", "libcudart.so.13"])
def test_the_default_stream_of_a_thread(library_folder: Path, tmp_path: Path, runtime: str) -> None:
    flags = ("--default-stream", "per-thread")
    program = link("per_thread", library_folder / runtime, tmp_path, *flags)
    assert run(program, library_folder, device="sm_75")[0] == "passed\n"


def said(program: Path, library_folder: Path, what: str) -> dict[str, tuple[str, str]]:
    """What CUDA answered to each thing that the program did: the error's name and its text."""
    out, _ = run(program, library_folder, what, device="sm_80")
    answers: dict[str, tuple[str, str]] = {}
    for line in out.splitlines():
        if line.startswith("  "):
            name = list(answers)[-1]
            answers[name] = (answers[name][0], line.strip())
        else:
            name, _, error = line.partition(": ")
            answers[name] = (error.removeprefix("cudaError"), "")
    return answers


def test_a_fault_shows_when_the_host_waits_and_stays(faults: Path, library_folder: Path) -> None:
    answers = said(faults, library_folder, "fault")
    names = {name: error for name, (error, _) in answers.items()}
    assert names == {
        "after the launch": "cudaSuccess",
        "once more": "cudaSuccess",
        "synchronised": "IllegalAddress",
        "last": "IllegalAddress",
        "sticky": "IllegalAddress",
        "malloc": "IllegalAddress",
        "launch": "IllegalAddress",
        "reset": "cudaSuccess",
        "free": "cudaSuccess",
    }
    assert "out-of-bounds global write of 4 bytes in kernel 'store'" in answers["synchronised"][1]


def test_the_driver_resets_as_the_runtime_does(faults: Path, library_folder: Path) -> None:
    answers = said(faults, library_folder, "driver's reset")
    assert {name: error for name, (error, _) in answers.items()} == {
        "limit": "cudaSuccess",
        "synchronised": "IllegalAddress",
        "reset": "cudaSuccess",
        "ask": "cudaSuccess",
        "stack": "1024",
        "what was allocated": "InvalidValue",
        "malloc": "cudaSuccess",
        "again": "cudaSuccess",
    }


def test_a_fault_names_the_line_of_cuda(library_folder: Path, tmp_path: Path) -> None:
    program = link("faults", library_folder / "libcudart.so.13", tmp_path, "-lineinfo")
    text = said(program, library_folder, "fault")["synchronised"][1]
    lines = (SOURCES / "faults.cu").read_text(encoding="utf-8").splitlines()
    (number,) = (k for k, line in enumerate(lines, 1) if "void store(" in line)
    assert f"faults.cu:{number}, PTX line" in text


@pytest.mark.parametrize("what", ["host pointer", "null pointer"])
def test_pointers_that_kernels_cannot_use(faults: Path, library_folder: Path, what: str) -> None:
    error, text = said(faults, library_folder, what)["synchronised"]
    assert error == "IllegalAddress"
    assert "in no allocation (host memory that is not registered" in text


def test_freed_memory(faults: Path, library_folder: Path) -> None:
    answers = said(faults, library_folder, "freed")
    assert answers["free"][0] == answers["copy"][0] == "InvalidValue"
    assert "freed already" in answers["free"][1]
    assert "4096-byte freed allocation #1" in answers["copy"][1]
    assert "4096-byte freed allocation #1" in answers["synchronised"][1]


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("host as device", "InvalidValue", "is host memory, or freed"),
        ("device as host", "InvalidValue", "is device memory; the call says it is the host's"),
        ("too long", "InvalidValue", "4096 bytes before the end of the 4096-byte allocation #1"),
        ("null", "InvalidValue", "copy, destination: null pointer"),
        ("wild", "InvalidValue", "from 0x40 to"),
        ("direction", "InvalidMemcpyDirection", "direction 9 is not defined"),
        ("pitch", "InvalidPitchValue", "rows of 8 bytes lie 4 bytes apart"),
        ("memset of the host's", "InvalidValue", "is host memory"),
        ("foreign free", "InvalidValue", "no start of an allocation"),
        ("inside free", "InvalidValue", "no start of an allocation"),
        ("symbol", "InvalidValue", "bytes 4 to 20 of a variable of 16 bytes"),
        ("no symbol", "InvalidSymbol", "no registered device variable"),
        ("fine", "cudaSuccess", ""),
    ],
)
def test_copies(faults: Path, library_folder: Path, what: str, error: str, text: str) -> None:
    answer = said(faults, library_folder, "copies")[what]
    assert answer[0] == error
    assert text in answer[1]


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("block", "InvalidConfiguration", "block (2048,1,1) is larger than"),
        ("empty", "InvalidConfiguration", "a dimension is zero"),
        ("grid", "InvalidConfiguration", "grid (1,70000,1) is larger than"),
        ("bounds", "InvalidValue", "more threads than the kernel's __launch_bounds__ 64"),
        ("shared", "InvalidValue", "must be asked for with cudaFuncSetAttribute"),
        ("opt in", "cudaSuccess", ""),
        ("too much shared", "InvalidValue", "409600 bytes of shared memory a block"),
        ("registers", "LaunchOutOfResources", "registers are alive at once, in 1024 threads"),
        ("fewer", "cudaSuccess", ""),
        ("stream", "InvalidResourceHandle", "none that is alive"),
        ("function", "InvalidDeviceFunction", "no registered kernel"),
        ("device", "InvalidDevice", "there is one device, number 0"),
        ("memory", "MemoryAllocation", "no room for"),
        ("still alive", "cudaSuccess", ""),
    ],
)
def test_launches(faults: Path, library_folder: Path, what: str, error: str, text: str) -> None:
    answer = said(faults, library_folder, "launches")[what]
    assert answer[0] == error
    assert text in answer[1]


@pytest.fixture(scope="module")
def host_memory(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host_memory")
    return link("host_memory", library_folder / "libcudart.so.13", folder)


CHECKED = "memcheck,initcheck"


@pytest.mark.parametrize(
    ("what", "reads"),
    [
        ("managed", ""),
        ("managed, minus one", ""),
        ("managed, half of it", "of the 128-byte allocation"),
        ("pinned", ""),
        ("pinned, nothing of it", "lies in the 128-byte allocation"),
        ("device, to pinned", "lies in the 128-byte allocation"),
        ("in place", "lies in the 128-byte allocation"),
    ],
)
def test_memory_that_the_host_stores_to(
    host_memory: Path, library_folder: Path, what: str, reads: str
) -> None:
    _, said = run(host_memory, library_folder, what, check=CHECKED)
    assert said.count("a result is computed from global memory that nothing wrote") == bool(reads)
    assert said.count("vgpu: ") == bool(reads), said


def test_a_reset_frees_everything_and_tells_of_leaks(
    host_memory: Path, library_folder: Path
) -> None:
    out, said = run(host_memory, library_folder, "reset", check=CHECKED)
    assert out.split() == ["cudaSuccess", "cudaErrorInvalidValue"]
    assert "leak: at the end the 128-byte allocation #2 has not been freed, nor have 1" in said
    assert said.count("leak") == 1
