#include "core/attributes.h"

#include "core/options.h"

namespace vgpu {

Code device_attribute(int attribute, int* value) {
  const DeviceModel& d = options().device;
  const bool ampere = d.capability >= 80;
  const auto pick = [&]() -> int {
    switch (attribute) {
      case 1:
        return 1024;  // MaxThreadsPerBlock
      case 2:
      case 3:
        return 1024;  // MaxBlockDimX, Y
      case 4:
        return 64;  // MaxBlockDimZ
      case 5:
        return 0x7fffffff;  // MaxGridDimX
      case 6:
      case 7:
        return 65535;  // MaxGridDimY, Z
      case 8:
        return kSharedPerBlock;  // MaxSharedMemoryPerBlock
      case 9:
        return 65536;  // TotalConstantMemory
      case 10:
        return kWarpSize;  // WarpSize
      case 11:
        return 0x7fffffff;  // MaxPitch
      case 12:
      case 82:
        return d.registers_per_sm;  // MaxRegistersPerBlock, PerMultiprocessor
      case 13:
        return d.clock_khz;  // ClockRate
      case 14:
        return 512;  // TextureAlignment
      case 15:
        return 1;  // GpuOverlap
      case 16:
        return d.multiprocessors;  // MultiProcessorCount
      case 19:
        return 1;  // CanMapHostMemory
      case 30:
        return 512;  // SurfaceAlignment
      case 31:
        return 1;  // ConcurrentKernels
      case 36:
        return d.memory_clock_khz;  // MemoryClockRate
      case 37:
        return d.memory_bus_bits;  // GlobalMemoryBusWidth
      case 38:
        return d.l2_bytes;  // L2CacheSize
      case 39:
        return d.threads_per_sm;  // MaxThreadsPerMultiProcessor
      case 40:
        return 2;  // AsyncEngineCount
      case 41:
        return 1;  // UnifiedAddressing
      case 51:
        return 32;  // TexturePitchAlignment
      case 75:
        return d.capability / 10;  // ComputeCapabilityMajor
      case 76:
        return d.capability % 10;  // ComputeCapabilityMinor
      case 78:
        return 1;  // StreamPrioritiesSupported
      case 79:
      case 80:
        return 1;  // GlobalL1CacheSupported, LocalL1CacheSupported
      case 81:
        return d.shared_per_sm;  // MaxSharedMemoryPerMultiprocessor
      case 83:
        return 1;  // ManagedMemory
      case 87:
        return d.fp32_per_fp64;  // SingleToDoublePrecisionPerfRatio
      case 90:
        return 1;  // ComputePreemptionSupported
      case 95:
        return 1;  // CooperativeLaunch
      case 97:
        return d.shared_per_block_optin;  // MaxSharedMemoryPerBlockOptin
      case 99:
        return 1;  // HostRegisterSupported
      case 106:
        return d.blocks_per_sm;  // MaxBlocksPerMultiprocessor
      case 108:
        return ampere ? d.l2_bytes * 3 / 4 : 0;  // MaxPersistingL2CacheSize
      case 111:
        return d.shared_reserved;  // ReservedSharedMemoryPerBlock
      case 115:
        return 1;  // MemoryPoolsSupported
      case 120:
        return d.capability >= 90;  // ClusterLaunch
      default:
        return 0;
    }
  };
  if (attribute < 1 || attribute > 160) {
    return fail(Code::kInvalidValue,
                "device attribute " + std::to_string(attribute) + " is not defined");
  }
  *value = pick();
  return Code::kSuccess;
}

}  // namespace vgpu
