"""Accesses to an intermediate in shared memory, and to later layers' B, have no bank conflicts.

Counted apart from the first layer and the last epilogue, which are CUTLASS's and have some.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.kernels import split_k_cases
from benchmarks.harness.kernel_launch import Cuda
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.source import KernelSource
from boltgen.settings import settings_from

SOURCE = Path(__file__).parent / "staging.cu"
ROWS, DEPTH = 32, 32
INTERMEDIATE, COLUMN_MAJOR_B, ROW_MAJOR_B = range(3)


@pytest.fixture(scope="module")
def staging(cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    chosen = settings_from()
    tools = find_toolchain(chosen)
    source = KernelSource(
        spec=split_k_cases()[0].spec,
        symbol="staging",
        workspace_symbol="",
        text=SOURCE.read_text(),
    )
    compiled = compile_unit(kernel_unit(source, tools, DeviceCode.PTX), Cache(chosen.cache_dir))
    assert isinstance(compiled, CompiledObject), compiled.message
    path = tmp_path_factory.mktemp("staging") / "libstaging.so"
    return ctypes.CDLL(str(link_shared([compiled.path], path, tools)))


@pytest.fixture
def counting(cuda: Cuda) -> Iterator[Cuda]:
    cuda.become("sm_80")
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    yield cuda
    cuda.vgpu.set_option("counters", "off")
    cuda.free_all()


@pytest.mark.parametrize("columns", [16, 32, 48, 64, 96, 128, 256])
@pytest.mark.parametrize(
    ("access", "requests"),
    [
        # Stores of four bytes a lane to 8x8 elements; loads of 16x16.
        (INTERMEDIATE, lambda n: ROWS * n // 64 + ROWS * n // 256),
        # Copies of sixteen bytes a lane; loads of 16x16.
        (COLUMN_MAJOR_B, lambda n: 2 * n * DEPTH // 256),
        # Rows beyond 32 columns are copied as whole blocks of 64.
        (ROW_MAJOR_B, lambda n: (n if n <= 32 else -(-n // 64) * 64) * DEPTH // 256 + n // 8),
    ],
    ids=["intermediate", "column-major", "row-major"],
)
def test_no_access_has_bank_conflicts(columns, access, requests, staging, counting) -> None:
    b = counting.upload(np.zeros((256, 64), np.float16))
    result = counting.upload(np.zeros(32, np.uint32))
    arguments = (ctypes.c_void_p(b), ctypes.c_void_p(result))
    counting.check(staging.run_staging(columns, access, *arguments))
    counting.synchronise()
    (counted,) = counting.vgpu.counters()
    assert counted["shared"]["requests"] == requests(columns)
    assert counted["shared"]["bank_conflicts"] == 0
