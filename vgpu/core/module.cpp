#include "core/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/device_heap.h"
#include "core/host_memory.h"
#include "core/memory.h"
#include "core/options.h"
#include "exec/check.h"
#include "ptx/lower.h"

namespace vgpu {
namespace {

struct FatbinWrapper {  // what __cudaRegisterFatBinary gets
  u32 magic;
  u32 version;
  const void* data;
  void* unknown;
};
constexpr u32 kWrapperMagic = 0x466243b1;
constexpr u32 kFatbinMagic = 0xba55ed50;

u32 magic_of(const std::string& start) {
  u32 magic = 0;
  if (start.size() >= 4) std::memcpy(&magic, start.data(), 4);
  return magic;
}

// What Triton 3.9 writes. Instructions and qualifiers that are newer than nvcc 13.0's PTX 9.0 are
// refused by their names, where they are not known.
constexpr int kNewestMajor = 9;
constexpr int kNewestMinor = 4;

Code check_version(const std::string& text) {
  int major = 0;
  int minor = 0;
  const size_t at = text.find(".version");
  if (at == text.npos || std::sscanf(text.c_str() + at, ".version %d.%d", &major, &minor) != 2)
    return fail(Code::kInvalidPtx, "the PTX does not say its version (.version 8.0)");
  if (major < kNewestMajor || (major == kNewestMajor && minor <= kNewestMinor))
    return Code::kSuccess;
  return fail(Code::kUnsupportedPtxVersion,
              "the PTX is of version " + std::to_string(major) + "." + std::to_string(minor) +
                  ", the virtual GPU reads up to " + std::to_string(kNewestMajor) + "." +
                  std::to_string(kNewestMinor) +
                  ": have the compiler write no newer one (nvcc 13.0 writes 9.0; Triton's option "
                  "is ptx_version)");
}

}  // namespace

Kernel::Kernel(Module& module, const ptx::Function& function)
    : module_(module), function_(function) {
  for (int p : function.params) {
    const ptx::Variable& v = function.variables[p];
    param_bytes_ = (param_bytes_ + v.align - 1) / v.align * v.align;
    params_.push_back({v.name, param_bytes_, static_cast<u32>(v.bytes)});
    param_bytes_ += static_cast<u32>(v.bytes);
  }
}

std::string Kernel::short_name() const {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name().c_str(), nullptr, nullptr, &status);
  std::string text = status == 0 ? demangled : name();
  std::free(demangled);
  if (text.rfind("void ", 0) == 0) text.erase(0, 5);
  // Leave out the arguments, and template arguments that would fill a screen.
  std::string brief;
  int depth = 0;
  for (char c : text) {
    if (c == '(' && depth == 0) break;
    if (c == '>') --depth;
    if (depth == 0 || text.size() <= 120) brief += c;
    if (c == '<' && depth++ == 0 && text.size() > 120) brief += "...";
  }
  return brief;
}

bool Kernel::bounded() const {
  return function_.required_threads[0] != 0 || function_.max_threads[0] != 0;
}

bool Kernel::limits_registers() const { return bounded() || function_.max_registers != 0; }

u32 Kernel::required_threads() const {
  const u32* d = function_.required_threads;
  return d[0] * (d[1] ? d[1] : 1) * (d[2] ? d[2] : 1);
}

// What ptxas may use at most: it spills the rest.
u32 Kernel::register_limit(u32 registers_per_sm) const {
  u32 limit = 255;
  if (function_.max_registers) limit = std::min(limit, function_.max_registers);
  if (bounded()) {
    const u32 threads = max_threads() * std::max(function_.min_blocks, 1u);
    limit = std::min(limit, std::max(registers_per_sm / threads / 8 * 8, 16u));
  }
  return limit;
}

u32 Kernel::max_threads() const {
  const u32* d = function_.required_threads[0] ? function_.required_threads : function_.max_threads;
  if (d[0] == 0) return 1024;
  return d[0] * (d[1] ? d[1] : 1) * (d[2] ? d[2] : 1);
}

