#include "core/device.h"

#include <cstdlib>
#include <iterator>

namespace vgpu {
namespace {

constexpr DeviceModel kDevices[] = {
#include VGPU_DEVICES
};

}  // namespace

const DeviceModel* find_device(int capability) {
  for (const DeviceModel& d : kDevices) {
    if (d.capability == capability) return &d;
  }
  return nullptr;
}

std::string known_devices() {
  std::string known;
  for (const DeviceModel& d : kDevices) {
    if (&d != std::begin(kDevices)) known += &d + 1 == std::end(kDevices) ? " and " : ", ";
    known += "sm_" + std::to_string(d.capability);
  }
  return known;
}

bool runs_on(const std::string& target, int capability) {
  const size_t end = target.find_first_not_of("0123456789", 3);
  const int wanted = parse_capability(target.substr(0, end));
  const char kind = end == target.npos ? '\0' : target[end];
  if (kind == 'a') return wanted == capability;
  return wanted <= capability && (kind != 'f' || wanted / 10 == capability / 10);
}

int parse_capability(const std::string& text) {
  const std::string digits = text.rfind("sm_", 0) == 0 ? text.substr(3) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return 0;
  return std::atoi(digits.c_str());
}

}  // namespace vgpu
