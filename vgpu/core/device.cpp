#include "core/device.h"

#include <cstdlib>

namespace vgpu {
namespace {

constexpr u64 kGiB = 1ull << 30;
constexpr int kKiB = 1024;
constexpr int kMiB = 1024 * 1024;

// Results each clock: CUDA C++ Best Practices Guide 13.0, "Throughput of Native Arithmetic
// Instructions"; of its conversions the slowest. FP16 tensor cores: NVIDIA's white papers of
// Turing, GA100, GA102, Ada and Hopper, whose mma.sync has 62.9 % of wgmma's rate (Luo et al.,
// Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024), which NVIDIA gives at 1830
// MHz. L2: GA100's white paper, p. 35; of Hopper Luo et al., Table V. Of Turing, GA102 and Ada
// there is no figure of NVIDIA's: 20 bytes for each multiprocessor, an estimate. Latency: Luo et
// al., Table IV, for sm_80 and sm_90; the others are estimates of that size. PCIe: 3.0, 4.0 or 5.0
// with 16 lanes, by the products' data sheets.
constexpr DeviceModel kDevices[] = {
    {75,
     "vgpu sm_75 (T4)",
     40,
     1024,
     16,
     65536,
     64 * kKiB,
     64 * kKiB,
     4 * kMiB,
     1590000,
     5001000,
     256,
     15 * kGiB,
     32,
     {64, 128, 2, 16, 1024, 800, 480, 16000}},
    {80,
     "vgpu sm_80 (A100)",
     108,
     2048,
     32,
     65536,
     164 * kKiB,
     163 * kKiB,
     40 * kMiB,
     1410000,
     1215000,
     5120,
     40 * kGiB,
     2,
     {64, 256, 32, 16, 2048, 5120, 466, 32000}},
    {86,
     "vgpu sm_86 (A10)",
     72,
     1536,
     16,
     65536,
     100 * kKiB,
     99 * kKiB,
     6 * kMiB,
     1695000,
     6251000,
     384,
     24 * kGiB,
     32,
     {128, 256, 2, 16, 1024, 1440, 480, 32000}},
    {89,
     "vgpu sm_89 (L40S)",
     142,
     1536,
     24,
     65536,
     100 * kKiB,
     99 * kKiB,
     96 * kMiB,
     2520000,
     9001000,
     384,
     48 * kGiB,
     64,
     {128, 256, 2, 16, 1024, 2840, 540, 32000}},
    {90,
     "vgpu sm_90 (H200)",
     132,
     2048,
     32,
     65536,
     228 * kKiB,
     227 * kKiB,
     50 * kMiB,
     1980000,
     3201000,
     6144,
     141 * kGiB,
     2,
     {128, 256, 64, 16, 2381, 4472, 479, 64000}},
};

}  // namespace

const DeviceModel* find_device(int capability) {
  for (const DeviceModel& d : kDevices) {
    if (d.capability == capability) return &d;
  }
  return nullptr;
}

int parse_capability(const std::string& text) {
  const std::string digits = text.rfind("sm_", 0) == 0 ? text.substr(3) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return 0;
  return std::atoi(digits.c_str());
}

}  // namespace vgpu
