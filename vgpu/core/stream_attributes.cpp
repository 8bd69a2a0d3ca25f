#include "core/stream_attributes.h"

#include <cstring>
#include <string>

#include "core/stream.h"

namespace vgpu {
namespace {

// Those of cudaLaunchAttributeID that a stream has.
enum Which {
  kAccessPolicy = 1,
  kSynchronizationPolicy = 3,
  kPriority = 8,
  kDomainMap = 9,
  kDomain = 10
};

Code check(int which, const void* value) {
  if (!value) return fail(Code::kInvalidValue, "a stream's attribute has nowhere to go");
  if (which == kAccessPolicy || which == kSynchronizationPolicy || which == kPriority ||
      which == kDomainMap || which == kDomain)
    return Code::kSuccess;
  return fail(Code::kInvalidValue, "streams have no attribute " + std::to_string(which));
}

// What a stream has that nobody gave one.
StreamAttribute first_value(int which, const Stream& stream) {
  StreamAttribute value = {};
  const int number = which == kPriority ? stream.priority : which == kSynchronizationPolicy ? 1 : 0;
  std::memcpy(value.data(), &number, sizeof(number));
  if (which == kDomainMap) value[1] = 1;  // the default domain is 0, the remote one 1
  return value;
}

}  // namespace

Code set_stream_attribute(void* stream, int which, const void* value) {
  Stream* s = nullptr;
  Code code = check(which, value);
  if (code == Code::kSuccess) code = find_stream(stream, &s);
  if (code != Code::kSuccess) return code;
  std::memcpy(s->attributes[which].data(), value, sizeof(StreamAttribute));
  if (which == kPriority) std::memcpy(&s->priority, value, sizeof(s->priority));
  return Code::kSuccess;
}

Code get_stream_attribute(void* stream, int which, void* value) {
  Stream* s = nullptr;
  Code code = check(which, value);
  if (code == Code::kSuccess) code = find_stream(stream, &s);
  if (code != Code::kSuccess) return code;
  const auto found = s->attributes.find(which);
  const StreamAttribute held =
      found == s->attributes.end() ? first_value(which, *s) : found->second;
  std::memcpy(value, held.data(), held.size());
  return Code::kSuccess;
}

Code copy_stream_attributes(void* to, void* from) {
  Stream* source = nullptr;
  Stream* target = nullptr;
  Code code = find_stream(from, &source);
  if (code == Code::kSuccess) code = find_stream(to, &target);
  if (code == Code::kSuccess) target->attributes = source->attributes;
  return code;
}

}  // namespace vgpu
