#include "core/error.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <set>

namespace vgpu {
namespace {

struct Text {
  const char* name;
  const char* text;
};
const std::map<int, Text> kTexts = {
    {0, {"cudaSuccess", "no error"}},
    {1, {"cudaErrorInvalidValue", "invalid argument"}},
    {2, {"cudaErrorMemoryAllocation", "out of memory"}},
    {9, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
    {12, {"cudaErrorInvalidPitchValue", "invalid pitch argument"}},
    {13, {"cudaErrorInvalidSymbol", "invalid device symbol"}},
    {17, {"cudaErrorInvalidDevicePointer", "invalid device pointer"}},
    {21, {"cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}},
    {52, {"cudaErrorMissingConfiguration", "__global__ function call is not configured"}},
    {98, {"cudaErrorInvalidDeviceFunction", "invalid device function"}},
    {100, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {101, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {200, {"cudaErrorInvalidKernelImage", "device kernel image is invalid"}},
    {201, {"cudaErrorDeviceUninitialized", "invalid device context"}},
    {209,
     {"cudaErrorNoKernelImageForDevice",
      "no kernel image is available for execution on the device"}},
    {215, {"cudaErrorUnsupportedLimit", "limit is not supported on this architecture"}},
    {218, {"cudaErrorInvalidPtx", "a PTX JIT compilation failed"}},
    {222,
     {"cudaErrorUnsupportedPtxVersion",
      "the provided PTX was compiled with an unsupported toolchain."}},
    {400, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {401, {"cudaErrorIllegalState", "the operation cannot be performed in the present state"}},
    {500, {"cudaErrorSymbolNotFound", "named symbol not found"}},
    {600, {"cudaErrorNotReady", "device not ready"}},
    {700, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
    {701, {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"}},
    {710, {"cudaErrorAssert", "device-side assert triggered"}},
    {714, {"cudaErrorHardwareStackError", "hardware stack error"}},
    {716, {"cudaErrorMisalignedAddress", "misaligned address"}},
    {719, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
    {720, {"cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"}},
    {800, {"cudaErrorNotPermitted", "operation not permitted"}},
    {801, {"cudaErrorNotSupported", "operation not supported"}},
    {900,
     {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {901,
     {"cudaErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture"}},
    {902,
     {"cudaErrorStreamCaptureMerge", "operation would result in a merge of separate captures"}},
    {903,
     {"cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"}},
    {904, {"cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"}},
    {905,
     {"cudaErrorStreamCaptureIsolation",
      "dependency created on uncaptured work in another stream"}},
    {906,
     {"cudaErrorStreamCaptureImplicit",
      "operation would make the legacy stream depend on a capturing blocking stream"}},
    {907,
     {"cudaErrorCapturedEvent",
      "operation not permitted on an event last recorded in a capturing stream"}},
    {908,
     {"cudaErrorStreamCaptureWrongThread",
      "attempt to terminate a thread-local capture sequence from another thread"}},
    {910,
     {"cudaErrorGraphExecUpdateFailure",
      "the graph update was not performed because it included changes which violated constraints "
      "specific to instantiated graph update"}},
    {912, {"cudaErrorInvalidClusterSize", "cluster misconfiguration"}},
};

struct State {
  std::mutex mutex;
  std::map<int, std::string> detail;
  std::string last;
  Code sticky = Code::kSuccess;
  bool reported = false;
  std::set<std::string> texts;  // never shrinks: callers keep the pointers
};
State& state() {
  static State* const s = new State;  // outlives every other static
  return *s;
}

}  // namespace

Code fail(Code code, const std::string& message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.detail[static_cast<int>(code)] = message;
  s.last = message;
  return code;
}

Code fail_sticky(Code code, const std::string& message) {
  fail(code, message);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.sticky == Code::kSuccess) s.sticky = code;
  std::fprintf(stderr, "vgpu: %s\n", message.c_str());
  return code;
}

Code sticky_error() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.reported |= s.sticky != Code::kSuccess;
  return s.sticky;
}

Code reported_error() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.reported ? s.sticky : Code::kSuccess;
}

bool has_fault() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.sticky != Code::kSuccess;
}

void clear_sticky_error() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.sticky = Code::kSuccess;
  s.reported = false;
}

std::string last_message() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.last;
}

void clear_message() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.last.clear();
  s.detail.clear();
}

const char* error_name(int code) {
  auto it = kTexts.find(code);
  return it == kTexts.end() ? "unrecognized error code" : it->second.name;
}

const char* error_text(int code) {
  auto it = kTexts.find(code);
  std::string text = it == kTexts.end() ? "unrecognized error code" : it->second.text;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (auto d = s.detail.find(code); d != s.detail.end() && code != 0) text += ": " + d->second;
  return s.texts.insert(std::move(text)).first->c_str();
}

}  // namespace vgpu
