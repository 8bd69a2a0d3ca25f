"""A region's call takes no memory of the host's: counted, with stubs in place of its kernels."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.kernel_launch import Cuda
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.codegen.adapter import render_adapter
from boltgen.settings import settings_from
from tests.kernels.test_adapter_execution import LAUNCHES, Regions, stored_arguments

# All that the adapter calls for memory is here: the library is linked to itself, and has its own
# copy of the C++ runtime.
COUNTER = """
#include <cstddef>
#include <new>
extern "C" {
void* __libc_malloc(size_t bytes);
void __libc_free(void* memory);
long counted = 0;
long allocations() { return counted; }
void* malloc(size_t bytes) { ++counted; return __libc_malloc(bytes); }
void free(void* memory) { __libc_free(memory); }
}
void* operator new(size_t bytes) { return malloc(bytes); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
"""
STUB = 'extern "C" int {}(void const*, void*) {{ return 0; }}\n'


@pytest.fixture(scope="module")
def library(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = settings_from()
    tools = find_toolchain(chosen)
    launches = list(LAUNCHES.values())
    unit = adapter_unit("test", render_adapter(launches), tools)
    adapter = compile_unit(unit, Cache(chosen.cache_dir))
    assert isinstance(adapter, CompiledObject), adapter.message
    symbols = {kernel for launch in launches for kernel in launch.kernels}
    symbols |= {move.kernel for launch in launches for move in launch.memory.moves}
    folder = tmp_path_factory.mktemp("host_memory")
    source, made = folder / "stubs.cc", folder / "libstubs.so"
    source.write_text(COUNTER + "".join(map(STUB.format, sorted(symbols))))
    runtime = tools.nvcc.runtime
    command = [str(tools.cxx.path), "-shared", "-fPIC", "-static-libstdc++", "-Wl,-Bsymbolic"]
    command += [str(source), str(adapter.path), f"-L{runtime.parent}", f"-l:{runtime.name}"]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_call_takes_no_memory(
    name: str, library: Path, cuda: Cuda, rng: np.random.Generator
) -> None:
    import tvm

    module, gpu = tvm.runtime.load_module(str(library)), tvm.cuda(0)
    regions = Regions(module, tvm.runtime.tensor, gpu, tvm.cpu(0))
    tensors = [regions.tensor(array, gpu) for array in stored_arguments(LAUNCHES[name], rng)]
    allocations = ctypes.CDLL(str(library)).allocations
    allocations.restype = ctypes.c_long
    regions(name, *tensors)
    before = allocations()
    for _ in range(3):
        regions(name, *tensors)
    assert allocations() == before

    with pytest.raises(Exception, match=f"boltgen region {name}"):
        regions(name, *reversed(tensors))
    assert allocations() > before, "messages do: the counter counts"
