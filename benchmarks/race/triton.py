"""Triton: its compiler makes PTX for a named GPU, and the driver's interface launches it.

Without the extra `bench` Triton is not installed, and the contestant says so.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.machine import Machine
from benchmarks.race.problems import (
    Attention,
    DepthwiseConvolution,
    Matmul,
    Problem,
    RowNorm,
)
from benchmarks.race.triton_setup import WARP, Setup

try:
    from benchmarks.race import triton_compiler as compiler
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    compiler = None  # type: ignore[assignment]


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


# Tiles (M, N, K), stages and warps that Triton's users try for products on sm_80.
_MATMUL = (
    (128, 256, 64, 3, 8),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 128, 64, 3, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 5, 2),
    (32, 64, 64, 5, 2),
    (16, 64, 128, 4, 4),
)


def _matmul(problem: Matmul) -> list[Setup]:
    return [
        Setup(
            kernel="matmul",
            grid=(_cdiv(problem.m, bm) * _cdiv(problem.n, bn),),
            extents=(problem.m, problem.n, problem.k),
            constants={"BM": bm, "BN": bn, "BK": bk, "GROUP": 8},
            warps=warps,
            stages=stages,
        )
        for bm, bn, bk, stages, warps in _MATMUL
        if problem.k % bk == 0 and bm < 2 * max(problem.m, 16)
    ]


# Rows, keys, warps and stages of a tile of attention.
_ATTENTION = (
    (128, 64, 4, 3),
    (128, 64, 8, 3),
    (128, 128, 8, 3),
    (128, 32, 4, 4),
    (64, 64, 4, 3),
    (64, 32, 4, 4),
)


def _attention(problem: Attention) -> list[Setup]:
    return [
        Setup(
            kernel="attention",
            grid=(problem.tokens // rows, problem.heads),
            extents=(problem.tokens, math.log2(math.e) * problem.depth**-0.5),
            constants={"DEPTH": problem.depth, "BM": rows, "BN": keys, "CAUSAL": problem.causal},
            warps=warps,
            stages=stages,
        )
        for rows, keys, warps, stages in _ATTENTION
        if problem.tokens % max(rows, keys) == 0
    ]


def _row_norm(problem: RowNorm) -> list[Setup]:
    width = 1 << (problem.columns - 1).bit_length()
    extents = (problem.columns, problem.epsilon) if problem.operands else (problem.columns,)
    return [
        Setup(
            kernel=problem.function.value,
            grid=(problem.rows,),
            extents=extents,
            constants={"WIDTH": width},
            warps=warps,
            stages=1,
        )
        for warps in (1, 2, 4, 8)
    ]


# Pixels, channels and warps of a tile.
_DEPTHWISE = ((16, 64, 4), (32, 32, 4), (64, 32, 4), (32, 64, 4), (64, 64, 8))


def _depthwise(problem: DepthwiseConvolution) -> list[Setup]:
    pixels = problem.n * problem.p**2
    return [
        Setup(
            kernel="depthwise",
            grid=(_cdiv(pixels, places), _cdiv(problem.c, channels)),
            extents=(pixels, problem.h, problem.p, problem.c),
            constants={
                "R": problem.r,
                "STRIDE": problem.stride,
                "PAD": problem.pad,
                "BP": places,
                "BC": channels,
            },
            warps=warps,
            stages=1,
        )
        for places, channels, warps in _DEPTHWISE
    ]


_SETUPS: dict[type, Any] = {
    Matmul: _matmul,
    Attention: _attention,
    RowNorm: _row_norm,
    DepthwiseConvolution: _depthwise,
}


@dataclass
class TritonEntry:
    """A kernel in one configuration."""

    setup: Setup
    pointers: int
    arch: str

    @property
    def label(self) -> str:
        """The kernel and its constants."""
        values = "x".join(str(int(each)) for each in self.setup.constants.values())
        return f"{self.setup.kernel} {values}_s{self.setup.stages}_w{self.setup.warps}"

    @cached_property
    def _made(self) -> Any:
        assert compiler is not None, "entries are of an installed Triton"
        return compiler.made(self.setup, self.pointers, self.arch)

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Launch the PTX."""
        made = self._made
        pointers = [ctypes.c_void_p(each) for each in (*addresses.values(), output)]
        numbers = [
            ctypes.c_float(each) if isinstance(each, float) else ctypes.c_int32(each)
            for each in self.setup.extents
        ]
        # Memory for the kernel's own and its profiler's use, of which these kernels take none.
        hidden = [ctypes.c_void_p(0), ctypes.c_void_p(0)]
        machine.launch_ptx(
            made.asm["ptx"],
            made.metadata.name,
            grid=self.setup.grid,
            threads=WARP * made.metadata.num_warps,
            shared_bytes=made.metadata.shared,
            arguments=[*pointers, *numbers, *hidden],
        )

    def compiled(self) -> Sequence[Compiled]:
        """Return its PTX, for the ptxas that Triton has."""
        assert compiler is not None, "entries are of an installed Triton"
        return [Compiled(ptx=self._made.asm["ptx"], ptxas=compiler.ptxas_for(self.arch))]


class Triton:
    """Triton, in the best of its usual configurations."""

    name = "Triton"

    @property
    def version(self) -> str:
        """Return the package's version, or an empty text if it is not installed."""
        try:
            return version_of("triton")
        except PackageNotFoundError:
            return ""

    def entries(self, problem: Problem, arch: str) -> Sequence[TritonEntry]:
        """Return the configurations for a kind of problem."""
        if compiler is None:
            raise CannotRunError("triton is not installed: pip install '.[bench]'")
        if type(problem) not in _SETUPS:
            raise CannotRunError(f"no kernel in triton_kernels.py for {problem.name}")
        pointers = problem.inputs + 1
        return [TritonEntry(each, pointers, arch) for each in _SETUPS[type(problem)](problem)]
