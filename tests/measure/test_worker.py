"""A real worker on the virtual GPU, and candidates that are wrong in every way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boltgen.build.cache import Cache
from boltgen.build.link import linked
from boltgen.build.nvcc.headers import included_digest
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.profiler import profiler_library
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.codegen.nvcc import DeviceCode, device_flags
from boltgen.errors import DeviceError
from boltgen.ir.kernel import Launch
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceKind, Failure, Fault, Timing
from boltgen.measure.channel import local_worker
from boltgen.measure.client import WORKER, Worker
from boltgen.measure.protocol import Policy, Request, Setup
from boltgen.measure.worker import fault_of
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.measure.failures import assert_failed

SETTINGS = settings_from()
SMALL = Gemm(m=20, n=40, k=9)
# The pretence that times of the virtual GPU were measured: the way of a GPU, with few repeats.
MEASURED = Policy(
    least_samples=2, most_samples=3, most_s=5.0, warm_up_us=1.0, cold_start_us=1.0, sample_us=1e6
)


@pytest.fixture(scope="module")
def tools():
    return find_toolchain(SETTINGS)


@pytest.fixture(scope="module")
def cache():
    return Cache(SETTINGS.cache_dir)


@pytest.fixture(scope="module")
def candidates(tools, cache) -> Path:
    text = Path(__file__).with_name("candidates.cu").read_text(encoding="utf-8")
    unit = TranslationUnit(
        kind="example",
        name="candidates",
        text=text,
        suffix=".cu",
        output="kernel.o",
        compiler=tools.nvcc.path,
        flags=("-c", *device_flags("sm_75", DeviceCode.PTX), "-Xcompiler=-fPIC"),
        include=(tools.templates,),
        machine_flags=("-ccbin", str(tools.cxx.path)),
        identity=digest(tools.cuda_identity, included_digest(text, tools.templates)),
        environment=tools.environment,
    )
    (compiled,) = objects_or_raise(compile_all([unit], cache, jobs=1))
    return linked(compiled, cache, tools)


def start(tools, cache, policy=Policy(modelled=True), budget_bytes=1 << 24, ordinal=0) -> Worker:  # noqa: B008 (frozen)
    libraries = vgpu_libraries(SETTINGS, cache)
    return Worker(
        Setup(
            ordinal=ordinal,
            profiler=str(profiler_library(tools, cache)),
            runtime=str(tools.nvcc.runtime),
            policy=policy,
            budget_bytes=budget_bytes,
        ),
        local_worker(
            WORKER, vgpu_environment(SETTINGS, libraries, {"device": "sm_80", "threads": "1"})
        ),
    )


@pytest.fixture(scope="module")
def modelled(tools, cache):
    worker = start(tools, cache)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def measured(tools, cache):
    scratch_bytes = 2 * 40 << 20
    worker = start(tools, cache, MEASURED, budget_bytes=scratch_bytes + (1 << 24))
    yield worker
    worker.close()


def ask(worker, candidates, symbol, problem=SMALL, timeout_s=60.0):
    launch = Launch(struct="boltgen_gemm_args", sizes=problem.sizes)
    request = Request(
        library=str(candidates), symbol=symbol, workload=Workload.of(problem), launch=launch
    )
    return worker.measure(request, timeout_s)


def test_the_worker_names_its_device(modelled):
    found = modelled.greeting
    assert found.device.kind is DeviceKind.VGPU
    assert (found.device.arch, found.device.sm_count, found.device.clock_mhz) == (
        "sm_80",
        108,
        1410,
    )
    assert found.uuid.startswith("GPU-")
    assert not found.reads_clock


def test_a_right_kernel_has_a_modelled_time(modelled, candidates):
    timing = ask(modelled, candidates, "right")
    assert isinstance(timing, Timing)
    assert timing.median_us > 0
    assert (timing.repeats, timing.launches) == (1, 1)


def test_a_right_kernel_has_a_measured_time_from_samples_in_a_graph(measured, candidates):
    timing = ask(measured, candidates, "right")
    assert isinstance(timing, Timing)
    assert 0 < timing.low_us <= timing.median_us <= timing.high_us
    assert 2 <= timing.repeats <= 3
    assert timing.launches > 1


WRONG = {
    "wrong_element": (Fault.WRONG_RESULT, "1 elements of Gemm(m=20, n=40, k=9"),
    "last_row_missing": (Fault.NOT_FINITE, "40 elements of Gemm(m=20, n=40, k=9"),
    "not_a_number": (Fault.NOT_FINITE, "of which 1 are NaN; the first is number 44: nan"),
    "illegal_access": (Fault.ILLEGAL_ACCESS, "out-of-bounds global write"),
    "crashes": (Fault.CRASH, "SIGABRT"),
    "refuses": (Fault.LAUNCH, "k is 9; this kernel needs a multiple of 8 elements"),
    "greedy": (Fault.OUT_OF_MEMORY, "wants a workspace of 1152921504606846976 bytes"),
    "no_such_symbol": (Fault.LAUNCH, "the kernel cannot be loaded"),
}


@pytest.mark.parametrize("symbol", WRONG)
def test_a_bad_candidate_fails_by_name_and_the_next_one_is_measured(modelled, candidates, symbol):
    fault, words = WRONG[symbol]
    assert_failed(ask(modelled, candidates, symbol), fault, words)
    assert isinstance(ask(modelled, candidates, "right"), Timing)


def test_a_kernel_that_hangs_is_ended(modelled, candidates):
    outcome = ask(modelled, candidates, "hangs", timeout_s=3.0)
    assert isinstance(outcome, Failure)
    assert (outcome.fault, outcome.reason) == (Fault.TIMEOUT, "no answer within 3 s")
    assert isinstance(ask(modelled, candidates, "right"), Timing)


def test_a_kernel_that_is_right_only_once_does_not_win(measured, candidates):
    outcome = ask(measured, candidates, "right_once")
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.WRONG_RESULT


def test_what_a_library_prints_is_no_answer(modelled, candidates):
    assert isinstance(ask(modelled, candidates, "prints"), Timing)


def test_a_problem_that_is_too_large_for_the_budget(modelled, candidates):
    outcome = ask(modelled, candidates, "right", Gemm(m=1 << 14, n=1 << 14, k=8))
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.OUT_OF_MEMORY
    assert "the worker may use 16777216" in outcome.reason
    assert isinstance(ask(modelled, candidates, "right"), Timing)


def test_a_device_that_is_not_there(tools, cache):
    with pytest.raises(DeviceError, match=r"the device cannot be used: cudaSetDevice.*\(101\)"):
        start(tools, cache, ordinal=7)


def test_a_worker_that_is_killed_is_started_again(modelled, candidates):
    """A single death may be somebody else's doing: the candidate is asked for once more."""
    killed = modelled.process_id
    os.kill(killed, 9)
    assert isinstance(ask(modelled, candidates, "right"), Timing)
    assert modelled.process_id != killed


