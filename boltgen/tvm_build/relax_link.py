"""Arrow: from a partitioned module and its kernels' objects to one shared library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tvm
import tvm_ffi
from tvm.relax import VirtualMachine
from tvm.target import Target

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.settings import settings_from
from boltgen.tvm_build.cuda_compiler import CudaCompiler
from boltgen.tvm_build.lowering import schedules
from boltgen.tvm_build.lowering.nan_order import with_ordered_nan
from boltgen.tvm_build.lowering.special_values import tir_pipeline


def cuda_target(arch: Arch) -> Target:
    """Return TVM's target for `arch`, with explicit properties, so that no device is queried."""
    return Target(
        {
            "kind": "cuda",
            "arch": arch.name,
            "max_threads_per_block": arch.max_threads_per_cta,
            "max_shared_memory_per_block": STATIC_SHARED_BYTES,
            "thread_warp_size": WARP_SIZE,
        },
        host="llvm",
    )


# TVM's kernels declare shared memory statically; every architecture allows 48 KiB per block.
# Source: CUDA C++ Programming Guide, technical specifications.
STATIC_SHARED_BYTES = 48 * 1024
WARP_SIZE = 32


def build_library(
    module: tvm.IRModule,
    arch: Arch,
    tools: Toolchain,
    cache: Cache,
    *,
    pipeline: tvm.transform.Pass | None = None,
    look: Callable[[tvm.IRModule], None] | None = None,
    tuned: Callable[[tvm.IRModule], tvm.IRModule] | None = None,
) -> tuple[tvm.runtime.Executable, list[Path]]:
    """Compile `module` with TVM; also return the CUDA sources that TVM generated.

    `pipeline` lowers Relax; by default it is `schedules.pipeline` with `look` and `tuned`.

    Raises:
        CompileError: TVM cannot schedule a kernel, or nvcc rejects TVM's sources.
        ModelImportError: no kernel computes the form of an operator.
    """
    target = cuda_target(arch)
    compiler = CudaCompiler(arch, tools, cache)
    registry = (tvm_ffi.get_global_func, tvm_ffi.register_global_func)
    with compiler.installed(compiler.compile, *registry), target:
        if pipeline is None:
            module = schedules.scheduled(module, target, look, tuned)
            pipeline = schedules.finish(target)
        executable = tvm.compile(
            module, target=target, relax_pipeline=pipeline, tir_pipeline=tir_pipeline()
        )
        return executable, compiler.sources


def host_machine(module: tvm.IRModule) -> VirtualMachine:
    """Compile a Relax module for TVM's virtual machine on the host."""
    ordered = with_ordered_nan(module)
    executable = tvm.compile(ordered, target="llvm", tir_pipeline=tir_pipeline())
    return VirtualMachine(executable, tvm.cpu())


def export_library(
    executable: tvm.runtime.Executable, output: str | Path, tools: Toolchain | None = None
) -> Path:
    """Write the result of `tvm.compile` to one library for a GPU and the virtual GPU.

    The library finds the CUDA runtime by its soname in the process that loads it.

    Raises:
        ToolchainError: a compiler is missing, or the linker fails.
    """
    chosen = tools or find_toolchain(settings_from())
    path = Path(output).absolute()

    def link(name: str, objects: Sequence[str], **_: object) -> None:
        link_shared([Path(each) for each in objects], Path(name), chosen)

    executable.export_library(str(path), fcompile=link)
    return path
