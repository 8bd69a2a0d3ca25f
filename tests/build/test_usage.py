"""What ptxas says of kernels is read out of a log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boltgen.build.nvcc.usage import KernelUsage, kernel_usage, usage_lines
from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'boltgen_a_device' for 'sm_75'
ptxas info    : Function properties for boltgen_a_device
    16 bytes stack frame, 96 bytes spill stores, 92 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compile time = 1.000 ms
ptxas info    : Compiling entry function 'boltgen_b_device' for 'sm_75'
ptxas info    : Function properties for boltgen_b_device
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 86 registers, used 1 barriers, 400 bytes cmem[0]
"""


def test_registers_and_spills_of_each_kernel(tmp_path):
    log = tmp_path / "compile.log"
    log.write_text(LOG)
    assert kernel_usage(log) == {
        "boltgen_a": KernelUsage(registers=255, spilled_bytes=188, stack_bytes=16),
        "boltgen_b": KernelUsage(registers=86, spilled_bytes=0),
    }


def test_a_log_without_ptxas_says_nothing(tmp_path):
    (tmp_path / "compile.log").write_text("a.cu(3): warning: something\n")
    assert kernel_usage(tmp_path / "compile.log") == {}
    assert kernel_usage(tmp_path / "missing.log") == {}


# A kernel that multiplies and, before it waits, calls a function of another unit, which keeps ptxas
# from letting the multiplications overlap.
WGMMA = """\
.version 8.0
.target sm_90a
.address_size 64
.extern .func helper();
.visible .entry boltgen_k_device(.param .u64 out)
{
  .reg .b64 %d, %p; .reg .f32 %f<4>;
  mov.b64 %d, 0;
  ld.param.u64 %p, [out];
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d, %d, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  CALL
  wgmma.wait_group.sync.aligned 0;
  st.global.f32 [%p], %f0;
  st.global.f32 [%p+4], %f1;
  ret;
}
"""
# A kernel that indexes an array of its own by a number that only the launch knows.
LOCAL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry boltgen_k_device(.param .u64 out, .param .u32 at)
{
  .local .align 4 .b8 %array[64];
  .reg .b64 %p, %a, %i; .reg .b32 %v, %n;
  ld.param.u64 %p, [out];
  ld.param.u32 %n, [at];
  mul.wide.u32 %i, %n, 4;
  mov.u64 %a, %array;
  add.u64 %a, %a, %i;
  st.local.u32 [%a], %n;
  ld.local.u32 %v, [%array+8];
  st.global.u32 [%p], %v;
  ret;
}
"""


def reported(ptx: str, arch: str, folder: Path) -> KernelUsage:
    """Return what the toolchain's ptxas says of kernel `boltgen_k`."""
    ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
    (folder / "k.ptx").write_text(ptx)
    command = [ptxas, f"-arch={arch}", "-v", "-c", "k.ptx", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (folder / "k.log").write_text(done.stdout + done.stderr)
    return kernel_usage(folder / "k.log")["boltgen_k"]


def test_serialised_wgmma_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    called = reported(WGMMA.replace("CALL", "{ call.uni helper; }"), "sm_90a", tmp_path)
    assert called.serialised == "the presence of Extern calls"
    assert called.faults == (
        "its wgmma instructions are serialised due to the presence of Extern calls",
    )
    assert reported(WGMMA.replace("CALL", ""), "sm_90a", tmp_path).faults == ()


def test_local_memory_is_a_fault_though_nothing_spills(tmp_path: Path) -> None:
    used = reported(LOCAL, "sm_80", tmp_path)
    assert (used.stack_bytes, used.spilled_bytes) == (64, 0)
    assert used.faults == ("it keeps 64 bytes in local memory",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("insufficient register resources for the function", "insufficient register resources"),
        (
            "insufficient register resources for the wgmma pipeline in the function",
            "insufficient register resources for the wgmma pipeline",
        ),
    ],
)
def test_every_wording_of_serialisation_is_read(tmp_path: Path, text: str, reason: str) -> None:
    said = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
    log = tmp_path / "compile.log"
    log.write_text(f"ptxas info    : (C7510) {said} {text} 'boltgen_b_device'\n{LOG}")
    assert [used.serialised for used in kernel_usage(log).values()] == ["", reason]
    log.write_text(f"ptxas info    : (C7510) {said} {text} 'a_called_function'\n{LOG}")
    assert [used.serialised for used in kernel_usage(log).values()] == [reason, reason]


def test_an_exported_log_keeps_the_facts_and_no_path(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text(f"/home/somebody/kernel.cu(3): warning: something\n{LOG}")
    facts = kernel_usage(log)
    log.write_text(usage_lines(log.read_text()))
    assert kernel_usage(log) == facts
    assert "/home" not in log.read_text()
