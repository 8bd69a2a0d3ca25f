"""Launches with attributes: clusters, what they may not be, and early starts of kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.driver import Buffer, CudaError, Driver, entry
from boltgen.device.vgpu import Vgpu
from tests.vgpu.cuda_programs import link, run
from tests.vgpu.tensor_maps import HEADER


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
    assert errors == ""
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


# --- through the driver --------------------------------------------------------------------------

CLUSTER, EARLY_START = 4, 6  # of CUlaunchAttributeID


class Attribute(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int),
        ("unused", ctypes.c_int),
        ("value", ctypes.c_uint32 * 16),
    ]


class Configuration(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    ]


def launch(
    driver: Driver,
    ptx: str,
    out: Buffer,
    grid: int,
    attributes: dict[int, tuple[int, ...]],
    *,
    threads: int = 32,
    captured: bool = False,
) -> None:
    """Launch the kernel of `ptx` and wait: directly, or as the node of a captured graph."""
    function = driver.function(driver.load(ptx), "k")
    listed = (Attribute * max(len(attributes), 1))()
    for k, (name, value) in enumerate(attributes.items()):
        listed[k].id = name
        listed[k].value[: len(value)] = value
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    if captured:
        driver.call("cuStreamCreate", ctypes.byref(stream), 0)
        driver.call("cuStreamBeginCapture_v2", stream, 0)
    config = Configuration((grid, 1, 1), (threads, 1, 1), 0, stream, listed, len(attributes))
    pointer = ctypes.c_uint64(out.address)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    driver.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
    if captured:
        driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        flags = ctypes.c_uint64(0)
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, flags)
        driver.call("cuGraphLaunch", executable, stream)
        driver.call("cuGraphExecDestroy", executable)
        driver.call("cuGraphDestroy", graph)
        driver.call("cuStreamDestroy_v2", stream)
    driver.call("cuCtxSynchronize")


SIZE = """griddepcontrol.wait; ld.param.u64 %d, [p0]; mov.u32 %r, %ctaid.x; mul.wide.u32 %e, %r, 4;
    add.u64 %d, %d, %e; mov.u32 %r, %cluster_nctarank; st.global.u32 [%d], %r;
    griddepcontrol.launch_dependents; ret;"""
KERNEL = HEADER + entry(["u64"], ".reg .b32 %r; .reg .b64 %d, %e;", SIZE)


def test_attributes_through_the_driver(hopper: Driver) -> None:
    out = hopper.buffer(np.zeros(12, np.uint32))
    launch(hopper, KERNEL, out, 12, {})
    assert set(hopper.read(out)) == {1}
    launch(hopper, KERNEL, out, 12, {CLUSTER: (6, 1, 1), EARLY_START: (1,)})
    assert set(hopper.read(out)) == {6}


@pytest.mark.parametrize(
    ("grid", "cluster", "code", "message"),
    [
        (12, (5, 1, 1), 1, "is no multiple of a cluster of"),
        (18, (9, 1, 1), 912, "16 with cudaFuncAttributeNonPortableClusterSizeAllowed"),
        (12, (2, 0, 1), 1, "a dimension is zero"),
    ],
)
def test_clusters_that_the_driver_refuses(
    hopper: Driver, grid: int, cluster: tuple[int, ...], code: int, message: str
) -> None:
    out = hopper.buffer(np.zeros(grid, np.uint32))
    with pytest.raises(CudaError, match=message) as raised:
        launch(hopper, KERNEL, out, grid, {CLUSTER: cluster})
    assert raised.value.code == code


# --- kernels that start early, under racecheck ----------------------------------------------------

WAIT = "griddepcontrol.wait;"
STORE = "st.global.u32 [%d], %t;"
BEFORE = "access before griddepcontrol.wait"
COPY = "cp.async.ca.shared.global [%s], [%d], 4; cp.async.wait_all;"
BULK_STORE = """setp.ne.u32 %p, %t, 0; @%p bra STORED;
    cp.async.bulk.global.shared::cta.bulk_group [%d], [tile], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; STORED:"""
ONE_WAITS = f"setp.ne.u32 %p, %t, 0; @%p bra JOIN; {WAIT} JOIN:"


@pytest.mark.parametrize("captured", [False, True], ids=["stream", "graph"])
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"{WAIT} {STORE}", []),
        (STORE, [BEFORE, "no griddepcontrol.wait"]),
        (f"{STORE} {WAIT}", [BEFORE]),
        (f"ld.global.u32 %r, [%d]; {WAIT}", [BEFORE]),
        (f"red.global.add.u32 [%d], %t; {WAIT}", [BEFORE]),
        (f"{COPY} {WAIT}", [BEFORE]),
        (f"{WAIT} {COPY}", []),
        (f"{BULK_STORE} {WAIT}", [BEFORE]),
        (f"{WAIT} {BULK_STORE}", []),
        (f"ld.const.u32 %r, [table]; {WAIT}", []),
        (f"prefetch.global.L2 [%d]; {WAIT}", []),
        # Thread 0 waits, and the others come after it or not.
        (f"{ONE_WAITS} bar.sync 0; {STORE}", []),
        (f"{ONE_WAITS} {STORE}", [BEFORE]),
        (f"bar.sync 0; {ONE_WAITS} {STORE}", [BEFORE]),
        ("", ["no griddepcontrol.wait"]),
    ],
)
def test_an_early_start_without_a_wait_is_found(
    checked_hopper: Driver, vgpu: Vgpu, body: str, found: list[str], captured: bool
) -> None:
    before = """mov.u32 %t, %tid.x; ld.param.u64 %d, [p0]; mul.wide.u32 %e, %t, 4;
    add.u64 %d, %d, %e; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;"""
    ptx = HEADER + entry(
        ["u64"],
        ".reg .b32 %r, %s, %t; .reg .b64 %d, %e; .reg .pred %p; .shared .align 16 .b8 tile[256];",
        f"{before} {body} ret;",
        before=".const .align 4 .b32 table[1] = {1};",
    )
    out = checked_hopper.buffer(np.zeros(64, np.uint32))
    launch(checked_hopper, ptx, out, 1, {}, threads=64)
    launch(checked_hopper, ptx, out, 1, {EARLY_START: (0,)}, threads=64)
    assert vgpu.findings() == []
    launch(checked_hopper, ptx, out, 1, {EARLY_START: (1,)}, threads=64, captured=captured)
    findings = vgpu.findings()
    assert [finding.kind for finding in findings] == found
    for finding in findings:
        assert finding.kernel == "k" and finding.check == "racecheck"
        assert "execute griddepcontrol.wait" in finding.message
