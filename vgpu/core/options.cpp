#include "core/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include "exec/check.h"

namespace vgpu {
namespace {

struct CheckName {
  const char* name;
  u32 bits;
};
constexpr CheckName kCheckNames[] = {{"memcheck", kMemcheck},
                                     {"initcheck", kInitcheck},
                                     {"racecheck", kRacecheck},
                                     {"synccheck", kSynccheck},
                                     {"deadlock", kDeadlock},
                                     {"all", kAllChecks},
                                     {"none", 0}};

Code refuse_checks() {
  return fail(
      Code::kInvalidValue,
      "vgpu options counters=sampled and check: what few blocks compute of a grid is wrong, "
      "and so would be what checks find; take counters=on");
}

Code apply_checks(Options& o, const std::string& value) {
  u32 checks = 0;
  std::istringstream names(value);
  for (std::string one; std::getline(names, one, ',');) {
    const auto it = std::find_if(std::begin(kCheckNames), std::end(kCheckNames),
                                 [&](const CheckName& c) { return one == c.name; });
    if (it == std::end(kCheckNames)) {
      std::string known;
      for (const CheckName& c : kCheckNames)
        known += known.empty() ? c.name : ", " + std::string(c.name);
      return fail(Code::kInvalidValue, "vgpu option check=" + one + ": know " + known);
    }
    checks |= it->bits;
  }
  if (checks && o.only_samples) return refuse_checks();
  o.checks = checks;
  return Code::kSuccess;
}

// The part of a device that has so many multiprocessors, and as large a share of its L2; 0 is all.
DeviceModel cut(DeviceModel device, int multiprocessors) {
  if (multiprocessors) {
    device.l2_bytes =
        static_cast<int>(1LL * device.l2_bytes * multiprocessors / device.multiprocessors);
    device.multiprocessors = multiprocessors;
  }
  return device;
}

Code apply(Options& o, const std::string& name, const std::string& value) {
  if (name == "device") {
    const DeviceModel* d = find_device(parse_capability(value));
    if (!d) {
      return fail(Code::kInvalidValue, "vgpu option device=" + value + ": know " + known_devices());
    }
    o.device = cut(*d, o.multiprocessors);
  } else if (name == "threads") {
    const int n = std::atoi(value.c_str());
    if (n < 1 || n > 1024)
      return fail(Code::kInvalidValue, "vgpu option threads=" + value + ": want 1 to 1024");
    o.threads = n;
  } else if (name == "sms") {
    char* end = nullptr;
    const long n = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end || n < 0 || n > 1024)
      return fail(Code::kInvalidValue, "vgpu option sms=" + value + ": want 0 to 1024");
    o.multiprocessors = static_cast<int>(n);
    o.device = cut(*find_device(o.device.capability), o.multiprocessors);
  } else if (name == "isa") {
    const Isa* isa = find_isa(value);
    if (!isa) {
      return fail(
          Code::kInvalidValue,
          "vgpu option isa=" + value +
              ": this CPU or this build has no such instruction set; want auto, avx512, avx2 "
              "or generic");
    }
    o.isa = isa;
  } else if (name == "check") {
    return apply_checks(o, value);
  } else if (name == "seed" || name == "timeout" || name == "slack") {
    char* end = nullptr;
    const u64 n = std::strtoull(value.c_str(), &end, 10);
    if (value.empty() || *end || value[0] == '-' || (name == "timeout" && n > 1000000)) {
      return fail(Code::kInvalidValue, "vgpu option " + name + "=" + value + ": want a number" +
                                           (name == "timeout" ? " of seconds" : ""));
    }
    if (name == "seed") {
      o.seed = n;
    } else if (name == "slack") {
      o.slack_bytes = n;
    } else {
      o.timeout_s = static_cast<int>(n);
    }
  } else if (name == "fresh") {
    if (value != "nan" && value != "zero")
      return fail(Code::kInvalidValue, "vgpu option fresh=" + value + ": know nan and zero");
    o.zero_fresh = value == "zero";
  } else if (name == "copies") {
    if (value != "late" && value != "eager") {
      return fail(Code::kInvalidValue, "vgpu option copies=" + value + ": know late and eager");
    }
    o.late_copies = value == "late";
  } else if (name == "counters") {
    if (value != "on" && value != "off" && value != "sampled") {
      return fail(Code::kInvalidValue,
                  "vgpu option counters=" + value + ": know on, off and sampled");
    }
    if (value == "sampled" && o.checks) return refuse_checks();
    o.counting = value != "off";
    o.only_samples = value == "sampled";
  } else if (name == "times") {
    if (value != "model" && value != "host") {
      return fail(Code::kInvalidValue, "vgpu option times=" + value + ": know model and host");
    }
    o.model_times = value == "model";
  } else {
    return fail(Code::kInvalidValue,
                "vgpu has no option '" + name +
                    "': know device, threads, isa, check, fresh, copies, counters, "
                    "times, seed, timeout, slack, sms");
  }
  return Code::kSuccess;
}

// What is in force where nothing is set.
Options defaults() {
  Options o = {*find_device(80),
               static_cast<int>(std::thread::hardware_concurrency()),
               &best_isa(),
               false,
               true,
               0,
               0,
               0};
  if (o.threads < 1) o.threads = 1;
  return o;
}

// Every setting of a text like BOLTGEN_VGPU's that does not hold is given to `refused`.
template <class Refused>
void apply_all(Options& o, const std::string& text, Refused refused) {
  std::istringstream items(text);
  std::vector<std::pair<std::string, std::string>> settings;
  for (std::string item; std::getline(items, item, ',');) {
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == item.npos && !settings.empty() && settings.back().first == "check") {
      settings.back().second += "," + item;  // check=memcheck,initcheck
    } else {
      settings.emplace_back(item.substr(0, equals),
                            equals == item.npos ? "" : item.substr(equals + 1));
    }
  }
  for (const auto& [name, value] : settings) {
    if (const Code code = apply(o, name, value); code != Code::kSuccess) refused(code);
  }
}

Options from_environment() {
  Options o = defaults();
  const char* text = std::getenv("BOLTGEN_VGPU");
  apply_all(o, text ? text : "",
            [](Code) { std::fprintf(stderr, "vgpu: BOLTGEN_VGPU: %s\n", last_message().c_str()); });
  return o;
}

Options& mutable_options() {
  static Options o = from_environment();
  return o;
}

}  // namespace

const Options& options() { return mutable_options(); }

Code set_option(const std::string& name, const std::string& value) {
  return apply(mutable_options(), name, value);
}

Code check_options(const std::string& text) {
  Options o = defaults();
  Code first = Code::kSuccess;
  std::string message;
  apply_all(o, text, [&](Code code) {
    if (first != Code::kSuccess) return;
    first = code;
    message = last_message();
  });
  return first == Code::kSuccess ? first : fail(first, message);
}

}  // namespace vgpu
