"""Devices of the Blackwell family: their PTX, 256-bit vectors, and what is refused by its name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.driver import CudaError, Driver, entry
from boltgen.build.toolchain import find_toolchain
from boltgen.device.vgpu import Vgpu
from boltgen.errors import VgpuError
from boltgen.settings import settings_from
from tests.vgpu.cuda_programs import link, run
from tests.vgpu.refusals import Code, refused

DEVICES = {"sm_100": 100, "sm_103": 103, "sm_120": 120, "sm_121": 121}


def header(target: str) -> str:
    return f".version 9.0\n.target {target}\n.address_size 64\n"


def nothing(target: str) -> str:
    return header(target) + entry([], "", "ret;")


@pytest.mark.parametrize("device", DEVICES)
def test_programs_compiled_for_them_run(library_folder: Path, tmp_path: Path, device: str) -> None:
    program = link("labels", library_folder / "libcudart.so.13", tmp_path, arch=device)
    assert run(program, library_folder, device=device)[0] == "passed\n"


def test_tensor_core_kernels_of_sm_80_run_on_them(
    driver: Driver, vgpu: Vgpu, tmp_path: Path
) -> None:
    """nvcc's PTX of wmma is mma and loads; the product of two matrices of ones is their depth."""
    source = tmp_path / "ones.cu"
    source.write_text(
        """#include <mma.h>
        using namespace nvcuda::wmma;
        extern "C" __global__ void k(float* out) {
          fragment<matrix_a, 16, 16, 16, half, row_major> a;
          fragment<matrix_b, 16, 16, 16, half, col_major> b;
          fragment<accumulator, 16, 16, 16, float> c;
          fill_fragment(a, __float2half(1.0f)); fill_fragment(b, __float2half(1.0f));
          fill_fragment(c, 0.5f); mma_sync(c, a, b, c);
          store_matrix_sync(out, c, 16, mem_row_major);
        }"""
    )
    tools = find_toolchain(settings_from())
    for device in DEVICES:
        ptx = tmp_path / f"{device}.ptx"
        arch = device.replace("sm_", "compute_")
        command = [str(tools.nvcc.path), "-ptx", f"-arch={arch}", "-ccbin", str(tools.cxx.path)]
        subprocess.run(
            [*command, "-o", str(ptx), str(source)], check=True, env=dict(tools.environment)
        )
        vgpu.set_option("device", device)
        out = driver.buffer(np.zeros(256, np.float32))
        driver.run(ptx.read_text(), [out])
        np.testing.assert_array_equal(driver.read(out), 16.5)


@pytest.mark.parametrize(
    ("target", "runs_on"),
    [
        ("sm_80", ["sm_100", "sm_103", "sm_120", "sm_121"]),
        ("sm_100", ["sm_100", "sm_103", "sm_120", "sm_121"]),
        ("sm_100a", ["sm_100"]),
        ("sm_100f", ["sm_100", "sm_103"]),
        ("sm_120f", ["sm_120", "sm_121"]),
        ("sm_120a", ["sm_120"]),
        ("sm_121a", ["sm_121"]),
        ("sm_90a", []),
    ],
)
def test_which_ptx_runs_where(driver: Driver, vgpu: Vgpu, target: str, runs_on: list[str]) -> None:
    """An a is for one device alone, an f for its family. Source: PTX ISA, .target."""
    found = []
    for device in DEVICES:
        vgpu.set_option("device", device)
        try:
            driver.run(nothing(target), [])
        except CudaError as error:
            assert f"the PTX is for {target}" in str(error)
        else:
            found.append(device)
    assert found == runs_on


VECTORS = [("b32", 8), ("f32", 8), ("u32", 8), ("b64", 4), ("u64", 4), ("f64", 4)]


def copies(kind: str, count: int, offset: int = 0) -> str:
    width = int(kind[1:])
    registers = f".reg .b{width} %x<{count}>; .reg .b32 %r; .reg .b64 %a, %b, %i;"
    values = ", ".join(f"%x{k}" for k in range(count))
    body = f"""ld.param.u64 %a, [p0]; ld.param.u64 %b, [p1]; mov.u32 %r, %tid.x;
    mul.wide.u32 %i, %r, 32; add.u64 %a, %a, %i; add.u64 %b, %b, %i;
    ld.global.v{count}.{kind} {{{values}}}, [%a+{offset}];
    st.global.v{count}.{kind} [%b], {{{values}}}; ret;"""
    return header("sm_100") + entry(["u64", "u64"], registers, body)


@pytest.mark.parametrize(("kind", "count"), VECTORS)
def test_vectors_of_256_bits(driver: Driver, vgpu: Vgpu, kind: str, count: int) -> None:
    vgpu.set_option("device", "sm_100")
    data = np.random.default_rng(0).integers(0, 256, 32 * 32, dtype=np.uint8)
    source, target = driver.buffer(data), driver.buffer(np.zeros_like(data))
    driver.run(copies(kind, count), [source, target])
    np.testing.assert_array_equal(driver.read(target), data)


def test_vectors_of_256_bits_are_checked_as_a_whole(driver: Driver, vgpu: Vgpu) -> None:
    vgpu.set_option("device", "sm_100")
    data = np.zeros(33 * 32, np.uint8)
    buffer = driver.buffer(data)
    with refused(Code.MISALIGNED_ADDRESS, "global read", "32 bytes"):
        driver.run(copies("b32", 8, offset=16), [buffer, buffer])
    vgpu.clear_error()
    with refused(Code.ILLEGAL_ADDRESS, "global read", "32 bytes"):
        driver.run(copies("b64", 4, offset=64), [buffer, buffer])


def test_vectors_of_256_bits_are_for_global_memory(driver: Driver, vgpu: Vgpu) -> None:
    vgpu.set_option("device", "sm_100")
    buffer = driver.buffer(np.zeros(32 * 32, np.uint8))
    with refused(Code.INVALID_PTX, "ld.shared"):
        driver.run(copies("b32", 8).replace("ld.global", "ld.shared"), [buffer, buffer])


@pytest.mark.parametrize(
    "instruction",
    [
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r], 32;",
        "tcgen05.wait::ld.sync.aligned;",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r}, [%r];",
    ],
)
def test_tensor_memory_is_refused_by_name(driver: Driver, vgpu: Vgpu, instruction: str) -> None:
    vgpu.set_option("device", "sm_100")
    ptx = header("sm_100a") + entry([], ".reg .b32 %r;", instruction + " ret;")
    with pytest.raises(CudaError, match=r"tcgen05 and the tensor memory of sm_100a") as error:
        driver.run(ptx, [])
    line = 1 + next(n for n, text in enumerate(ptx.splitlines()) if instruction in text)
    name = instruction.split(maxsplit=1)[0].rstrip(";")
    assert f"kernel 'k' cannot run on the virtual GPU: '{name}' (PTX line {line})" in str(
        error.value
    )


def test_devices_that_are_not_there(vgpu: Vgpu) -> None:
    with pytest.raises(VgpuError, match="sm_120 and sm_121"):
        vgpu.set_option("device", "sm_101")
