// The CUDA driver: descriptors of tensors for bulk copies (TMA).
#include "exec/tensor_map.h"

#include <cstdio>
#include <cstring>

#include "core/options.h"
#include "driver/driver.h"

using namespace vgpu;
using vgpu::driver::result;

namespace {

CUresult refuse(const char* call, const std::string& why) {
  const std::string text = std::string(call) + ": " + why;
  std::fprintf(stderr, "vgpu: %s\n", text.c_str());
  return result(fail(Code::kInvalidValue, text));
}

// The fields that both kinds of map have. An empty text: they are there and in range.
std::string fill_common(TensorMap* m, int type, unsigned rank, const void* address,
                        const unsigned long long* dims, const unsigned long long* strides,
                        const unsigned* element_strides, int interleave, int swizzle, int promotion,
                        int fill) {
  std::memset(m, 0, sizeof(*m));
  m->mark = kTensorMapMark;
  if (type < 0 || type >= static_cast<int>(TensorType::kCount))
    return "tensorDataType is " + std::to_string(type) +
           " and must be a type of 8 to 64 bits (0 to 12), or packed ones of 4 (13)";
  m->type = static_cast<TensorType>(type);
  if (rank < 1 || rank > kMostRank)
    return "tensorRank is " + std::to_string(rank) + " and must be 1 to 5";
  m->rank = static_cast<u8>(rank);
  if (!address) return "globalAddress is null and must be an address of device memory";
  if (!dims || (rank > 1 && !strides) || !element_strides) {
    return std::string(!dims              ? "globalDim"
                       : !element_strides ? "elementStrides"
                                          : "globalStrides") +
           " is null and must have an element for each dimension";
  }
  if (interleave < 0 || interleave > 2)
    return "interleave is " + std::to_string(interleave) +
           " and must be 0, 1 or 2 (none, 16B, 32B)";
  if (swizzle < 0 || swizzle > 3)
    return "swizzle is " + std::to_string(swizzle) + " and must be 0 to 3 (none, 32B, 64B, 128B)";
  if (promotion < 0 || promotion > 3)
    return "l2Promotion is " + std::to_string(promotion) + " and must be 0 to 3";
  if (fill < 0 || fill > 1) return "oobFill is " + std::to_string(fill) + " and must be 0 or 1";
  m->address = reinterpret_cast<u64>(address);
  m->interleave = static_cast<u8>(interleave);
  m->swizzle = static_cast<u8>(swizzle);
  m->nan_fill = fill == 1;
  for (unsigned k = 0; k < rank; ++k) {
    if (dims[k] == 0 || dims[k] > 1ull << 32) {
      return "globalDim[" + std::to_string(k) + "] is " + std::to_string(dims[k]) +
             " and must be 1 to 2^32";
    }
    // 2^32 itself does not fit; no coordinate reaches that far.
    m->dims[k] = static_cast<u32>(dims[k] - (dims[k] >> 32));
    if (k) m->strides[k - 1] = strides[k - 1];
    if (element_strides[k] < 1 || element_strides[k] > 8) {
      return "elementStrides[" + std::to_string(k) + "] is " + std::to_string(element_strides[k]) +
             " and must be 1 to 8";
    }
    m->element_strides[k] = static_cast<u8>(element_strides[k]);
  }
  return "";
}

CUresult deliver(const char* call, void* to, const TensorMap& m, const std::string& wrong) {
  if (options().device.capability < 90) {
    return result(fail(Code::kNotSupported, std::string(call) + ": " + options().device.name +
                                                " has no tensor memory accelerator (sm_90 has)"));
  }
  if (!wrong.empty()) return refuse(call, wrong);
  if (!to || reinterpret_cast<u64>(to) % 64)
    return refuse(call, "tensorMap is null or misaligned and must be a multiple of 64");
  if (const std::string why = wrong_with(m); !why.empty()) return refuse(call, why);
  TensorMap sealed = m;
  sealed.seal = seal_of(m);
  std::memcpy(to, &sealed, sizeof(sealed));
  return 0;
}

}  // namespace

extern "C" {

CUresult cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address,
                                const unsigned long long* dims, const unsigned long long* strides,
                                const unsigned* box, const unsigned* element_strides,
                                int interleave, int swizzle, int promotion, int fill) {
  constexpr const char* kCall = "cuTensorMapEncodeTiled";
  TensorMap m;
  std::string wrong = fill_common(&m, type, rank, address, dims, strides, element_strides,
                                  interleave, swizzle, promotion, fill);
  if (wrong.empty() && !box) wrong = "boxDim is null and must have an element for each dimension";
  for (unsigned k = 0; wrong.empty() && k < rank; ++k) {
    if (box[k] < 1 || box[k] > 256) {
      wrong = "boxDim[" + std::to_string(k) + "] is " + std::to_string(box[k]) +
              " and must be 1 to 256";
    }
    m.box[k] = static_cast<u16>(box[k]);
  }
  return deliver(kCall, map, m, wrong);
}

CUresult cuTensorMapEncodeIm2col(void* map, int type, unsigned rank, void* address,
                                 const unsigned long long* dims, const unsigned long long* strides,
                                 const int* lower, const int* upper, unsigned channels,
                                 unsigned pixels, const unsigned* element_strides, int interleave,
                                 int swizzle, int promotion, int fill) {
  constexpr const char* kCall = "cuTensorMapEncodeIm2col";
  TensorMap m;
  std::string wrong = fill_common(&m, type, rank, address, dims, strides, element_strides,
                                  interleave, swizzle, promotion, fill);
  m.im2col = true;
  if (wrong.empty() && rank < 3)
    wrong = "tensorRank is " + std::to_string(rank) + " and must be 3, 4 or 5 for im2col";
  if (wrong.empty() && (!lower || !upper)) {
    wrong = std::string(lower ? "pixelBoxUpperCorner" : "pixelBoxLowerCorner") +
            " is null and must have an element for each of W, H and D";
  }
  for (unsigned k = 0; wrong.empty() && k + 2 < rank; ++k) {
    for (const bool low : {true, false}) {
      const int corner = low ? lower[k] : upper[k];
      // What does not fit is out of range for every rank.
      if (corner < -32768 || corner > 32767) {
        wrong = std::string(low ? "pixelBoxLowerCorner[" : "pixelBoxUpperCorner[") +
                std::to_string(k) + "] is " + std::to_string(corner) +
                " and must be -32768 to 32767";
      }
      (low ? m.lower : m.upper)[k] = static_cast<s16>(corner);
    }
  }
  m.channels = static_cast<u16>(channels > 0xffff ? 0xffff : channels);
  m.pixels = static_cast<u16>(pixels > 0xffff ? 0xffff : pixels);
  return deliver(kCall, map, m, wrong);
}

CUresult cuTensorMapReplaceAddress(void* map, void* address) {
  constexpr const char* kCall = "cuTensorMapReplaceAddress";
  TensorMap m = {};
  if (map) std::memcpy(&m, map, sizeof(m));
  m.address = reinterpret_cast<u64>(address);
  return deliver(kCall, map, m,
                 address ? "" : "globalAddress is null and must be an address of device memory");
}

}  // extern "C"
