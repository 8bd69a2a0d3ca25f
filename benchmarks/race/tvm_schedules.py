"""TVM without tuning: its default pipeline for CUDA, whose schedules are dlight's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.machine import Machine
from benchmarks.race.problems import Convolution, DepthwiseConvolution, Matmul, Problem, RowNorm
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.nvcc.ptx import fatbin_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.problems.norm.problem import NormFunction
from boltgen.settings import settings_from
from boltgen.tvm_build.cuda_compiler import CudaCompiler
from boltgen.tvm_build.relax_link import cuda_target

_OP = relax.op
Body = Callable[..., relax.Expr]


def _half(x: relax.Expr) -> relax.Expr:
    return _OP.astype(x, "float16")


def _matmul(_: Matmul) -> Body:
    return lambda a, b: _half(_OP.matmul(a, _OP.permute_dims(b), out_dtype="float32"))


def _convolution(problem: Convolution) -> Body:
    return lambda x, w: _half(_conv2d(problem, x, w, kernel_layout="OHWI"))


def _depthwise(problem: DepthwiseConvolution) -> Body:
    return lambda x, w: _half(_conv2d(problem, x, w, kernel_layout="HWOI", groups=problem.c))


def _conv2d(
    problem: Convolution | DepthwiseConvolution, x: relax.Expr, w: relax.Expr, **changed: Any
) -> relax.Expr:
    return _OP.nn.conv2d(
        x,
        w,
        strides=problem.stride,
        padding=problem.pad,
        data_layout="NHWC",
        out_dtype="float32",
        **changed,
    )


def _row_norm(problem: RowNorm) -> Body:
    wide = "float32"
    match problem.function:
        case NormFunction.SOFTMAX:
            return lambda x: _half(_OP.nn.softmax(_OP.astype(x, wide), -1))
        case NormFunction.LAYER:
            return lambda x, scale, shift: _half(
                _OP.nn.layer_norm(
                    *(_OP.astype(each, wide) for each in (x, scale, shift)),
                    axes=-1,
                    epsilon=problem.epsilon,
                )
            )
        case NormFunction.RMS:
            return lambda x, scale: _half(
                _OP.nn.rms_norm(_OP.astype(x, wide), _OP.astype(scale, wide), -1, problem.epsilon)
            )


_BODIES: dict[type, Callable[[Any], Body]] = {
    Matmul: _matmul,
    Convolution: _convolution,
    DepthwiseConvolution: _depthwise,
    RowNorm: _row_norm,
}


@dataclass
class TvmEntry:
    """A module that TVM compiles."""

    problem: Problem
    body: Body
    arch: str

    label = "dlight"

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        drawn = self.problem.draw(np.random.default_rng(0))
        return {name: array.shape for name, array in drawn.items()}

    @property
    def _module(self) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        given = [
            relax.Var(name, relax.TensorType(shape, "float16"))
            for name, shape in self._shapes.items()
        ]
        with builder.function("main", given):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(self.body(*given)))
            builder.emit_func_output(result)
        # The schedule of a matmul wants B's transposition in it.
        return relax.transform.FuseTransposeMatmul()(builder.get())

    @cached_property
    def _made(self) -> tuple[Any, list[Compiled]]:
        settings, arch = settings_from(), arch_named(self.arch)
        tools = find_toolchain(settings)
        compiler = CudaCompiler(arch, tools, Cache(settings.cache_dir))
        target = cuda_target(arch)
        pipeline = relax.backend.cuda.get_default_pipeline(target)
        registry = (tvm_ffi.get_global_func, tvm_ffi.register_global_func)
        try:
            with compiler.installed(compiler.compile, *registry), target:
                made = tvm.compile(self._module, target=target, relax_pipeline=pipeline)
        except Exception as error:  # TVM raises many kinds
            raise CannotRunError(f"it does not compile: {type(error).__name__}: {error}") from error
        ptxas = tools.nvcc.path.with_name("ptxas")
        binaries = [each.with_name("device.fatbin") for each in compiler.sources]
        modules = [
            Compiled(ptx=ptx, ptxas=ptxas)
            for binary in binaries
            for ptx in fatbin_ptx(binary.read_bytes())
        ]
        return made, modules

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Run TVM's virtual machine on copies of the tensors; copies are no launches."""
        made, _ = self._made
        device = tvm.cuda(0)
        arrays = [machine.download(addresses[name], self._shapes[name]) for name in addresses]
        given = [tvm.runtime.tensor(array, device) for array in arrays]
        result = relax.VirtualMachine(made, device)["main"](*given)
        machine.write(output, result.numpy())

    def compiled(self) -> Sequence[Compiled]:
        """List the PTX of TVM's kernels."""
        return self._made[1]


class Tvm:
    """TVM's own schedules."""

    name = "TVM"
    version = tvm.__version__

    def entries(self, problem: Problem, arch: str) -> Sequence[TvmEntry]:
        """Return the module for a kind of problem."""
        made = _BODIES.get(type(problem))
        if made is None:
            raise CannotRunError(f"no operator in tvm_schedules.py for {problem.name}")
        return [TvmEntry(problem, made(problem), arch)]
