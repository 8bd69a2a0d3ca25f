"""CUDA's structures, as a program compiled against CUDA's own headers sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from

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


def test_structures_have_cudas_layout(library_folder: Path, tmp_path: Path) -> None:
    tools = find_toolchain(settings_from())
    (tmp_path / "layouts.cpp").write_text(PROGRAM)
    command = [
        *(str(tools.cxx.path), "-w", "-I", str(tools.nvcc.include), "-o", "layouts", "layouts.cpp"),
        *(str(library_folder / "libcudart.so.13"), f"-Wl,-rpath,{library_folder}"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "layouts"],
        env={"BOLTGEN_VGPU": "device=sm_80"},
        capture_output=True,
        text=True,
        check=True,
    )
    properties, calls = done.stdout.split("\n")
    assert properties == (
        f"vgpu sm_80 (A100)|{40 << 30}|49152|65536|65535|8.0|108|5120|{40 << 20}|2048|"
        f"{164 << 10}|{163 << 10}|32|1024|0|0"
    )
    assert calls == "111 0 1000 1 cudaErrorInvalidValue 0 1"
