// Which registers belong to a wgmma that may still be under way.
//
// A forward analysis: of each register, how many groups have been committed since the youngest
// wgmma that uses it. Where paths meet, the younger one counts.
#include <algorithm>
#include <cstring>

#include "ptx/graph.h"

namespace vgpu::ptx {
namespace {

constexpr u8 kAtRest = 255;
constexpr u8 kOldest = 254;  // no wait allows so many groups

bool is(const Draft& d, const char* name) { return std::strcmp(d.info->name, name) == 0; }

// The registers of a wgmma: sums and A, or metadata. See WgmmaForm for the operands.
struct Registers {
  std::vector<int> sums, sources;
};
Registers registers_of(const Draft& d) {
  const size_t sums = std::strlen(d.info->results);
  Registers r;
  r.sums.assign(d.slots.begin(), d.slots.begin() + static_cast<std::ptrdiff_t>(sums));
  for (size_t k = 2 * sums; k < d.slots.size(); ++k) {
    if (d.info->sources[k - sums] == 'w') r.sources.push_back(d.slots[k]);
  }
  return r;
}

class Analysis {
 public:
  explicit Analysis(const std::vector<Draft>& code) : code_(code), graph_(build_graph(code)) {
    for (size_t k = 0; k < code.size(); ++k) {
      if (!is(code[k], "wgmma")) continue;
      const Registers r = registers_of(code[k]);
      for (const int slot : r.sums) track(slot);
      for (const int slot : r.sources) track(slot);
    }
  }

  InFlight run() {
    InFlight found;
    settle();
    std::vector<InFlight::Span> spans;
    for (const int slot : slots_) spans.push_back({slot, static_cast<int>(code_.size()), -1});
    for (size_t b = 0; b < graph_.blocks.size(); ++b) {
      State state = in_[b];
      for (int k = graph_.blocks[b].first; k <= graph_.blocks[b].last; ++k) {
        if (touches(state, k)) found.touching.push_back(k);
        note(state, k, spans);
        step(state, k);
        note(state, k, spans);
      }
    }
    for (const InFlight::Span& s : spans) {
      if (s.last >= 0) found.spans.push_back(s);
    }
    return found;
  }

 private:
  // Of each tracked register: its age as a sum, and as a source.
  struct State {
    std::vector<u8> sum, source;
    bool operator==(const State&) const = default;
  };

  void track(int slot) {
    const size_t needed = static_cast<size_t>(slot) + 1;
    if (number_.size() < needed) number_.resize(needed, -1);
    int& number = number_[static_cast<size_t>(slot)];
    if (number >= 0) return;
    number = static_cast<int>(slots_.size());
    slots_.push_back(slot);
  }
  int number_of(int slot) const {
    return slot >= 0 && static_cast<size_t>(slot) < number_.size()
               ? number_[static_cast<size_t>(slot)]
               : -1;
  }

  void step(State& state, int k) const {
    const Draft& d = code_[static_cast<size_t>(k)];
    if (is(d, "wgmma")) {
      const Registers r = registers_of(d);
      for (const int slot : r.sums) state.sum[static_cast<size_t>(number_of(slot))] = 0;
      for (const int slot : r.sources) state.source[static_cast<size_t>(number_of(slot))] = 0;
      return;
    }
    const bool commits = is(d, "wgmma.commit_group");
    if (!commits && !is(d, "wgmma.wait_group")) return;
    for (std::vector<u8>* ages : {&state.sum, &state.source}) {
      for (u8& age : *ages) {
        if (commits && age < kOldest) ++age;
        if (!commits && age != 0 && age > d.extra) age = kAtRest;
      }
    }
  }

  // A wgmma may add to the sums of another of its form, and share sources with any.
  bool touches(const State& state, int k) const {
    const Draft& d = code_[static_cast<size_t>(k)];
    if (is(d, "wgmma")) {
      const Registers r = registers_of(d);
      const auto under_way = [&](const std::vector<u8>& ages, int slot) {
        return ages[static_cast<size_t>(number_of(slot))] != kAtRest;
      };
      return std::any_of(r.sums.begin(), r.sums.end(),
                         [&](int s) { return under_way(state.source, s); }) ||
             std::any_of(r.sources.begin(), r.sources.end(),
                         [&](int s) { return under_way(state.sum, s); });
    }
    const size_t results = std::strlen(d.info->results);
    for (size_t n = 0; n < d.slots.size(); ++n) {
      const int number = number_of(d.slots[n]);
      if (number < 0) continue;
      const size_t at = static_cast<size_t>(number);
      if (state.sum[at] != kAtRest || (n < results && state.source[at] != kAtRest)) return true;
    }
    return false;
  }

  void note(const State& state, int k, std::vector<InFlight::Span>& spans) const {
    for (size_t n = 0; n < slots_.size(); ++n) {
      if (state.sum[n] == kAtRest && state.source[n] == kAtRest) continue;
      spans[n].first = std::min(spans[n].first, k);
      spans[n].last = std::max(spans[n].last, k + 1);
    }
  }

  void settle() {
    const State rest = {std::vector<u8>(slots_.size(), kAtRest),
                        std::vector<u8>(slots_.size(), kAtRest)};
    in_.assign(graph_.blocks.size(), rest);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = 0; b < graph_.blocks.size(); ++b) {
        State out = in_[b];
        for (int k = graph_.blocks[b].first; k <= graph_.blocks[b].last; ++k) step(out, k);
        for (const int next : graph_.blocks[b].next) {
          State& to = in_[static_cast<size_t>(next)];
          const State before = to;
          for (size_t n = 0; n < slots_.size(); ++n) {
            to.sum[n] = std::min(to.sum[n], out.sum[n]);
            to.source[n] = std::min(to.source[n], out.source[n]);
          }
          changed |= !(to == before);
        }
      }
    }
  }

  const std::vector<Draft>& code_;
  const Graph graph_;
  std::vector<int> slots_;   // that any wgmma uses
  std::vector<int> number_;  // in there, by slot
  std::vector<State> in_;
};

}  // namespace

InFlight find_in_flight(const std::vector<Draft>& code) {
  const bool any =
      std::any_of(code.begin(), code.end(), [](const Draft& d) { return is(d, "wgmma"); });
  return any ? Analysis(code).run() : InFlight();
}

}  // namespace vgpu::ptx
