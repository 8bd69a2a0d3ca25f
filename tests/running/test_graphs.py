"""CUDA graphs of a session on the virtual GPU: equal results, bounded memory, what is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import boltgen
from boltgen.device.cuda_runtime import CudaRuntime
from boltgen.device.vgpu import Vgpu
from boltgen.errors import DeviceError
from boltgen.running import graphs
from boltgen.running.artifact import Artifact
from boltgen.running.loaded import RelaxRunner, release_unused_memory
from boltgen.running.session import Session
from tests.running.test_sessions import MOST, WIDTH, rows, save_rows


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    found = boltgen.activate("vgpu").vgpu
    assert found is not None
    return found


@pytest.fixture(scope="module")
def artifact(vgpu: Vgpu, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    del vgpu
    path = save_rows(tmp_path_factory.mktemp("graphs") / "rows.onnx", 0)
    return boltgen.compile(path, arch="sm_80", shapes={"x": (f"1..{MOST}", WIDTH)})


@pytest.fixture
def session(artifact: Artifact) -> Iterator[Session]:
    opened = artifact.open(graphs=MOST)
    yield opened
    opened.close()


def kept(session: Session) -> list[int]:
    """The rows that a session has graphs for, the one unused for longest first."""
    assert session._graphs is not None
    return [sizes[0][0] for sizes in session._graphs._kept]


def test_replays_give_what_runs_give(
    artifact: Artifact, session: Session, vgpu: Vgpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [rows(count, seed) for seed in (0, 1) for count in range(1, MOST + 1)]
    expected = [artifact.run({"x": x})["y"] for x in given]
    vgpu.set_option("check", "all")
    before = len(vgpu.findings())
    try:
        first = [session.run({"x": x})["y"] for x in given[:MOST]]
        monkeypatch.delattr(RelaxRunner, "call")  # from here on TVM's machine is not asked
        monkeypatch.delattr(RelaxRunner, "call_and_hold")
        second = [session.run({"x": x})["y"] for x in given[MOST:]]
        backwards = session.run({"x": given[-1][::-1]})["y"]
        # An output is the caller's: later runs leave it as it is.
        session.run({"x": given[-1] + 1})
    finally:
        vgpu.set_option("check", "none")
    for have, want in zip(
        [*first, *second, backwards[::-1]], [*expected, expected[-1]], strict=True
    ):
        np.testing.assert_array_equal(have, want)
    assert vgpu.findings()[before:] == []


def test_a_replay_launches_what_a_run_does(
    artifact: Artifact, session: Session, vgpu: Vgpu
) -> None:
    x = rows(3)
    found = []
    for run in (artifact.run, session.run, session.run):
        run({"x": x})
        vgpu.clear_launches()
        run({"x": x})
        found.append([(each.kernel, each.grid, each.block) for each in vgpu.launches()])
    assert found[0] == found[1] == found[2] != []


def test_no_more_graphs_are_kept_than_may_be(artifact: Artifact, vgpu: Vgpu) -> None:
    """The one unused for longest goes, with its memory, once it was not used for long enough."""
    session = artifact.open(graphs=2)
    for count in (1, 2):
        session.run({"x": rows(count)})
    assert session._graphs is not None
    forgotten = weakref.ref(session._graphs._kept[((1, WIDTH),)].graph)
    session.run({"x": rows(3)})
    assert kept(session) == [1, 2], "both were used lately"
    release_unused_memory()
    before = sum(each.size_bytes for each in vgpu.leaks())
    for _ in range(2 * graphs._LATELY):
        session.run({"x": rows(2)})
    x = rows(3, 1)
    np.testing.assert_array_equal(session.run({"x": x})["y"], artifact.run({"x": x})["y"])
    assert kept(session) == [2, 3]
    gc.collect()
    assert forgotten() is None
    release_unused_memory()
    # Input and output have a page each, however many rows; the buffer for other runs stays.
    assert sum(each.size_bytes for each in vgpu.leaks()) <= before + 4096
    session.close()


def test_sizes_that_take_turns_do_not_grow(artifact: Artifact, vgpu: Vgpu) -> None:
    session = artifact.open(graphs=2)
    for each in range(200):
        count = 1 + each % MOST
        x = rows(count, each)
        np.testing.assert_array_equal(session.run({"x": x})["y"], artifact.run({"x": x})["y"])
        assert len(kept(session)) <= 2
        if each == 2 * MOST:
            before = sum(each.size_bytes for each in vgpu.leaks())
    assert sum(each.size_bytes for each in vgpu.leaks()) <= before
    session.close()


def test_sessions_replay_beside_sessions_that_run(artifact: Artifact) -> None:
    given = [rows(1 + each % MOST, each) for each in range(24)]
    expected = [artifact.run({"x": x})["y"] for x in given]
    sessions = [artifact.open(graphs=count) for count in (MOST, 2, MOST, 0)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        found = list(
            pool.map(lambda session: [session.run({"x": x})["y"] for x in given], sessions)
        )
    for outputs in found:
        for have, want in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(have, want)
    for session in sessions:
        session.close()


def test_a_closed_session_gives_its_graphs_memory_back(artifact: Artifact, vgpu: Vgpu) -> None:
    artifact.open(graphs=2).close()
    before = len(vgpu.leaks())
    session = artifact.open(graphs=2)
    session.warm_up()
    assert kept(session) == [MOST]
    assert len(vgpu.leaks()) > before
    session.close()
    assert len(vgpu.leaks()) == before


def test_what_cannot_be_recorded_runs_all_the_same(
    artifact: Artifact, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits for the device is no part of a graph; after three failures the session
    records no more.
    """
    calls = []
    right = RelaxRunner.call_and_hold

    def waiting(runner, *arguments):
        calls.append(runner)
        result = right(runner, *arguments)
        CudaRuntime().wait_for_all()
        return result

    monkeypatch.setattr(RelaxRunner, "call_and_hold", waiting)
    for count in range(1, MOST + 1):
        x = rows(count, count)
        np.testing.assert_array_equal(session.run({"x": x})["y"], artifact.run({"x": x})["y"])
    assert kept(session) == []
    assert len(calls) == graphs._MOST_FAILURES


