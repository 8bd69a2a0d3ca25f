// Attributes of streams, memory in three dimensions, and what is refused by its name.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#define CHECK(what)                                \
  if (!(what)) {                                   \
    std::printf("line %d: %s\n", __LINE__, #what); \
    return 1;                                      \
  }

static bool well(cudaError_t error) { return error == cudaSuccess; }

int main() {
  cudaStream_t stream, other;
  CHECK(well(cudaStreamCreate(&stream)) && well(cudaStreamCreate(&other)));
  cudaStreamAttrValue value = {};
  CHECK(well(cudaStreamGetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value)));
  CHECK(value.syncPolicy == cudaSyncPolicyAuto);
  value = {};
  value.accessPolicyWindow.num_bytes = 4096;
  value.accessPolicyWindow.hitRatio = 0.5f;
  CHECK(well(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value)));
  CHECK(well(cudaStreamCopyAttributes(other, stream)));
  value = {};
  CHECK(well(cudaStreamGetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &value)));
  CHECK(value.accessPolicyWindow.num_bytes == 4096 && value.accessPolicyWindow.hitRatio == 0.5f);
  CHECK(cudaStreamSetAttribute(stream, static_cast<cudaLaunchAttributeID>(2), &value) ==
        cudaErrorInvalidValue);

  // A cuboid of bytes: one of them is read back from its plane.
  const cudaExtent extent = make_cudaExtent(100, 3, 2);
  cudaPitchedPtr cuboid;
  CHECK(well(cudaMalloc3D(&cuboid, extent)) && cuboid.pitch >= 100 && cuboid.ysize == 3);
  CHECK(well(cudaMemset3D(cuboid, 7, extent)));
  unsigned char host[2][3][100] = {};
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = cuboid;
  copy.dstPtr = make_cudaPitchedPtr(host, 100, 100, 3);
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(well(cudaMemcpy3D(&copy)));
  for (const auto& plane : host) {
    for (const auto& row : plane) {
      for (const unsigned char byte : row) CHECK(byte == 7);
    }
  }

  unsigned long long bytes = 1;
  CHECK(well(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes)));
  CHECK(bytes == 0 && well(cudaDeviceGraphMemTrim(0)));
  char id[16];
  int device = -1;
  CHECK(well(cudaDeviceGetPCIBusId(id, sizeof(id), 0)));
  CHECK(well(cudaDeviceGetByPCIBusId(&device, id)) && device == 0);

  // Nodes of a graph that allocate and free.
  cudaGraph_t graph;
  cudaGraphNode_t allocates, frees;
  cudaMemAllocNodeParams wanted = {}, found = {};
  wanted.bytesize = 256;
  wanted.poolProps.allocType = cudaMemAllocationTypePinned;
  wanted.poolProps.location = {cudaMemLocationTypeDevice, 0};
  CHECK(well(cudaGraphCreate(&graph, 0)));
  CHECK(well(cudaGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &wanted)) && wanted.dptr);
  CHECK(well(cudaGraphAddMemFreeNode(&frees, graph, &allocates, 1, wanted.dptr)));
  CHECK(well(cudaGraphMemAllocNodeGetParams(allocates, &found)));
  CHECK(found.dptr == wanted.dptr && found.bytesize == 256);
  CHECK(found.poolProps.allocType == cudaMemAllocationTypePinned);
  CHECK(found.poolProps.location.type == cudaMemLocationTypeDevice);
  void* freed = nullptr;
  CHECK(well(cudaGraphMemFreeNodeGetParams(frees, &freed)) && freed == wanted.dptr);
  CHECK(cudaGraphMemFreeNodeGetParams(allocates, &freed) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);

  // Textures: the description is there, the array is not.
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  CHECK(format.x == 32 && format.w == 32 && format.f == cudaChannelFormatKindFloat);
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 16, 16) == cudaErrorNotSupported);
  CHECK(cudaMallocArray(&array, &format, 16, 16) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, nullptr, nullptr, nullptr) == cudaErrorNotSupported);
  cudaIpcMemHandle_t handle;
  CHECK(cudaIpcGetMemHandle(&handle, cuboid.ptr) == cudaErrorNotSupported);
  std::puts("passed");
}
