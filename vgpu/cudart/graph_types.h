// Parameters of graph nodes as CUDA lays them out, in 12 and 13 alike (driver_types.h).
#pragma once

#include "cudart/types.h"

extern "C" {

struct cudaKernelNodeParams {
  void* func;
  vgpu_dim3 gridDim;
  vgpu_dim3 blockDim;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
};

struct cudaPos {
  size_t x, y, z;
};
struct cudaExtent {
  size_t width, height, depth;
};
struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct cudaMemcpy3DParms {
  void* srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  void* dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  int kind;
};

struct cudaMemsetParams {
  void* dst;
  size_t pitch;
  unsigned value;
  unsigned elementSize;
  size_t width;
  size_t height;
};

struct cudaHostNodeParams {
  void (*fn)(void*);
  void* userData;
};

struct cudaMemAllocNodeParams {
  struct {
    int allocType, handleTypes;
    struct {
      int type, id;
    } location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
  } poolProps;
  const void* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  void* dptr;
};

// Any node. The kinds below begin with the same fields as the structures above.
struct cudaGraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    cudaKernelNodeParams kernel;
    struct {
      int flags;
      int reserved[3];
      cudaMemcpy3DParms copyParams;
    } memcpy;
    cudaMemsetParams memset;
    cudaHostNodeParams host;
    struct {
      void* graph;
    } child;
    struct {
      void* event;
    } event;  // recorded, or waited for
    cudaMemAllocNodeParams alloc;
    struct {
      void* dptr;
    } free;
    struct {
      unsigned long long handle;
      int type;
      unsigned size;
      void** graphs;
    } conditional;
  };
  long long reserved2;
};

struct cudaGraphExecUpdateResultInfo {
  int result;
  void* errorNode;
  void* errorFromNode;
};

struct cudaGraphInstantiateParams {
  unsigned long long flags;
  void* uploadStream;
  void* errNode_out;
  int result_out;
};

static_assert(sizeof(cudaKernelNodeParams) == 56 && sizeof(cudaMemcpy3DParms) == 160);
static_assert(sizeof(cudaMemsetParams) == 40 && sizeof(cudaMemAllocNodeParams) == 120);
static_assert(sizeof(cudaGraphNodeParams) == 256);
}
