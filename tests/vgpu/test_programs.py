"""Whole CUDA programs: ours for the API and its errors, and examples of CUTLASS."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cutlass_examples import EXAMPLES, build, fault_of, verify
from boltgen.build.cache import Cache
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import DeviceCode, TranslationUnit, device_code_flag
from boltgen.cli import app
from boltgen.errors import VgpuError
from boltgen.ir.key import digest
from boltgen.runtime.vgpu_program import run_program
from boltgen.settings import settings_from
from tests.vgpu.test_launches import fatbin

SOURCES = Path(__file__).with_name("programs")
# What compiles in seconds and runs in one; `make vgpu-examples` runs all.
QUICK_EXAMPLES = (
    "basic_gemm",
    "batched_gemm",
    "ampere_tensorop_conv2dfprop",
    "ampere_tf32_tensorop_gemm",
)


def link(name: str, runtime: Path, output: Path, *flags: str, arch: str = "sm_75") -> Path:
    """A program of `SOURCES` for `arch`, compiled with `flags` too, linked to the given runtime."""
    settings = settings_from()
    tools = find_toolchain(settings)
    unit = TranslationUnit(
        kind="example",
        name=name,
        text=(SOURCES / f"{name}.cu").read_text(encoding="utf-8"),
        suffix=".cu",
        output="program.o",
        compiler=tools.nvcc.path,
        flags=(
            *("-c", "-std=c++17", "-O2", "--no-compress"),
            *device_code_flag(arch, DeviceCode.PTX),
            *flags,
        ),
        include=(),
        machine_flags=("-ccbin", str(tools.cxx.path)),
        identity=tools.cuda_identity,
        environment=tools.environment,
    )
    (built,) = objects_or_raise(compile_all([unit], Cache(settings.cache_dir), jobs=1))
    program = output / name
    command = [str(tools.cxx.path), "-o", program, built.path, runtime, "-pthread"]
    subprocess.run(
        [*command, f"-Wl,-rpath-link,{runtime.parent}"], check=True, env=dict(tools.environment)
    )
    return program


@pytest.fixture(scope="module")
def faults(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    return link("faults", library_folder / "libcudart.so.13", folder)


def test_graphs_through_the_driver_and_events_in_graphs(
    library_folder: Path, tmp_path: Path
) -> None:
    program = link("driver_graphs", library_folder / "libcudart.so.13", tmp_path)
    assert printed(program, library_folder, "device=sm_75") == "passed\n"


@pytest.mark.parametrize("runtime", ["libcudart.so.12", "libcudart.so.13"])
def test_streams_events_graphs_and_threads(
    library_folder: Path, tmp_path: Path, runtime: str
) -> None:
    program = link("graphs", library_folder / runtime, tmp_path)
    assert printed(program, library_folder, "device=sm_75") == "passed\n"


def printed(program: Path, library_folder: Path, options: str, *arguments: str) -> str:
    """What a program that ends well says."""
    environment = {"LD_LIBRARY_PATH": str(library_folder), "BOLTGEN_VGPU": options}
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_graphs_built_of_nodes(library_folder: Path, tmp_path: Path) -> None:
    program = link("built_graphs", library_folder / "libcudart.so.13", tmp_path)
    assert printed(program, library_folder, "device=sm_75") == "passed\n"
    assert printed(program, library_folder, "device=sm_75,seed=3,check=all") == "passed\n"
    # In the order of their making, nodes with a missing dependency look right.
    assert printed(program, library_folder, "device=sm_75", "x") == "32 of 32 right\n"
    right = printed(program, library_folder, "device=sm_75,seed=1", "x").split()[0]
    assert 0 < int(right) < 32


@pytest.mark.parametrize("runtime", ["libcudart.so.12", "libcudart.so.13"])
def test_the_default_stream_of_a_thread(library_folder: Path, tmp_path: Path, runtime: str) -> None:
    flags = ("--default-stream", "per-thread")
    program = link("per_thread", library_folder / runtime, tmp_path, *flags)
    assert printed(program, library_folder, "device=sm_75") == "passed\n"


def said(program: Path, library_folder: Path, what: str) -> dict[str, tuple[str, str]]:
    """What CUDA answered to each thing that the program did: the error's name and its text."""
    done = run_program(
        [str(program), what],
        libraries=library_folder,
        options={"device": "sm_80"},
        settings=settings_from(),
        capture=True,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, tuple[str, str]] = {}
    for line in done.stdout.splitlines():
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


