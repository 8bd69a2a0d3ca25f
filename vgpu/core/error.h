// Error codes, with CUDA's numbers, and the messages behind them.
//
// A caller like TVM sees a code and asks for its text; the text then includes what really happened.
#pragma once

#include <string>

namespace vgpu {

enum class Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidPitch = 12,
  kInvalidSymbol = 13,
  kInvalidDevicePointer = 17,
  kInvalidMemcpyDirection = 21,
  kMissingConfiguration = 52,
  kInvalidDeviceFunction = 98,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForDevice = 209,
  kUnsupportedLimit = 215,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kAssert = 710,
  kHardwareStack = 714,
  kMisalignedAddress = 716,
  kLaunchFailure = 719,
  kCooperativeTooLarge = 720,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kGraphUpdateFailure = 910,
  kInvalidClusterSize = 912,
};

// Records the message for this code, and returns the code.
Code fail(Code code, const std::string& message);
// The same for a fault of a kernel, after which, as on a GPU, every later call fails. Also printed,
// once.
Code fail_sticky(Code code, const std::string& message);
// What a call returns: the fault, if there was one. From then on it counts as reported.
Code sticky_error();
// The fault, if a call has reported it: the launch that caused it has not, nor what only asks for
// the last error.
Code reported_error();
bool has_fault();
void clear_sticky_error();

std::string last_message();
void clear_message();

const char* error_name(int code);  // "cudaErrorInvalidValue"
// The text for a code, with the latest message recorded for it. The pointer stays valid.
const char* error_text(int code);

}  // namespace vgpu