def test_a_refused_recording_is_no_fault_of_others(
    artifact: Artifact, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The virtual GPU has one last fault for all; another session's run goes on meanwhile."""
    x = rows(2)
    expected = artifact.run({"x": x})["y"]
    call, hold = RelaxRunner.call, RelaxRunner.call_and_hold
    other = artifact.open()

    def waiting(runner, *arguments):
        result = hold(runner, *arguments)
        CudaRuntime().wait_for_all()
        return result

    def beside(runner, tensors):
        monkeypatch.setattr(RelaxRunner, "call", call)
        session.run({"x": rows(3)})
        return call(runner, tensors)

    monkeypatch.setattr(RelaxRunner, "call_and_hold", waiting)
    monkeypatch.setattr(RelaxRunner, "call", beside)
    np.testing.assert_array_equal(other.run({"x": x})["y"], expected)
    assert kept(session) == []
    other.close()


def test_inputs_on_the_device_need_no_graph(artifact: Artifact, session: Session) -> None:
    import tvm

    x = rows(2)
    there = tvm.runtime.tensor(x, tvm.cuda(0))
    np.testing.assert_array_equal(session.run({"x": there})["y"], artifact.run({"x": x})["y"])
    assert kept(session) == []


def test_libraries_whose_kernels_take_a_threads_memory_have_none(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_WORKSPACE", b"boltgen_")  # which every library has
    session = artifact.open(graphs=2)
    session.warm_up()
    assert kept(session) == []
    session.close()


def test_a_refused_call_is_named(vgpu: Vgpu) -> None:
    del vgpu
    with pytest.raises(DeviceError, match=r"cudaStreamSynchronize: .* \(\d+\)"):
        CudaRuntime().call("cudaStreamSynchronize", ctypes.c_void_p(1 << 40))
