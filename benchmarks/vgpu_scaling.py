"""Two threads of the virtual GPU, beside two processes of one thread each: what the host gives.

An FP16 product of 1024^3 (64 blocks) runs over and over in a window of some seconds: by one thread,
by two processes of one thread each, which share nothing but the machine, and by two threads; three
times in turn. Where two processes are not twice as fast as one, two threads cannot be either.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import summary, write
from benchmarks.vgpu_gemm import CONFIG
from benchmarks.vgpu_speed import GEMM, checked_launch
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.runtime.device import activate
from boltgen.space.kernel import kernel_spec
from tests.cases import KernelCase
from tests.kernels.launch import Cuda

ISAS = ("avx512", "avx2")
ROUNDS = 3
PREPARE_S = 4.0  # a process has read the kernel and run it once by then
WINDOW_S = 5.0


def work(isa: str, threads: int, begin: float) -> None:
    """Prints the GFLOP/s of a launch in a window that begins at that time, their median."""
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    spec = kernel_spec(GEMM, ElementwiseGraph(), CONFIG, "sm_80")
    with tempfile.TemporaryDirectory() as name:
        case = KernelCase(name="gemm", spec=spec, problem=GEMM)
        launch, inputs = checked_launch(Cuda(vgpu), case, Path(name) / "gemm")
        vgpu.set_option("isa", isa)
        vgpu.set_option("threads", threads)
        launch.run(inputs)
        if time.time() > begin:
            raise SystemExit("the window began before all was ready: the machine is too busy")
        time.sleep(begin - time.time())
        vgpu.clear_launches()
        while time.time() < begin + WINDOW_S:
            launch.run(inputs)
        print(statistics.median(GEMM.flops / record.wall_s / 1e9 for record in vgpu.launches()))


def rate(isa: str, *, processes: int, threads: int) -> float:
    """GFLOP/s of so many processes together."""
    begin = time.time() + PREPARE_S
    command = [sys.executable, "-m", "benchmarks.vgpu_scaling", "--work", isa, str(threads)]
    started = [
        subprocess.Popen([*command, str(begin)], stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    texts = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a process failed; no figure is recorded")
    return float(np.sum([float(text) for text in texts]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", nargs=3, metavar=("ISA", "THREADS", "BEGIN"), help="internal")
    asked = parser.parse_args().work
    if asked:
        work(asked[0], int(asked[1]), float(asked[2]))
        return
    figures = {}
    for isa in ISAS:
        rounds = [
            (
                rate(isa, processes=1, threads=1),
                rate(isa, processes=2, threads=1),
                rate(isa, processes=1, threads=2),
            )
            for _ in range(ROUNDS)
        ]
        figures[isa] = {
            "one_thread_gflop_per_s": summary([one for one, _, _ in rounds]),
            "two_processes_over_one": summary([both / one for one, both, _ in rounds]),
            "two_threads_over_one": summary([two / one for one, _, two in rounds]),
            "two_threads_over_two_processes": summary([two / both for _, both, two in rounds]),
        }
    write(
        "vgpu_scaling",
        figures,
        target="two threads 1.9 times as fast as one, where the host lets two processes be so",
    )


if __name__ == "__main__":
    main()
