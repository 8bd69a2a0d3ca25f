// Launches with attributes: clusters by attribute and by the kernel's own word, their limits, and
// kernels that begin before the one ahead of them in the stream has ended. Prints what CUDA says.
#include <cooperative_groups.h>

#include <cstdio>
#include <vector>

#define CHECK(call)                                                       \
  do {                                                                    \
    const cudaError_t error = (call);                                     \
    if (error != cudaSuccess) {                                           \
      std::printf("line %d: %s: %s\n", __LINE__, cudaGetErrorName(error), \
                  cudaGetErrorString(error));                             \
      return 1;                                                           \
    }                                                                     \
  } while (0)

// Each block writes its rank in its cluster, and how many that has.
static __device__ void write_rank(int* out) {
#if __CUDA_ARCH__ >= 900
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  cluster.sync();
  out[blockIdx.x] = static_cast<int>(cluster.block_rank() + 100 * cluster.num_blocks());
#else
  out[blockIdx.x] = -1;
#endif
}
#if __CUDA_ARCH__ >= 900
#define OF_FOUR __cluster_dims__(4, 1, 1)
#else
#define OF_FOUR
#endif
__global__ void ranks(int* out) { write_rank(out); }
__global__ void OF_FOUR ranks_of_four(int* out) { write_rank(out); }

__global__ void produce(int* data, int value) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  data[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void consume(const int* data, int* out) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = 2 * data[at] + 1;
}

static cudaLaunchConfig_t configuration(unsigned grid, unsigned block, cudaLaunchAttribute* list,
                                        unsigned cluster) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  if (cluster) {
    list[0].id = cudaLaunchAttributeClusterDimension;
    list[0].val.clusterDim.x = cluster;
    list[0].val.clusterDim.y = list[0].val.clusterDim.z = 1;
    config.attrs = list;
    config.numAttrs = 1;
  }
  return config;
}

static int expect(const int* device, unsigned grid, int size) {
  std::vector<int> found(grid);
  CHECK(cudaMemcpy(found.data(), device, grid * sizeof(int), cudaMemcpyDeviceToHost));
  for (unsigned k = 0; k < grid; ++k) {
    const int wanted = static_cast<int>(k) % size + 100 * size;
    if (found[k] != wanted) {
      std::printf("block %u: %d, want %d\n", k, found[k], wanted);
      return 1;
    }
  }
  return 0;
}

static void say(const char* what, cudaError_t error) {
  std::printf("%s: %d %s\n  %s\n", what, static_cast<int>(error), cudaGetErrorName(error),
              cudaGetErrorString(error));
  cudaGetLastError();
}

int main(int argc, char**) {
  cudaLaunchAttribute list[2];
  int* out;
  CHECK(cudaMalloc(&out, 4096 * sizeof(int)));
  if (argc > 1) {  // what cannot be
    cudaLaunchConfig_t config = configuration(10, 32, list, 4);
    say("no multiple", cudaLaunchKernelEx(&config, ranks, out));
    config = configuration(18, 32, list, 9);
    say("nine", cudaLaunchKernelEx(&config, ranks, out));
    config = configuration(8, 32, list, 2);
    say("two", cudaLaunchKernelEx(&config, ranks, out));
    say("another size", cudaLaunchKernelEx(&config, ranks_of_four, out));
    ranks_of_four<<<10, 32>>>(out);
    say("no multiple of its own", cudaGetLastError());
    CHECK(cudaFuncSetAttribute(ranks, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    config = configuration(34, 32, list, 17);
    say("seventeen", cudaLaunchKernelEx(&config, ranks, out));
    int clusters = -1;
    config = configuration(9, 32, list, 9);
    say("occupancy of nine", cudaOccupancyMaxActiveClusters(&clusters, ranks_of_four, &config));
    return 0;
  }

  for (const unsigned size : {1u, 2u, 3u, 8u}) {
    cudaLaunchConfig_t config = configuration(6 * size, 64, list, size);
    CHECK(cudaMemset(out, 0xFF, 4096));
    CHECK(cudaLaunchKernelEx(&config, ranks, out));
    if (expect(out, 6 * size, static_cast<int>(size))) return 1;
  }
  CHECK(cudaMemset(out, 0xFF, 4096));
  ranks_of_four<<<12, 64>>>(out);
  CHECK(cudaGetLastError());
  if (expect(out, 12, 4)) return 1;
  cudaLaunchConfig_t config = configuration(12, 64, list, 4);  // the same, said twice
  CHECK(cudaLaunchKernelEx(&config, ranks_of_four, out));

  CHECK(cudaFuncSetAttribute(ranks, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  config = configuration(32, 64, list, 16);
  CHECK(cudaMemset(out, 0xFF, 4096));
  CHECK(cudaLaunchKernelEx(&config, ranks, out));
  if (expect(out, 32, 16)) return 1;

  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, ranks_of_four));
  if (attributes.requiredClusterWidth != 4 || attributes.requiredClusterHeight != 1) {
    std::printf("required cluster: %d\n", attributes.requiredClusterWidth);
    return 1;
  }
  int largest = 0;
  CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, ranks_of_four, &config));
  std::printf("largest %d\n", largest);
  for (const unsigned size : {1u, 2u, 8u, 16u}) {
    int clusters = 0;
    config = configuration(size, 1024, list, size);
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, ranks, &config));
    std::printf("clusters of %u: %d\n", size, clusters);
  }

  int* data;
  CHECK(cudaMalloc(&data, 1024 * sizeof(int)));
  CHECK(cudaMemset(data, 0, 1024 * sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  list[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  list[0].val.programmaticStreamSerializationAllowed = 1;
  for (int round = 1; round <= 3; ++round) {
    cudaLaunchConfig_t early = {};
    early.gridDim = dim3(8);
    early.blockDim = dim3(128);
    early.stream = stream;
    early.attrs = list;
    early.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&early, produce, data, round));
    CHECK(cudaLaunchKernelEx(&early, consume, static_cast<const int*>(data), out));
    std::vector<int> found(1024);
    CHECK(cudaMemcpyAsync(found.data(), out, 4096, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (const int value : found) {
      if (value != 2 * round + 1) {
        std::printf("round %d: %d\n", round, value);
        return 1;
      }
    }
  }
  CHECK(cudaFree(data));
  CHECK(cudaFree(out));
  std::puts("passed");
  return 0;
}
