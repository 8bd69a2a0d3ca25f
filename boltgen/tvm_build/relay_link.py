"""Arrow: from a partitioned Relay module, built by TVM, to one shared library."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay
from tvm.relay.backend.executor_factory import ExecutorFactoryModule
from tvm.runtime import module as tvm_module
from tvm.target import Target

from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.errors import ToolchainError
from boltgen.frontend.relay.versions import cuda_compile_callback
from boltgen.settings import settings_from
from boltgen.tvm_build.cuda_compiler import CALLBACK, CudaCompiler, compile_cuda
from boltgen.tvm_build.lowering import relay_special_values
from boltgen.tvm_build.lowering.relay_nan_order import with_ordered_nan


def cuda_target(arch: Arch) -> Target:
    """Return TVM's target for `arch`."""
    return Target(f"cuda -arch={arch.name}", host="llvm")


def install_cuda_compiler() -> None:
    """Make TVM compile CUDA with boltgen's nvcc, through the cache, for its target's architecture.

    TVM's own callback needs a CUDA toolkit on the system, and the code that these versions of TVM
    generate must be changed for CUDA 12.8 or later.
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
    """Return `code` for CUDA 12.8 and later, whose headers define TVM's `htanh`, too."""
    return re.sub(r"\bhtanh\b", "tvm_htanh", code)


def build_library(
    module: tvm.IRModule, arch: Arch, tools: Toolchain, cache: Cache
) -> tuple[Any, list[Path]]:
    """Build `module` with TVM for the graph executor; also return TVM's CUDA sources.

    Raises:
        CompileError: nvcc rejects TVM's sources.
    """
    compiler = CudaCompiler(arch, tools, cache)
    callback = cuda_compile_callback(lambda code, _target: compiler.compile(_accepted(code)))
    with (
        compiler.installed(callback, tvm.get_global_func, tvm.register_func),
        # Not the root context, in which TVM would download schedules.
        autotvm.apply_history_best([]),
        tvm.transform.PassContext(opt_level=3, config=relay_special_values.config()),
    ):
        return relay.build(with_ordered_nan(module), target=cuda_target(arch)), compiler.sources


def export_library(built: Any, output: str | Path, tools: Toolchain | None = None) -> Path:
    """Write the result of `relay.build` or `relay.vm.compile` to one shared library.

    The library finds the CUDA runtime, a GPU's or the virtual GPU's, by its soname in the process
    that loads it.

    Raises:
        ToolchainError: the linker fails.
    """
    chosen = tools or find_toolchain(settings_from())
    path = Path(output).absolute()

    def link(name: str, objects: Sequence[str], **_: object) -> None:
        link_shared([Path(each) for each in objects], Path(name), chosen)

    exportable = built if hasattr(built, "export_library") else built.mod
    exportable.export_library(str(path), fcompile=link)
    return path


def install_linking() -> None:
    """Make the results of `relay.build` and `relay.vm.compile` run without an export.

    TVM finds kernels that are object files only in a linked library. The first executor of a build
    therefore links one, in a file that is deleted once it is loaded.
    """
    factory, machine = ExecutorFactoryModule, tvm.runtime.vm.VirtualMachine
    get_item, make_machine = factory.__getitem__, machine.__init__

    @functools.wraps(get_item)
    def __getitem__(self: Any, item: str) -> Any:  # noqa: N807 (TVM's class gets it)
        if not _has_objects(self.module):
            return get_item(self, item)
        if not hasattr(self, _LINKED):
            setattr(self, _LINKED, _linked(self))
        return getattr(self, _LINKED)[item]

    @functools.wraps(make_machine)
    def __init__(self: Any, exe: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        if isinstance(exe, tvm.runtime.vm.Executable) and _has_objects(exe.mod):
            code, library = exe.save()
            exe = tvm.runtime.vm.Executable.load_exec(code, _linked(library))
        make_machine(self, exe, *arguments, **options)

    factory.__getitem__, machine.__init__ = __getitem__, __init__
    tvm_module.find_include_path = _optional_headers(tvm_module.find_include_path)


def _optional_headers(find: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Wrap `find` to return nothing for a TVM without headers, where TVM's own function fails.

    Its virtual machine links a model without TVM kernels with an empty C source, which needs no
    headers. A source that needs them still fails to compile, with the compiler's message.
    """

    @functools.wraps(find)
    def find_include_path() -> list[str]:
        try:
            return find()
        except (AssertionError, RuntimeError):
            return []

    return find_include_path


# The attribute in which a build stores its linked library.
_LINKED = "_boltgen_linked"


def _has_objects(built: Any) -> bool:
    """Return whether `built` imports kernels that must be linked before they run."""
    seen, waiting = [built], [built]
    while waiting:
        for imported in waiting.pop().imported_modules:
            if imported.type_key == "static_library":
                return True
            if imported not in seen:
                seen.append(imported)
                waiting.append(imported)
    return False


def _linked(built: Any) -> Any:
    with tempfile.TemporaryDirectory(prefix="boltgen-relay-") as folder:
        return tvm.runtime.load_module(str(export_library(built, Path(folder) / "built.so")))
