"""What ptxas says of kernels is read out of a log."""

from __future__ import annotations

from boltgen.build.nvcc.usage import KernelUsage, kernel_usage

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
        "boltgen_a": KernelUsage(registers=255, spilled_bytes=188),
        "boltgen_b": KernelUsage(registers=86, spilled_bytes=0),
    }


def test_a_log_without_ptxas_says_nothing(tmp_path):
    (tmp_path / "compile.log").write_text("a.cu(3): warning: something\n")
    assert kernel_usage(tmp_path / "compile.log") == {}
    assert kernel_usage(tmp_path / "missing.log") == {}