def test_a_worker_ends_with_its_session_even_while_a_kernel_hangs(candidates):
    script = (
        "from pathlib import Path\n"
        "from boltgen.build.cache import Cache\n"
        "from boltgen.build.toolchain import find_toolchain\n"
        "from tests.measure.test_worker import SETTINGS, ask, start\n"
        "worker = start(find_toolchain(SETTINGS), Cache(SETTINGS.cache_dir))\n"
        "print(worker.process_id, flush=True)\n"
        f"ask(worker, {str(candidates)!r}, 'hangs')\n"
    )
    root = Path(__file__).resolve().parent.parent.parent
    session = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
    )
    assert session.stdout is not None
    worker = int(session.stdout.readline())
    time.sleep(0.5)  # it hangs now; if not yet, the test is merely easier
    session.kill()
    session.wait()
    session.stdout.close()
    deadline = time.monotonic() + 30.0
    while Path(f"/proc/{worker}").exists() and not _is_zombie(worker):
        assert time.monotonic() < deadline, f"worker {worker} has outlived its session"
        time.sleep(0.05)


def _is_zombie(process: int) -> bool:
    """Whether it has ended and nobody has asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (1, Fault.LAUNCH),  # cudaErrorInvalidValue
        (2, Fault.OUT_OF_MEMORY),
        (100, Fault.DEVICE_LOST),  # cudaErrorNoDevice
        (214, Fault.DEVICE_LOST),  # cudaErrorECCUncorrectable
        (700, Fault.ILLEGAL_ACCESS),
        (701, Fault.LAUNCH),  # cudaErrorLaunchOutOfResources
        (702, Fault.TIMEOUT),
        (716, Fault.ILLEGAL_ACCESS),  # cudaErrorMisalignedAddress
        (719, Fault.ILLEGAL_ACCESS),  # cudaErrorLaunchFailure
        (999, Fault.DEVICE_LOST),
    ],
)
def test_what_cudas_errors_say_of_a_candidate(number, fault):
    assert fault_of(number) is fault
