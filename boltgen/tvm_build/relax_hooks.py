"""Give TVM boltgen's nvcc and linker, which it needs to compile a partitioned Relax module.

TVM compiles CUDA with NVRTC and links with the nvcc on PATH; boltgen's users usually have neither.
boltgen's nvcc is in a Python package, in whose folders no linker searches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi
from tvm.support import cc as tvm_cc

from boltgen.arch import ARCHES
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import ToolchainError
from boltgen.settings import settings_from
from boltgen.tvm_build.cuda_compiler import CALLBACK, compile_cuda

# Suffixes of files that are linked without compiling: objects and archives.
_LINKED = frozenset({".o", ".a"})
# A function that nvcc's host code calls.
_REGISTRATION = b"__cudaRegisterFatBinary"


def install_cuda_compiler() -> None:
    """Make TVM compile CUDA with boltgen's nvcc, through the cache, for its target's architecture.

    An architecture unknown to boltgen is compiled by TVM's own callback.
    """
    previous = tvm_ffi.get_global_func(CALLBACK, allow_missing=True)

    def compile_text(code: str) -> bytes:
        target = tvm.target.Target.current(allow_none=True)
        arch = "" if target is None else str(target.attrs.get("arch") or "")
        if not arch:
            raise ToolchainError(
                "TVM has no current target that names an architecture, so nvcc cannot compile for "
                'it: build inside `with target:`, where target is tvm.target.Target({"kind": '
                '"cuda", "arch": "sm_80"}, host="llvm")'
            )
        if arch not in ARCHES and previous is not None:
            return bytes(previous(code))
        settings = settings_from()
        tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
        return compile_cuda(code, arch, tools, cache).path.read_bytes()

    tvm_ffi.register_global_func(CALLBACK, compile_text, override=True)


def install_linker() -> None:
    """Make TVM link libraries with CUDA kernels as boltgen does, with the CUDA runtime.

    It applies to `export_library(path)` and to `relax.VirtualMachine(executable, ...)`, which also
    links: without the runtime the dynamic linker would end the process that loads the library. It
    also applies to `export_library(path, cc="nvcc")`, even without nvcc: nvcc would link the static
    runtime, which it does not find in PyPI's packages and which the virtual GPU cannot replace. TVM
    still handles any other `cc`, the user's own options, and sources for nvcc.
    """
    previous = tvm_cc.create_shared

    @functools.wraps(previous)
    def create_shared(
        output: str,
        objects: Sequence[str],
        options: Sequence[str] | None = None,
        cc: str | None = None,
        **others: object,
    ) -> None:
        paths = [Path(name) for name in objects]
        is_ours = cc == "nvcc" or (cc is None and any(map(_has_kernels, paths)))
        if not is_ours or options or others or any(p.suffix not in _LINKED for p in paths):
            previous(output, objects, options, cc, **others)
            return
        link_shared(paths, Path(output).absolute(), find_toolchain(settings_from()))

    tvm_cc.create_shared = create_shared


def _has_kernels(path: Path) -> bool:
    """Return whether an object registers CUDA kernels with the runtime when it is loaded."""
    return _REGISTRATION in path.read_bytes()
