#include "core/options.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "exec/check.h"

namespace vgpu {
namespace {

const std::map<std::string, u32> kCheckNames = {{"memcheck", kMemcheck},
                                                {"initcheck", kInitcheck},
                                                {"racecheck", kRacecheck},
                                                {"synccheck", kSynccheck},
                                                {"deadlock", kDeadlock},
                                                {"all", kAllChecks},
                                                {"none", 0}};

Code apply(Options& o, const std::string& name, const std::string& value) {
  if (name == "device") {
    const DeviceModel* d = find_device(parse_capability(value));
    if (!d) {
      return fail(Code::kInvalidValue,
                  "vgpu option device=" + value + ": know sm_75, sm_80, sm_86, sm_89 and sm_90");
    }
    o.device = d;
  } else if (name == "threads") {
    const int n = std::atoi(value.c_str());
    if (n < 1 || n > 1024)
      return fail(Code::kInvalidValue, "vgpu option threads=" + value + ": want 1 to 1024");
    o.threads = n;
  } else if (name == "isa") {
    const Isa& isa = select_isa(value);
    if (value != "auto" && value != isa.name) {
      return fail(Code::kInvalidValue,
                  "vgpu option isa=" + value +
                      ": this CPU has no such instruction set; want auto, avx512, avx2 or generic");
    }
    o.isa = &isa;
  } else if (name == "check") {
    u32 checks = 0;
    std::istringstream names(value);
    for (std::string one; std::getline(names, one, ',');) {
      auto it = kCheckNames.find(one);
      if (it == kCheckNames.end()) {
        return fail(Code::kInvalidValue,
                    "vgpu option check=" + one +
                        ": know memcheck, initcheck, racecheck, synccheck, deadlock, all and none");
      }
      checks |= it->second;
    }
    o.checks = checks;
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
    if (value != "on" && value != "off") {
      return fail(Code::kInvalidValue, "vgpu option counters=" + value + ": know on and off");
    }
    o.counting = value == "on";
  } else if (name == "times") {
    if (value != "model" && value != "host") {
      return fail(Code::kInvalidValue, "vgpu option times=" + value + ": know model and host");
    }
    o.model_times = value == "model";
  } else {
    return fail(Code::kInvalidValue,
                "vgpu has no option '" + name +
                    "': know device, threads, isa, check, fresh, copies, counters, "
                    "times, seed, timeout, slack");
  }
  return Code::kSuccess;
}

Options from_environment() {
  Options o = {find_device(80),
               static_cast<int>(std::thread::hardware_concurrency()),
               &select_isa("auto"),
               false,
               true,
               0,
               0,
               0};
  if (o.threads < 1) o.threads = 1;
  const char* text = std::getenv("BOLTGEN_VGPU");
  std::istringstream items(text ? text : "");
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
    if (apply(o, name, value) != Code::kSuccess) {
      std::fprintf(stderr, "vgpu: BOLTGEN_VGPU: %s\n", last_message().c_str());
    }
  }
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

}  // namespace vgpu
