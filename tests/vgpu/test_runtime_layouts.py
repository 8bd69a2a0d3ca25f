"""CUDA's structures, as programs compiled against CUDA's own headers of 12 and 13 see them.

The headers of 12 are those of the wheel `nvidia-cuda-runtime-cu12`, which the environment with
Relay (`make relay-env`) brings.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from

RUNTIMES = ("libcudart.so.12", "libcudart.so.13")

PROGRAM = """
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  struct { cudaDeviceProp p; char guard[64]; } s;
  memset(&s, 0x5a, sizeof s);
  if (cudaGetDeviceProperties(&s.p, 0)) return 1;
  for (int i = 0; i < 64; ++i) if (s.guard[i] != 0x5a) return 2;
  printf("%s|%zu|%zu|%d|%d|%d.%d|%d|%d|%d|%d|%zu|%zu|%d|%zu|%d|%d\\n", s.p.name, s.p.totalGlobalMem,
         s.p.sharedMemPerBlock, s.p.regsPerBlock, s.p.maxGridSize[1], s.p.major, s.p.minor,
         s.p.multiProcessorCount, s.p.memoryBusWidth, s.p.l2CacheSize,
         s.p.maxThreadsPerMultiProcessor, s.p.sharedMemPerMultiprocessor,
         s.p.sharedMemPerBlockOptin, s.p.maxBlocksPerMultiProcessor,
         s.p.reservedSharedMemPerBlock, s.p.clusterLaunch, s.p.reserved[55]);
  void *device = 0, *host = 0;
  struct { cudaPointerAttributes a; char guard[64]; } q;
  memset(&q, 0x5a, sizeof q);
  if (cudaMalloc(&device, 1000) || cudaMallocHost(&host, 1000)) return 3;
  if (cudaPointerGetAttributes(&q.a, (char*)device + 999)) return 4;
  for (int i = 0; i < 64; ++i) if (q.guard[i] != 0x5a) return 5;
  printf("%d", q.a.type == cudaMemoryTypeDevice);
  cudaPointerGetAttributes(&q.a, host);
  printf("%d", q.a.type == cudaMemoryTypeHost);
  cudaPointerGetAttributes(&q.a, &host);
  printf("%d ", q.a.type == cudaMemoryTypeUnregistered);
  size_t before, after, total;
  cudaMemGetInfo(&before, &total);
  printf("%d ", cudaFree(device));
  cudaMemGetInfo(&after, &total);
  const int again = cudaFree(device);
  printf("%zu %d %s ", after - before, again, cudaGetErrorName(cudaGetLastError()));
  cudaEvent_t a, b;
  cudaStream_t stream;
  float ms = -1;
  cudaStreamCreate(&stream);
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  cudaEventRecord(a, stream);
  cudaEventRecord(b, stream);
  const int timed = cudaEventElapsedTime(&ms, a, b);
  printf("%d %d", timed, ms >= 0);
  return 0;
}
"""


# Clocks were in cudaDeviceProp until 12; graphs have data of edges since 13.
ONLY_12 = """
#include <cuda_runtime_api.h>
#include <stdio.h>
int main(void) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, 0)) return 1;
  int version = 0;
  if (cudaRuntimeGetVersion(&version)) return 2;
  printf("%d %d %d %d %d", p.clockRate > 0, p.memoryClockRate > 0, p.deviceOverlap,
         p.cooperativeMultiDeviceLaunch, version / 1000);
  return 0;
}
"""
GRAPH = """
#include <cuda_runtime_api.h>
#include <stdio.h>
#if CUDART_VERSION >= 13000
#define EDGES nullptr,
#else
#define EDGES
#endif
int called = 0;
void call(void*) { ++called; }
int main(void) {
  cudaGraph_t graph;
  cudaGraphNode_t first, second, third, found[4];
  cudaGraphExec_t executable;
  int* x;
  int value = 0;
  size_t count = 4;
  if (cudaMalloc((void**)&x, 400) || cudaGraphCreate(&graph, 0)) return 1;
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeMemset;
  p.memset.dst = x;
  p.memset.value = 7;
  p.memset.elementSize = 4;
  p.memset.width = 100;
  p.memset.height = 1;
  if (cudaGraphAddNode(&first, graph, nullptr, EDGES 0, &p)) return 2;
  if (cudaGraphAddMemcpyNode1D(&second, graph, nullptr, 0, &value, x + 99, 4,
                               cudaMemcpyDeviceToHost)) return 3;
  if (cudaGraphAddDependencies(graph, &first, &second, EDGES 1)) return 4;
  p = {};
  p.type = cudaGraphNodeTypeHost;
  p.host.fn = call;
  if (cudaGraphAddNode(&third, graph, &second, EDGES 1, &p)) return 5;
  cudaGraphNode_t from[4], to[4];
  if (cudaGraphGetEdges(graph, from, to, EDGES &count) || count != 2 || to[0] != second) return 6;
  count = 4;
  if (cudaGraphNodeGetDependencies(third, found, EDGES &count) || count != 1) return 7;
  count = 4;
  if (cudaGraphNodeGetDependentNodes(first, found, EDGES &count) || found[0] != second) return 8;
  if (cudaGraphRemoveDependencies(graph, &second, &third, EDGES 1)) return 9;
  cudaGraphInstantiateParams how = {};
  if (cudaGraphInstantiateWithParams(&executable, graph, &how) || how.result_out) return 10;
  cudaGraphExecUpdateResultInfo info;
  if (cudaGraphExecUpdate(executable, graph, &info) || info.result) return 11;
  if (cudaGraphLaunch(executable, 0) || cudaDeviceSynchronize()) return 12;
  printf("%d %d", value, called);
  return 0;
}
"""


def output_of(program: str, runtime: Path, folder: Path) -> str:
    """What a program prints that is compiled against the headers of its runtime's own CUDA."""
    tools = find_toolchain(settings_from())
    headers = tools.nvcc.include  # of 13; its crt/, macros for the compiler, serves 12 as well
    if runtime.name.endswith("12"):
        environment = Path(__file__).parents[2] / ".venv-relay"
        (headers,) = environment.glob("lib/python3.*/site-packages/nvidia/cuda_runtime/include")
    (folder / "program.cpp").write_text(program)
    command = [
        *(str(tools.cxx.path), "-w", "-I", str(headers), "-o", "program", "program.cpp"),
        *("-idirafter", str(tools.nvcc.include)),
        *(str(runtime), f"-Wl,-rpath,{runtime.parent}"),
    ]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(
        [folder / "program"],
        env={"BOLTGEN_VGPU": "device=sm_80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_structures_have_cudas_layout(library_folder: Path, tmp_path: Path, runtime: str) -> None:
    text = PROGRAM if runtime.endswith("13") else PROGRAM.replace("reserved[55]", "reserved[59]")
    properties, calls = output_of(text, library_folder / runtime, tmp_path).split("\n")
    assert properties == (
        f"vgpu sm_80 (A100)|{40 << 30}|49152|65536|65535|8.0|108|5120|{40 << 20}|2048|"
        f"{164 << 10}|{163 << 10}|32|1024|0|0"
    )
    assert calls == "111 0 1000 1 cudaErrorInvalidValue 0 1"


def test_what_only_cuda_12_has(library_folder: Path, tmp_path: Path) -> None:
    assert output_of(ONLY_12, library_folder / RUNTIMES[0], tmp_path) == "1 1 1 0 12"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nodes_of_graphs_have_cudas_layout(
    library_folder: Path, tmp_path: Path, runtime: str
) -> None:
    assert output_of(GRAPH, library_folder / runtime, tmp_path) == "7 1"