def complaints(program: Path, library_folder: Path, what: str) -> tuple[str, str]:
    """What the program prints under memcheck and initcheck, and what they say."""
    done = run_program(
        [str(program), what],
        libraries=library_folder,
        options={"check": "memcheck,initcheck"},
        settings=settings_from(),
        capture=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


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
    _, said = complaints(host_memory, library_folder, what)
    assert said.count("a result is computed from global memory that nothing wrote") == bool(reads)
    assert said.count("vgpu: ") == bool(reads), said


def test_a_reset_frees_everything_and_tells_of_leaks(
    host_memory: Path, library_folder: Path
) -> None:
    printed_text, said = complaints(host_memory, library_folder, "reset")
    assert printed_text.split() == ["cudaSuccess", "cudaErrorInvalidValue"]
    assert "leak: at the end the 128-byte allocation #2 has not been freed, nor have 1" in said
    assert said.count("leak") == 1


# --- boltgen vgpu run ----------------------------------------------------------------------------


def test_the_command_runs_a_program_and_passes_its_status_on(
    faults: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["vgpu", "run", "--device", "sm_89", "--threads", "1", "--", str(faults), "launches"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert "vgpu sm_89 (L40S)" in capfd.readouterr().out
    done = CliRunner().invoke(app, ["vgpu", "run", "--", "false"])
    assert done.exit_code == 1


def test_the_command_switches_checks_on(faults: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*checks: str) -> str:
        named = [word for check in checks for word in ("--check", check)]
        CliRunner().invoke(app, ["vgpu", "run", *named, "--", str(faults), "launches"])
        return capfd.readouterr().err

    assert "know memcheck" not in run("memcheck", "initcheck")
    assert "vgpu option check=typo: know memcheck, initcheck" in run("memcheck", "typo")


def test_the_command_says_what_it_cannot_run(
    library_folder: Path, tmp_path: Path, faults: Path
) -> None:
    def run(*command: str) -> None:
        run_program(command, libraries=library_folder, options={}, settings=settings_from())

    with pytest.raises(VgpuError, match="no_such_program: no such program"):
        run("no_such_program")
    static = tmp_path / "static"
    static.write_bytes(b"\x7fELF...__cudaRegisterFatBinary...")
    static.chmod(0o755)
    with pytest.raises(VgpuError, match="nvcc -cudart shared"):
        run(str(static))
    with pytest.raises(VgpuError, match="cannot be started: Exec format error"):
        static.write_bytes(b"\x7fELF...")
        run(str(static))


# --- programs that nobody here wrote -------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK_EXAMPLES)
def test_an_example_of_cutlass(library_folder: Path, tmp_path: Path, name: str) -> None:
    (example,) = (e for e in EXAMPLES if e.name == name)
    (program,) = build([example], jobs=1)
    # The batched one has no options for its size, and would take ten seconds under the checks.
    checks = "none" if name == "batched_gemm" else "initcheck,racecheck,synccheck,deadlock"
    verdict = verify(
        example,
        program,
        libraries=library_folder,
        folder=tmp_path,
        timeout_s=120,
        options={"check": checks},
    )
    assert not verdict.fault, verdict.output


# Two examples do something that a check is there for.
@pytest.mark.parametrize(
    ("name", "check", "finding"),
    [
        ("batched_gemm", "memcheck", "leak: at the end the 136-byte allocation"),
        (
            "fused_two_gemms_grouped_f16_sm80_rf",
            "initcheck",
            "read in kernel 'cutlass::reference::device::kernel::Gemm<...>'",
        ),
    ],
)
def test_a_mistake_in_an_example_of_cutlass(
    library_folder: Path, tmp_path: Path, name: str, check: str, finding: str
) -> None:
    (example,) = (e for e in EXAMPLES if e.name == name)
    if name.startswith("fused"):
        example = replace(example, arguments=("--problems=1", "--m=128", "--k=64"))
    (program,) = build([example], jobs=1)
    verdict = verify(
        example,
        program,
        libraries=library_folder,
        folder=tmp_path,
        timeout_s=120,
        options={"check": check},
    )
    assert finding in verdict.output
    assert verdict.output.count("vgpu: ") == 1, verdict.output
    assert verdict.fault == "the virtual GPU complains"


@pytest.mark.parametrize(
    ("status", "said", "fault"),
    [
        (0, "Passed.", ""),
        (0, "This example isn't supported on current architecture", "waived: it ends well without"),
        (0, "Passed\nPassed", "says 2 times that it passed, not 1"),
        (255, "Passed", "ends with status 255"),
    ],
)
def test_an_example_that_is_waived_has_not_passed(status: int, said: str, fault: str) -> None:
    done = subprocess.CompletedProcess(["x"], status, said, "")
    assert fault_of(EXAMPLES[0], done).startswith(fault)
    assert bool(fault_of(EXAMPLES[0], done)) == bool(fault)


# --- damaged input -------------------------------------------------------------------------------


def sanitized_harness(libraries: Path) -> Path:
    """`mutate.cpp` with the reading and lowering of PTX under sanitizers; the operations come from
    the library. Built once for each version of the sources."""
    settings = settings_from()
    tools = find_toolchain(settings)
    root = Path(__file__).parents[2] / "vgpu"
    fuzzed = [*sorted((root / "ptx").glob("*.cpp")), root / "core/fatbin.cpp"]
    sources = [SOURCES / "mutate.cpp", *fuzzed, root / "core/error.cpp"]
    headers = sorted(root.rglob("*.h"))
    contents = tuple(path.read_text(encoding="utf-8") for path in (*sources, *headers))

    def build(folder: Path) -> None:
        command = [
            *(str(tools.cxx.path), "-std=c++20", "-O1", "-fsanitize=address,undefined"),
            *("-fno-sanitize-recover=all", "-Wno-psabi", "-I", str(root)),
            *("-o", str(folder / "mutate"), *map(str, sources)),
            *("-L", str(libraries), "-lvgpu", f"-Wl,-rpath,{libraries}"),
        ]
        subprocess.run(command, check=True, env=dict(tools.environment))

    key = digest("fuzz", contents, tools.cxx.version, str(libraries))
    return Cache(settings.cache_dir).get_or_build("example", key, build).folder / "mutate"


def test_damaged_ptx_and_fatbins_are_refused_without_a_crash(
    library_folder: Path, tmp_path: Path
) -> None:
    harness = sanitized_harness(library_folder)
    seeds = ("seed.ptx", "instructions.ptx")
    for name in seeds:
        (tmp_path / name).write_bytes((SOURCES / name).read_bytes())
    ptx = (SOURCES / "seed.ptx").read_text(encoding="utf-8")
    (tmp_path / "seed.fatbin").write_bytes(fatbin((1, 75, ptx), (2, 80, "code"), (1, 80, ptx)))
    done = subprocess.run(
        [harness, "1", "8000", *seeds, "seed.fatbin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{tmp_path / 'last_input'}: {done.stderr}"
    inputs, taken = (int(part.split()[0]) for part in done.stdout.split(","))
    assert inputs == 8000
    assert 0 < taken < inputs
