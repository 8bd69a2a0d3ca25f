"""CUTLASS's own device-wide kernels, in the configurations of their authors.

Each program of `programs/` has an entry `race`. nvcc compiles it as CUTLASS's examples are.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cuda_programs import build_programs, program_unit
from benchmarks.cutlass_examples import curand_headers
from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.machine import Machine
from benchmarks.race.problems import (
    Attention,
    Convolution,
    DepthwiseConvolution,
    Matmul,
    Problem,
)
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import CompileError
from boltgen.settings import settings_from

_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Program:
    """A program, the architecture of its kernel, and the numbers that its entry takes.

    `defines` are the program's macros. `order` gives a filter's axes in the program's order, where
    it is another than the problem's. `last` are values of the entry's last number, each of which
    is tried; its entry takes no such number if there are none.
    """

    source: str
    label: str
    arch: str
    numbers: Callable[[Any], Sequence[int]]
    examples: tuple[str, ...] = ()  # folders of CUTLASS's examples that it includes from
    workspace_bytes: Callable[[Any], int] = lambda problem: 0
    defines: Callable[[Any], Mapping[str, int]] = lambda problem: {}
    order: tuple[int, ...] = ()
    last: Callable[[Any], Sequence[int]] = lambda problem: ()


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
    (DepthwiseConvolution, "sm_80"): Program(
        "depthwise.cu",
        "example 46, DirectConvolution 1x8x8x64",
        "sm_80",
        lambda each: (each.n, each.h, each.c, each.pad, each.p),
        workspace_bytes=lambda each: 2 * math.prod(each.filter_shape),
        defines=lambda each: {"FILTER": each.r, "STRIDE": each.stride},
        order=(2, 0, 1, 3),
        # Parts of an image's tiles; the example's own command has ten.
        last=lambda each: (1, 10, math.ceil(each.p / 8) ** 2),
    ),
}


def library(
    name: str, text: str, arch: str, *, flags: Sequence[str] = (), include: Sequence[Path] = ()
) -> Path:
    """Compile a CUDA program over CUTLASS to a library.

    Raises:
        CannotRunError: nvcc rejects it.
    """
    tools = find_toolchain(settings_from())
    utilities = tools.cutlass.include.parent / "tools" / "util" / "include"
    unit = program_unit(
        f"race_{name}",
        text,
        tools,
        arch=arch,
        flags=("-shared", "-Xcompiler=-fPIC", "--expt-relaxed-constexpr", "-w", *flags),
        include=(tools.cutlass.include, utilities, *include),
    )
    try:
        (path,) = build_programs([unit])
    except CompileError as error:
        raise CannotRunError(f"it does not compile: {error}") from error
    return path


@dataclass
class CutlassEntry:
    """A program's kernel."""

    program: Program
    problem: Problem
    last: int | None = None

    @property
    def label(self) -> str:
        """CUTLASS's class and its tile."""
        return self.program.label + ("" if self.last is None else f", {self.last} parts")

    @cached_property
    def _library(self) -> Path:
        program = self.program
        examples = find_toolchain(settings_from()).cutlass.include.parent / "examples"
        curand = curand_headers() if program.examples else None
        if program.examples and curand is None:
            raise CannotRunError("cuRAND's headers are not installed: pip install '.[bench]'")
        return library(
            program.source.removesuffix(".cu"),
            (_PROGRAMS / program.source).read_text(encoding="utf-8"),
            program.arch,
            flags=[f"-D{name}={value}" for name, value in program.defines(self.problem).items()],
            include=[
                *(examples / each for each in program.examples),
                *([curand] if curand else []),
            ],
        )

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Call the program's entry."""
        if order := self.program.order:
            assert isinstance(self.problem, DepthwiseConvolution)
            filters = machine.download(addresses["w"], self.problem.filter_shape)
            machine.write(addresses["w"], filters.transpose(order))
        pointers = [ctypes.c_void_p(each) for each in (*addresses.values(), output)]
        if size := self.program.workspace_bytes(self.problem):
            pointers.append(ctypes.c_void_p(machine.allocate(size)))
        last = () if self.last is None else (self.last,)
        numbers = [ctypes.c_int(each) for each in (*self.program.numbers(self.problem), *last)]
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
        return [CutlassEntry(program, problem, last) for last in program.last(problem) or (None,)]
