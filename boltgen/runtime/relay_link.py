"""Arrow: a partitioned Relay module, built by TVM, to one shared library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay
from tvm.runtime import module as module_of_tvm
from tvm.target import Target

from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.errors import ToolchainError
from boltgen.frontend.relay.versions import cuda_compile_callback
from boltgen.runtime.cuda_compiler import CALLBACK, CudaCompiler, compile_cuda
from boltgen.settings import settings_from


def cuda_target(arch: Arch) -> Target:
    """TVM's target for `arch`."""
    return Target(f"cuda -arch={arch.name}", host="llvm")


def install_cuda_compiler() -> None:
    """From now on TVM compiles CUDA with boltgen's nvcc, cached, for the arch of its target.

    TVM's own callback asks for a CUDA toolkit of the system's, and what these versions of TVM
    generate does not compile with CUDA 12.8 or later as it is.
    """

    def compile_text(code: str, target: object) -> bytes:
        arch = getattr(target or Target.current(allow_none=True), "arch", None)
        if not arch:
            raise ToolchainError(
                "the target names no architecture, so nvcc cannot compile for it: use "
                'tvm.target.Target("cuda -arch=sm_80", host="llvm")'
            )
        settings = settings_from()
        tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
        name = arch_named(str(arch)).name
        return compile_cuda(_accepted(code), name, tools, cache).path.read_bytes()

    tvm.register_func(CALLBACK, cuda_compile_callback(compile_text), override=True)


def _accepted(code: str) -> str:
    """`code` as CUDA 12.8 and later take it: `htanh`, which TVM defines, is in their headers."""
    return re.sub(r"\bhtanh\b", "tvm_htanh", code)


def build_library(
    module: tvm.IRModule, arch: Arch, tools: Toolchain, cache: Cache
) -> tuple[Any, list[Path]]:
    """Build `module` with TVM for the graph executor; also the CUDA sources that TVM generated.

    Raises:
        CompileError: nvcc refuses what TVM generated.
    """
    compiler = CudaCompiler(arch, tools, cache)
    callback = cuda_compile_callback(lambda code, _target: compiler.compile(_accepted(code)))
    with (
        compiler.installed(callback, tvm.get_global_func, tvm.register_func),
        # Not the root context, in which TVM downloads schedules of its own accord.
        autotvm.apply_history_best([]),
        tvm.transform.PassContext(opt_level=3),
    ):
        return relay.build(module, target=cuda_target(arch)), compiler.sources


def export_library(built: Any, output: str | Path, tools: Toolchain | None = None) -> Path:
    """Write what `relay.build` or `relay.vm.compile` returned to one shared library.

    It finds the CUDA runtime by its name in the process that loads it, be it a GPU's or the virtual
    GPU's.

    Raises:
        ToolchainError: the linker fails.
    """
    chosen = tools or find_toolchain(settings_from())
    path = Path(output).absolute()

    def link(name: str, objects: Sequence[str], **_: object) -> None:
        link_shared([Path(each) for each in objects], Path(name), chosen)

    exportable = built if hasattr(built, "export_library") else built.mod
    with _headers_optional():
        exportable.export_library(str(path), fcompile=link)
    return path


@contextmanager
def _headers_optional() -> Iterator[None]:
    """Let TVM export C source where it is installed without its headers.

    Where every operator is offloaded, TVM's virtual machine has an empty module in the place of its
    own code, as C source; TVM's exporter then looks for headers that an empty file does not need.
    """
    find = module_of_tvm.find_include_path

    def found() -> list[str]:
        try:
            return list(find())
        except (AssertionError, RuntimeError):
            return []

    module_of_tvm.find_include_path = found
    try:
        yield
    finally:
        module_of_tvm.find_include_path = find