Kernel::ClusterLimits Kernel::cluster() const {
  const u32* d = function_.required_cluster;
  ClusterLimits limits = {
      d[0] != 0 || function_.explicit_cluster, {d[0], d[1], d[2]}, function_.max_cluster};
  if (d[0]) {
    for (u32& extent : limits.shape) extent = std::max(extent, 1u);
  }
  return limits;
}

const Program* Kernel::program(Code* why) {
  const u32 checks = options().checks & kWatching;
  const Program* plain = unchecked(why);
  return plain && checks ? lower(checked_, checks, why) : plain;
}

const Program* Kernel::unchecked(Code* why) { return lower(unchecked_, 0, why); }

const Program* Kernel::lower(Lowered& kept, u32 checks, Code* why) {
  const std::lock_guard lock(mutex_);
  const Isa* isa = options().isa;
  if (kept.isa != isa || kept.checks != checks) {
    kept.isa = isa;
    kept.checks = checks;
    kept.failed = Code::kSuccess;
    const auto address = [this](const std::string& symbol) -> std::optional<u64> {
      void* at;
      u64 bytes;
      if (symbol == ptx::kDeviceHeap) {
        const u64 heap = device_heap();
        return heap ? std::optional(heap) : std::nullopt;
      }
      if (!module_.variable(symbol, &at, &bytes)) return std::nullopt;
      return reinterpret_cast<u64>(at);
    };
    kept.program = ptx::lower(module_.ast(), function_, *isa, address, checks);
    const std::vector<std::string>& unsupported = kept.program->unsupported;
    if (!unsupported.empty()) {
      std::string message = "kernel '" + short_name() + "' cannot run on the virtual GPU: ";
      for (size_t k = 0; k < unsupported.size() && k < 5; ++k) {
        message += (k ? "; " : "") + unsupported[k];
      }
      if (unsupported.size() > 5) {
        message += "; and " + std::to_string(unsupported.size() - 5) + " more";
      }
      kept.failed = fail(Code::kInvalidPtx, message);
      std::fprintf(stderr, "vgpu: %s\n", message.c_str());
      kept.failure = message;
    }
  }
  *why = kept.failed == Code::kSuccess ? Code::kSuccess : fail(kept.failed, kept.failure);
  return kept.failed == Code::kSuccess ? kept.program.get() : nullptr;
}

Code Module::load(const void* image, std::unique_ptr<Module>* out) {
  const Code code = read(image, out);
  // Who loads a module often passes on no more than the number.
  if (code != Code::kSuccess) std::fprintf(stderr, "vgpu: %s\n", last_message().c_str());
  return code;
}

Code Module::read(const void* image, std::unique_ptr<Module>* out) {
  if (!image) return fail(Code::kInvalidValue, "a module image is null");
  std::string start = read_mapped(image, sizeof(FatbinWrapper));
  if (magic_of(start) == kWrapperMagic && start.size() == sizeof(FatbinWrapper)) {
    FatbinWrapper wrapper;
    std::memcpy(&wrapper, start.data(), sizeof(wrapper));
    image = wrapper.data;
    start = read_mapped(image, sizeof(FatbinWrapper));
  }
  std::string text;
  int capability = 0;
  if (magic_of(start) == kFatbinMagic) {
    const std::string whole = read_mapped(image, std::max<u64>(fatbin_bytes(start), start.size()));
    const Code code = ptx_from_fatbin(whole, options().device.capability, &text, &capability);
    if (code != Code::kSuccess) return code;
  } else if (start.rfind("\x7f"
                         "ELF",
                         0) == 0) {
    return fail(
        Code::kNoBinaryForDevice,
        "the image is a cubin, which holds machine code only; the virtual GPU needs PTX: compile "
        "to a fatbin with -gencode arch=compute_XX,code=[sm_XX,compute_XX] and --no-compress");
  } else {
    text = read_text(static_cast<const char*>(image));
    if (text.find(".version") == text.npos) {
      return fail(Code::kInvalidImage, "the image is neither PTX text, nor a fatbin, nor a cubin");
    }
  }
  auto module = std::make_unique<Module>();
  const Code code = module->parse(std::move(text), capability);
  if (code == Code::kSuccess) *out = std::move(module);
  return code;
}

