// Feeds damaged PTX and fatbins to the parsers, and what they take to lowering: mutate SEED RUNS
// FILE... ends with 0 where each was taken or refused with a message. It is built with the address
// and undefined-behaviour sanitizers, and stopped by an alarm where one input takes seconds.
//
// What libFuzzer does with coverage is done here with a dictionary; the same seed gives the same
// inputs.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/module.h"
#include "exec/check.h"
#include "ptx/lower.h"

namespace {

using Random = std::mt19937_64;

const std::vector<std::string> kWords = {"{",
                                         "}",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         ";",
                                         ",",
                                         ":",
                                         "@",
                                         "!",
                                         "|",
                                         "<",
                                         ">",
                                         "-",
                                         "+",
                                         "%",
                                         "%r",
                                         ".",
                                         "\"",
                                         "//",
                                         "/*",
                                         "*/",
                                         "\n",
                                         "\0",
                                         "0x",
                                         "0f",
                                         "0d",
                                         "1e999",
                                         "-1",
                                         "0",
                                         "4294967295",
                                         "<9999>",
                                         "[99999]",
                                         ".reg",
                                         ".b32",
                                         ".pred",
                                         ".align 0",
                                         ".align 3",
                                         ".global",
                                         ".shared",
                                         ".param",
                                         ".entry",
                                         ".func",
                                         ".visible",
                                         ".extern",
                                         ".loc 1 2 3",
                                         ".file",
                                         ".maxntid",
                                         ".version",
                                         ".target",
                                         ".section",
                                         ".pragma",
                                         ".branchtargets",
                                         "_",
                                         "WARP_SZ",
                                         "18446744073709551615",
                                         "[18446744073709551615]",
                                         "<18446744073709551615>",
                                         "generic(",
                                         "mov.u32",
                                         "ld.global.v4.u32",
                                         "@%p",
                                         "bra",
                                         "call",
                                         "ret",
                                         ".callprototype",
                                         "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
                                         "wmma.load.a.sync.aligned.row.m16n16k16.f16",
                                         ".ftz",
                                         ".sat",
                                         ".v4",
                                         ".f16x2",
                                         ".bf16",
                                         ".u64",
                                         ".pred",
                                         ".shared",
                                         "%p1",
                                         "%d1",
                                         "%h1",
                                         "{%r1, %r2}",
                                         "[%d1+4]",
                                         "%r1|%p1",
                                         "clock64",
                                         "%tid.x",
                                         "return",
                                         "exit",
                                         "$L"};

size_t below(Random& random, size_t n) { return n ? random() % n : 0; }

std::string mutated(std::string text, Random& random, const std::string& other) {
  for (size_t k = below(random, 6) + 1; k > 0; --k) {
    const size_t at = below(random, text.size());
    const size_t length = below(random, 1 + below(random, 64));
    switch (below(random, 8)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(random, text.size()), length));
        break;
      case 3:
        text.insert(at, kWords[below(random, kWords.size())]);
        break;
      case 4:
        text.replace(at, length, kWords[below(random, kWords.size())]);
        break;
      case 5:
        text.insert(at, other.substr(below(random, other.size()), length));
        break;
      case 6:
        text.resize(at);
        break;
      default: {  // the same thing very often
        const std::string word = kWords[below(random, kWords.size())];
        std::string many;
        for (size_t i = below(random, 3000); i > 0; --i) many += word;
        text.insert(at, many);
      }
    }
  }
  return text;
}

// Whether it was taken.
bool lower(const vgpu::ptx::Module& module, const vgpu::ptx::Function& kernel) {
  const auto address = [](const std::string&) { return std::optional<vgpu::u64>(1 << 20); };
  const auto& isa = vgpu::best_isa();
  const auto program = vgpu::ptx::lower(module, kernel, isa, address, vgpu::kAllChecks);
  for (const std::string& why : program->unsupported) {
    if (why.find("(PTX line ") == why.npos) std::abort();
  }
  for (const vgpu::Ins& i : program->code) {
    if (i.target < -1 || i.target > static_cast<vgpu::s32>(program->code.size())) std::abort();
  }
  return program->unsupported.empty();
}

bool parse(const std::string& text) {
  try {
    const vgpu::ptx::Module module = vgpu::ptx::parse(text);
    bool whole = true;
    for (const auto& f : module.functions) {
      for (const auto& i : f.body) (void)i.text();
      if (f.is_entry && f.has_body) whole &= lower(module, f);
    }
    return whole;
  } catch (const vgpu::ptx::SyntaxError& error) {
    if (std::string(error.what()).rfind("PTX line ", 0) != 0) std::abort();
    return false;
  }
}

bool open_fatbin(const std::string& image) {
  std::string text;
  int found = 0;
  vgpu::clear_message();
  const vgpu::Code code = vgpu::ptx_from_fatbin(image, 80, &text, &found);
  if (code != vgpu::Code::kSuccess && vgpu::last_message().empty()) std::abort();
  return code == vgpu::Code::kSuccess && parse(text);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  Random random(std::strtoull(arguments[1], nullptr, 10));
  const long runs = std::atol(arguments[2]);
  std::vector<std::string> seeds;
  for (int k = 3; k < count; ++k) {
    std::ifstream file(arguments[k], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const auto take = [](const std::string& input) {
    alarm(10);
    return vgpu::fatbin_bytes(input) != 0 ? open_fatbin(input) : parse(input);
  };
  for (const std::string& seed : seeds) {
    if (!take(seed)) return 3;
  }
  long taken = 0;
  for (long run = 0; run < runs; ++run) {
    const std::string& seed = seeds[below(random, seeds.size())];
    const std::string input = mutated(seed, random, seeds[below(random, seeds.size())]);
    std::ofstream("last_input", std::ios::binary) << input;  // what to look at after a crash
    taken += take(input);
  }
  std::printf("%ld inputs, %ld taken\n", runs, taken);
  return 0;
}
