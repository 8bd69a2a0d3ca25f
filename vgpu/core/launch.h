// A kernel launch: the checks that a GPU makes, the run, and the report of what went wrong.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/module.h"
#include "core/timing.h"
#include "exec/counters.h"

namespace vgpu {

struct LaunchShape {
  u32 grid[3] = {1, 1, 1};
  u32 block[3] = {1, 1, 1};
  u64 dynamic_shared = 0;
  u32 cluster[3] = {0, 0, 0};  // blocks of a cluster; 0: the launch does not say
  bool early_start = false;    // may start before the kernel ahead of it has ended
  bool cooperative = false;    // all blocks run at once, and may wait for each other
};

// Runs the kernel and returns when it is finished. The parameters are one buffer, laid out as the
// kernel wants them.
Code launch_packed(Kernel& kernel, const LaunchShape& shape, const void* buffer, u64 bytes);

// What a GPU refuses before it runs anything.
Code check_launch(Kernel& kernel, const LaunchShape& shape);
// One pointer per parameter, to the buffer that the kernel wants.
Code pack_arguments(Kernel& kernel, void** arguments, std::vector<u8>* buffer);

// A launch into a stream: at once, or as a node of the graph that the stream is capturing.
// `function` is what the caller knows the kernel by.
Code enqueue(void* stream, const void* function, Kernel& kernel, const LaunchShape& shape,
             void** arguments);
Code enqueue_packed(void* stream, const void* function, Kernel& kernel, const LaunchShape& shape,
                    const void* buffer, u64 bytes);
// The same as work of a graph's node. The arguments are copied now.
struct Work;
Code kernel_work(const void* function, Kernel& kernel, const LaunchShape& shape, void** arguments,
                 Work* work);

// Blocks of a cluster by dimension: as the launch, the kernel's attributes or its PTX say; else
// ones.
void cluster_of(const Kernel& kernel, const LaunchShape& shape, u32* cluster);
// Whether a device can run clusters of that size; and how many of them at once.
Code check_cluster(Kernel& kernel, const LaunchShape& shape);
Code max_active_clusters(Kernel& kernel, const LaunchShape& shape, int* clusters);
Code max_cluster_size(Kernel& kernel, const LaunchShape& shape, int* size);
// Attributes of clusters (CUfunction_attribute, cudaFuncAttribute): 10 to 15. `known` tells whether
// the number is one of them.
Code set_cluster_attribute(Kernel& kernel, int attribute, int value, bool* known);
bool cluster_attribute(const Kernel& kernel, int attribute, int* value);

struct KernelResources {
  u32 static_shared = 0;
  u32 local_bytes = 0;
  u32 registers = 0;
  u32 max_threads = 0;
  u32 max_dynamic_shared = 0;
  int capability = 0;
};
Code resources(Kernel& kernel, KernelResources* out);
// Largest dynamic shared memory a kernel may opt in to.
Code set_max_dynamic_shared(Kernel& kernel, int bytes);
// Blocks that fit a multiprocessor at once.
Code occupancy(Kernel& kernel, int block_threads, u64 dynamic_shared, int* blocks);

// Dynamic shared memory per block that leaves room for so many blocks on a multiprocessor.
Code available_shared(Kernel& kernel, int blocks, int block_threads, size_t* bytes);

struct LaunchRecord {
  std::string kernel;  // mangled
  u32 grid[3];
  u32 block[3];
  u64 dynamic_shared;
  u64 warp_instructions;
  double seconds;      // of the host
  double cpu_seconds;  // of all host threads that ran blocks
  ModelledTime time;   // where options say so
  // Null where the launch was not counted; only then there is more.
  std::shared_ptr<const Counters> counters;
  std::vector<WgmmaName> forms;  // that Counters::wgmma counts
  u32 registers;                 // a thread
  u64 static_shared;
  int resident_blocks;  // on a multiprocessor
  int resident_warps;
  double occupancy;  // of the warps that a multiprocessor can hold
};
// The counters of the launches that were counted: a JSON array.
std::string counters_json();
std::vector<LaunchRecord> launch_records();
void clear_launch_records();

}  // namespace vgpu