Code Module::parse(std::string text, int capability) {
  text_ = std::move(text);
  if (const Code code = check_version(text_); code != Code::kSuccess) return code;
  try {
    ast_ = ptx::parse(text_);
  } catch (const ptx::SyntaxError& e) {
    return fail(Code::kInvalidPtx, e.what());
  } catch (const std::exception& e) {  // no memory for it
    return fail(Code::kInvalidPtx, std::string("the PTX cannot be read: ") + e.what());
  }
  std::string digits;
  for (char c : ast_.target.substr(0, ast_.target.find(','))) {
    if (std::isdigit(static_cast<unsigned char>(c))) digits += c;
  }
  capability_ = capability ? capability : std::atoi(digits.c_str());
  const std::string target = ast_.target.substr(0, ast_.target.find(','));
  if (capability_ > options().device.capability ||
      (target.rfind("sm_", 0) == 0 && !runs_on(target, options().device.capability))) {
    return fail(Code::kNoBinaryForDevice,
                "the PTX is for " + ast_.target + ", the device is " + options().device.name);
  }
  for (const ptx::Function& f : ast_.functions) {
    if (f.is_entry && f.has_body) kernels_.emplace(f.name, std::make_unique<Kernel>(*this, f));
  }
  return place_variables();
}

Code Module::place_variables() {
  for (const ptx::Variable& v : ast_.variables) {
    if (v.space != ptx::Space::kGlobal && v.space != ptx::Space::kConst) continue;
    if (v.is_extern && v.bytes == 0) continue;
    void* at = nullptr;
    const u64 bytes = v.bytes ? v.bytes : 1;
    const Code code = allocate(bytes, MemoryKind::kModule, &at);
    if (code != Code::kSuccess) return code;
    std::memset(at, 0, bytes);
    std::memcpy(at, v.data.data(), v.data.size());
    variables_[v.name] = {at, v.bytes};
  }
  for (const ptx::Variable& v : ast_.variables) {
    for (const ptx::Variable::Reference& r : v.references) {
      auto to = variables_.find(r.symbol);
      auto in = variables_.find(v.name);
      if (in == variables_.end()) continue;
      u64 value = ast_.function_address(r.symbol);
      if (to != variables_.end())
        value = reinterpret_cast<u64>(to->second.address) + static_cast<u64>(r.addend);
      if (value == 0) continue;
      std::memcpy(static_cast<char*>(in->second.address) + r.at, &value, 8);
    }
  }
  return Code::kSuccess;
}

Module::~Module() {
  for (auto& [name, place] : variables_) release(place.address, MemoryKind::kModule);
}

Kernel* Module::kernel(const std::string& name) {
  auto it = kernels_.find(name);
  return it == kernels_.end() ? nullptr : it->second.get();
}

bool Module::variable(const std::string& name, void** address, u64* bytes) const {
  auto it = variables_.find(name);
  if (it == variables_.end()) return false;
  *address = it->second.address;
  *bytes = it->second.bytes;
  return true;
}

std::string Module::source_line(u32 line) const {
  size_t begin = 0;
  for (u32 k = 1; k < line; ++k) {
    begin = text_.find('\n', begin);
    if (begin == text_.npos) return "";
    ++begin;
  }
  std::string found = text_.substr(begin, text_.find('\n', begin) - begin);
  const size_t first = found.find_first_not_of(" \t");
  return first == found.npos ? "" : found.substr(first);
}

u32 Module::source_location(u32 ptx_line, std::string* file) const {
  const auto& all = ast_.locations;
  auto it = std::upper_bound(all.begin(), all.end(), ptx_line,
                             [](u32 line, const ptx::Location& l) { return line < l.ptx_line; });
  if (it == all.begin() || (--it)->file == 0) return 0;
  auto name = ast_.files.find(it->file);
  if (name == ast_.files.end()) return 0;
  *file = name->second;
  return it->line;
}

}  // namespace vgpu
