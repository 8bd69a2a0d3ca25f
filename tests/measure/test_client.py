"""What the client makes of workers that misbehave. No device, no compiler."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from boltgen.errors import DeviceError
from boltgen.ir.kernel import Launch
from boltgen.ir.outcome import Failure, Fault, Timing
from boltgen.measure.channel import LocalChannel, local_worker
from boltgen.measure.client import Worker
from boltgen.measure.protocol import Request, Setup
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.measure.failures import assert_failed
from tests.measure.stub_worker import DEVICE, timing

ROOT = Path(__file__).resolve().parent.parent.parent
SETUP = Setup(ordinal=0, profiler="profiler.so", runtime="libcudart.so.13")
TIMEOUT_S = 20.0


def start(tmp_path: Path, how: str = "well", start_seconds: float = 30.0) -> Worker:
    return Worker(
        SETUP,
        local_worker(
            (sys.executable, "-m", "tests.measure.stub_worker", how, str(tmp_path / "gone")),
            {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
        ),
        start_seconds=start_seconds,
    )


@pytest.fixture
def worker(tmp_path):
    made = start(tmp_path)
    yield made
    made.close()


def ask(worker: Worker, symbol: str, timeout_s: float = TIMEOUT_S):
    workload = Workload.of(Gemm(m=64, n=64, k=64))
    launch = Launch(struct="boltgen_gemm_args", sizes=workload.single.problem.sizes)
    request = Request(library="k.so", symbol=symbol, workload=workload, launch=launch)
    return worker.measure(request, timeout_s)


def test_a_worker_that_is_well(worker):
    assert worker.greeting.device == DEVICE
    assert [ask(worker, "good") for _ in range(3)] == [timing()] * 3


FAULTS = {
    "crash": (Fault.CRASH, "was ended by signal SIGSEGV while it ran the kernel"),
    "exit": (Fault.CRASH, "ended with status 3"),
    "half": (Fault.CRASH, "ended with status 0"),
    "garbage": (Fault.PROTOCOL, "Segmentation fault (core dumped)"),
    "noise": (Fault.PROTOCOL, "not JSON"),
    "nan": (Fault.PROTOCOL, "not JSON"),
    "unknown_field": (Fault.PROTOCOL, "surprise"),
    "another": (Fault.PROTOCOL, "answered another question"),
}


@pytest.mark.parametrize("symbol", FAULTS)
def test_a_fault_is_the_candidates_and_the_next_one_is_measured(worker, symbol):
    fault, words = FAULTS[symbol]
    assert_failed(ask(worker, symbol), fault, words)
    assert ask(worker, "good") == timing()


def test_a_worker_that_is_killed_from_outside_is_no_candidates_fault(worker):
    assert ask(worker, "killed_once") == timing()
    assert ask(worker, "good") == timing()


def test_what_a_worker_printed_is_kept(worker):
    outcome = ask(worker, "crash")
    assert isinstance(outcome, Failure)
    assert "about to crash" in outcome.log


@pytest.mark.parametrize("symbol", ["hang", "children"])
def test_a_hang_ends_with_its_time_and_leaves_no_process(worker, symbol):
    started = time.monotonic()
    group = worker.process_id
    outcome = ask(worker, symbol, timeout_s=0.5)
    assert time.monotonic() - started < 5.0
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.TIMEOUT
    assert outcome.reason == "no answer within 0.5 s"
    assert_ends(group)
    assert ask(worker, "good") == timing()


def assert_ends(group: int) -> None:
    """The kernel takes a moment to bury what was killed."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process group {group} is alive")


def test_a_gpu_that_vanishes_is_no_candidates_fault_and_is_asked_once(worker):
    outcome = ask(worker, "vanish")
    assert isinstance(outcome, Failure)
    assert (outcome.fault, outcome.reason[:7]) == (Fault.DEVICE_LOST, "the GPU")
    later = [ask(worker, "good") for _ in range(3)]
    assert {(o.fault, o.reason) for o in later if isinstance(o, Failure)} == {
        (
            Fault.DEVICE_LOST,
            "the device cannot be used: cudaSetDevice: no CUDA-capable device is detected (100)",
        )
    }
    assert len(later) == 3
    assert worker.process_id is None


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("dies", "ended with status 1 instead of naming its device\nlibcudart.so.13: cannot open"),
        ("old", "speaks another version of the protocol than 4"),
        ("silent", "was ended by signal SIGKILL instead of naming its device"),
    ],
)
def test_a_worker_that_does_not_start_says_why(tmp_path, how, words):
    with pytest.raises(DeviceError, match="worker") as caught:
        start(tmp_path, how, start_seconds=1.0 if how == "silent" else 30.0)
    assert words in str(caught.value)


def test_a_program_that_is_not_there():
    with pytest.raises(DeviceError, match="no-such-python cannot be started: No such file"):
        Worker(SETUP, local_worker(("no-such-python",)))


def test_closing_twice_is_harmless(tmp_path):
    worker = start(tmp_path)
    group = worker.process_id
    worker.close()
    worker.close()
    assert_ends(group)


class Mailed(LocalChannel):
    """A worker that finds what it was sent in a folder of its own."""

    folder: Path

    def send_file(self, path: Path) -> str:
        return str(self.folder / path.name)


def test_a_worker_is_asked_for_files_where_it_finds_them(tmp_path, monkeypatch):
    sent: list[bytes] = []
    monkeypatch.setattr(Mailed, "folder", tmp_path / "inbox", raising=False)
    monkeypatch.setattr(
        Mailed, "send", lambda each, line: sent.append(line) or LocalChannel.send(each, line)
    )
    command = (sys.executable, "-m", "tests.measure.stub_worker", "well", str(tmp_path / "gone"))
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"}
    worker = Worker(SETUP, lambda: Mailed(command, environment))
    assert ask(worker, "good") == timing()
    worker.close()
    setup, request = map(json.loads, sent)
    inbox = f"{tmp_path}/inbox"
    assert (setup["profiler"], setup["runtime"]) == (
        f"{inbox}/profiler.so",
        f"{inbox}/libcudart.so.13",
    )
    assert request["library"] == f"{inbox}/k.so"


def test_an_interrupt_leaves_no_answer_behind(worker, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(worker, "good")
    assert isinstance(ask(worker, "good"), Timing)
