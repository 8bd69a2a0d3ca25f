// Clusters of blocks: which a launch may ask for, and how many a device runs at once.
#include <algorithm>
#include <cstring>

#include "core/launch.h"
#include "core/launch_report.h"
#include "core/options.h"

namespace vgpu {
namespace {

constexpr u32 kPortable = 8;  // every device of compute capability 9 and above
constexpr u32 kMost = 16;     // with cudaFuncAttributeNonPortableClusterSizeAllowed
constexpr int kFirstWithClusters = 90;
// Multiprocessors that share their memory: a cluster lies within such a group. Source: NVIDIA H100
// white paper, GPCs of 9 TPCs; of an H100 SXM 132 multiprocessors are on.
constexpr int kGroup = 16;

Code refuse(Code code, const Kernel& kernel, const std::string& why) {
  return fail(code, "launch of kernel '" + kernel.short_name() + "': " + why);
}

}  // namespace

void cluster_of(const Kernel& kernel, const LaunchShape& shape, u32* cluster) {
  const Kernel::ClusterLimits limits = kernel.cluster();
  for (const u32* said : {shape.cluster, kernel.wanted_cluster, limits.shape}) {
    if (!said[0] && !said[1] && !said[2]) continue;
    std::memcpy(cluster, said, 3 * sizeof(u32));
    return;
  }
  for (u32 d = 0; d < 3; ++d) cluster[d] = 1;
}

Code check_cluster(Kernel& kernel, const LaunchShape& s) {
  const Kernel::ClusterLimits limits = kernel.cluster();
  u32 c[3];
  cluster_of(kernel, s, c);
  const std::string text = "a cluster of " + triple(c[0], c[1], c[2]) + " blocks";
  const u64 size = static_cast<u64>(c[0]) * c[1] * c[2];
  if (size == 0) return refuse(Code::kInvalidValue, kernel, text + ": a dimension is zero");
  const bool said = s.cluster[0] || kernel.wanted_cluster[0] || limits.shape[0];
  if (limits.required && !said) {
    return refuse(Code::kInvalidConfiguration, kernel,
                  "the kernel wants a cluster (.explicitcluster), and the launch names none");
  }
  if (limits.shape[0] && std::memcmp(c, limits.shape, sizeof(c)) != 0) {
    return refuse(Code::kInvalidClusterSize, kernel,
                  text + ", the kernel was compiled for " +
                      triple(limits.shape[0], limits.shape[1], limits.shape[2]));
  }
  if (said && options().device.capability < kFirstWithClusters) {
    return refuse(Code::kNotSupported, kernel,
                  text + ": " + options().device.name + " has no clusters (sm_90 has)");
  }
  for (u32 d = 0; d < 3; ++d) {
    if (s.grid[d] % c[d]) {
      return refuse(
          Code::kInvalidConfiguration, kernel,
          "the grid " + triple(s.grid[0], s.grid[1], s.grid[2]) + " is no multiple of " + text);
    }
  }
  if (limits.most && size > limits.most) {
    return refuse(Code::kInvalidClusterSize, kernel,
                  text + ", the kernel was compiled for " + std::to_string(limits.most) +
                      " at most (.maxclusterrank)");
  }
  const u32 allowed = kernel.non_portable_cluster ? kMost : kPortable;
  if (size > allowed) {
    return refuse(
        Code::kInvalidClusterSize, kernel,
        text + "; " + std::to_string(allowed) + " are allowed" +
            (allowed == kPortable ? ", 16 with cudaFuncAttributeNonPortableClusterSizeAllowed"
                                  : ""));
  }
  return Code::kSuccess;
}

Code max_active_clusters(Kernel& kernel, const LaunchShape& s, int* clusters) {
  *clusters = 0;
  if (const Code code = check_cluster(kernel, s); code != Code::kSuccess) return code;
  u32 c[3];
  cluster_of(kernel, s, c);
  int blocks = 0;
  const int threads = static_cast<int>(s.block[0] * s.block[1] * s.block[2]);
  const Code code = occupancy(kernel, threads, s.dynamic_shared, &blocks);
  if (code != Code::kSuccess) return code;
  const int size = static_cast<int>(c[0] * c[1] * c[2]);
  const int sms = options().device.multiprocessors;
  *clusters = sms / kGroup * (kGroup * blocks / size) + sms % kGroup * blocks / size;
  return Code::kSuccess;
}

Code max_cluster_size(Kernel& kernel, const LaunchShape& s, int* size) {
  int blocks = 0;
  const int threads = static_cast<int>(s.block[0] * s.block[1] * s.block[2]);
  const Code code = occupancy(kernel, threads, s.dynamic_shared, &blocks);
  if (code != Code::kSuccess) return code;
  const bool some = options().device.capability >= kFirstWithClusters;
  u32 most = kernel.non_portable_cluster ? kMost : kPortable;
  if (const u32 limit = kernel.cluster().most) most = std::min(most, limit);
  *size = blocks == 0 ? 0 : some ? static_cast<int>(most) : 1;
  return Code::kSuccess;
}

Code set_cluster_attribute(Kernel& kernel, int attribute, int value, bool* known) {
  *known = attribute >= 11 && attribute <= 15;
  if (!*known) return Code::kSuccess;
  if (attribute <= 13) {
    if (value < 0)
      return fail(Code::kInvalidValue, "a cluster's extent of " + std::to_string(value));
    if (kernel.cluster().shape[0])
      return fail(Code::kInvalidValue, "kernel '" + kernel.short_name() +
                                           "' was compiled for a cluster (.reqnctapercluster)");
    kernel.wanted_cluster[attribute - 11] = static_cast<u32>(value);
  } else if (attribute == 14) {
    kernel.non_portable_cluster = value != 0;
  }
  return Code::kSuccess;  // the scheduling policy is a hint
}

bool cluster_attribute(const Kernel& kernel, int attribute, int* value) {
  const Kernel::ClusterLimits limits = kernel.cluster();
  const u32* shape = kernel.wanted_cluster[0] ? kernel.wanted_cluster : limits.shape;
  if (attribute == 10) {
    *value = limits.required;
  } else if (attribute >= 11 && attribute <= 13) {
    *value = static_cast<int>(shape[attribute - 11]);
  } else if (attribute == 14) {
    *value = kernel.non_portable_cluster;
  } else {
    return false;
  }
  return true;
}

}  // namespace vgpu
