"""CUTLASS's own device-wide kernels, in the configurations of their authors.

Each program of `programs/` has an entry `race`. nvcc compiles it as CUTLASS's examples are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cuda_programs import build_programs, program_unit
from benchmarks.cutlass_examples import curand_headers
from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.machine import Machine
from benchmarks.race.problems import Attention, Convolution, Matmul, Problem
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import CompileError
from boltgen.settings import settings_from

_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Program:
    """A program, the architecture of its kernel, and the numbers that its entry takes."""

    source: str
    label: str
    arch: str
    numbers: Callable[[Any], Sequence[int]]
    examples: tuple[str, ...] = ()  # folders of CUTLASS's examples that it includes from
    workspace_bytes: Callable[[Any], int] = lambda problem: 0


# By the class of a problem and the architecture.
_PROGRAM_OF: dict[tuple[type, str], Program] = {
    (Matmul, "sm_80"): Program(
        "gemm.cu",
        "device::Gemm 128x256x64_64x64_s3",
        "sm_80",
        lambda each: (each.m, each.n, each.k),
    ),
    (Attention, "sm_80"): Program(
        "attention.cu",
        "example 41, AttentionKernel",
        "sm_80",
        lambda each: (each.heads, each.tokens, each.depth, each.causal),
        examples=("41_fused_multi_head_attention",),
    ),
    (Convolution, "sm_80"): Program(
        "conv.cu",
        "device::ImplicitGemmConvolution 128x128x64_64x64_s3",
        "sm_80",
        lambda each: (each.n, each.h, each.c, each.k, each.r, each.stride, each.pad, each.p),
    ),
}


@dataclass
class CutlassEntry:
    """A program's kernel."""

    program: Program
    problem: Problem

    @property
    def label(self) -> str:
        """CUTLASS's class and its tile."""
        return self.program.label

    @cached_property
    def _library(self) -> Path:
        tools = find_toolchain(settings_from())
        root = tools.cutlass.include.parent
        curand = curand_headers() if self.program.examples else None
        if self.program.examples and curand is None:
            raise CannotRunError("cuRAND's headers are not installed: pip install '.[bench]'")
        unit = program_unit(
            f"race_{self.program.source.removesuffix('.cu')}",
            (_PROGRAMS / self.program.source).read_text(encoding="utf-8"),
            tools,
            arch=self.program.arch,
            flags=("-shared", "-Xcompiler=-fPIC", "--expt-relaxed-constexpr", "-w"),
            include=(
                tools.cutlass.include,
                root / "tools" / "util" / "include",
                *(root / "examples" / folder for folder in self.program.examples),
                *([curand] if curand else []),
            ),
        )
        try:
            (path,) = build_programs([unit])
        except CompileError as error:
            raise CannotRunError(f"it does not compile: {error}") from error
        return path

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Call the program's entry."""
        pointers = [ctypes.c_void_p(each) for each in (*addresses.values(), output)]
        if size := self.program.workspace_bytes(self.problem):
            pointers.append(ctypes.c_void_p(machine.allocate(size)))
        numbers = [ctypes.c_int(each) for each in self.program.numbers(self.problem)]
        if status := ctypes.CDLL(str(self._library)).race(*pointers, *numbers):
            raise CannotRunError(f"its entry returns status {status}")

    def compiled(self) -> Sequence[Compiled]:
        """List the PTX in the program."""
        ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
        return [Compiled(ptx=ptx, ptxas=ptxas) for ptx in embedded_ptx(self._library.read_bytes())]


class Cutlass:
    """CUTLASS."""

    name = "CUTLASS"
    version = version("nvidia-cutlass")

    def entries(self, problem: Problem, arch: str) -> Sequence[CutlassEntry]:
        """Return its program for a kind of problem."""
        program = _PROGRAM_OF.get((type(problem), arch))
        if program is None:
            raise CannotRunError(f"no program for {problem.name} on {arch}")
        return [CutlassEntry(program, problem)]
