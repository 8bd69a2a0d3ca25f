"""Arrow: a partitioned module with its kernels' objects to one shared library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi
from tvm.target import Target

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain
from boltgen.build.unit import fatbin_unit

_CALLBACK = "tvm_callback_cuda_compile"


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """CUDA source that TVM generated for the operators that stayed with it."""

    path: Path


def cuda_target(arch: Arch) -> Target:
    """TVM's target for `arch`: explicit, so that no device is asked for its properties."""
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


# TVM's kernels declare their shared memory statically, of which every architecture gives a block
# 48 KiB. Source: CUDA C++ Programming Guide, technical specifications.
STATIC_SHARED_BYTES = 48 * 1024
WARP_SIZE = 32


def build_library(
    module: tvm.IRModule, arch: Arch, tools: Toolchain, cache: Cache
) -> tuple[tvm.runtime.Executable, list[DeviceSource]]:
    """Compile `module` with TVM; what it has no kernel of ours for goes through our nvcc.

    Raises:
        CompileError: nvcc refuses what TVM generated.
    """
    target = cuda_target(arch)
    sources: list[DeviceSource] = []
    with _cuda_compiler(arch, tools, cache, sources), target:
        return tvm.compile(module, target=target), sources


def export_library(executable: tvm.runtime.Executable, output: Path, tools: Toolchain) -> Path:
    """Write the one shared library that a GPU and the virtual GPU both load.

    Raises:
        ToolchainError: the linker fails.
    """

    def link(path: str, objects: Sequence[str], **_: object) -> None:
        link_shared([Path(name) for name in objects], Path(path), tools)

    executable.export_library(str(output), fcompile=link)
    return output


@contextmanager
def _cuda_compiler(
    arch: Arch, tools: Toolchain, cache: Cache, sources: list[DeviceSource]
) -> Iterator[None]:
    """While it is open, TVM compiles CUDA with our nvcc, cached, to a fat binary of SASS and PTX.

    TVM's own callback makes either a binary that no other device runs, or none at all where the
    machine has no CUDA toolkit of the system's.
    """
    failures: list[Exception] = []

    def compile_cuda(code: str) -> bytes:
        try:
            unit = fatbin_unit("tvm_kernels", code, arch.name, tools)
            (compiled,) = objects_or_raise(compile_all([unit], cache, jobs=1))
            sources.append(DeviceSource(compiled.source))
            return compiled.path.read_bytes()
        except Exception as error:
            failures.append(error)  # TVM's FFI passes on the message, not the exception
            raise

    with _registered(_CALLBACK, compile_cuda):
        try:
            yield
        except Exception:
            if failures:
                raise failures[0] from None
            raise


@contextmanager
def _registered(name: str, function: Callable[[str], bytes]) -> Iterator[None]:
    previous = tvm_ffi.get_global_func(name, allow_missing=True)
    tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        if previous is not None:
            tvm_ffi.register_global_func(name, previous, override=True)
