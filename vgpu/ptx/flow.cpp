// Control flow and register allocation.
//
// Divergent lanes meet at the immediate post-dominator of the branch. Slots are allocated by linear
// scan over live ranges: nvcc's PTX names a new register for nearly every value, and a file of all
// of them would not fit the cache. Liveness is that of one thread; that is enough, because every
// operation writes the active lanes only.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ptx/builder.h"
#include "ptx/graph.h"

namespace vgpu::ptx {

Graph build_graph(const std::vector<Draft>& code) {
  const int n = static_cast<int>(code.size());
  std::vector<bool> leader(n + 1, false);
  leader[0] = true;
  for (int k = 0; k < n; ++k) {
    if (code[k].kind == Kind::kPlain && !code[k].ends) continue;
    leader[k + 1] = true;
    if (code[k].kind == Kind::kBranch) leader[code[k].target] = true;
  }
  Graph g;
  g.block_of.resize(n);
  for (int k = 0; k < n; ++k) {
    if (leader[k]) {
      g.blocks.emplace_back();
      g.blocks.back().first = k;
    }
    g.blocks.back().last = k;
    g.block_of[k] = static_cast<int>(g.blocks.size()) - 1;
  }
  const auto link = [&](int from, int to) {
    g.blocks[from].next.push_back(to);
    g.blocks[to].previous.push_back(from);
  };
  for (int b = 0; b < static_cast<int>(g.blocks.size()); ++b) {
    const Draft& end = code[g.blocks[b].last];
    const bool falls = (end.kind == Kind::kPlain && !end.ends) || end.guard >= 0;
    if (end.kind == Kind::kBranch) link(b, g.block_of[end.target]);
    if (falls && g.blocks[b].last + 1 < n) link(b, b + 1);
  }
  return g;
}

namespace {

// Immediate post-dominators by the iterative algorithm of Cooper, Harvey and Kennedy ("A simple,
// fast dominance algorithm") on the reversed graph. The virtual exit is the number of blocks.
std::vector<int> post_dominators(const std::vector<Draft>& code, const Graph& g) {
  const int exit = static_cast<int>(g.blocks.size());
  std::vector<std::vector<int>> after(exit + 1);
  std::vector<std::vector<int>> before(exit + 1);
  for (int b = 0; b < exit; ++b) {
    after[b] = g.blocks[b].next;
    const Draft& end = code[g.blocks[b].last];
    // Nobody meets behind a trap or an assertion that fails.
    const bool traps = end.ends && std::string_view(end.info->name) != "return";
    if (end.kind == Kind::kExit || (after[b].empty() && !traps)) after[b].push_back(exit);
    for (int s : after[b]) before[s].push_back(b);
  }
  std::vector<int> order;  // postorder of the reversed graph
  std::vector<int> number(exit + 1, -1);
  std::vector<std::pair<int, size_t>> stack = {{exit, 0}};
  std::vector<bool> seen(exit + 1, false);
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [b, k] = stack.back();
    if (k < before[b].size()) {
      const int p = before[b][k++];
      if (!seen[p]) {
        seen[p] = true;
        stack.emplace_back(p, 0);
      }
    } else {
      number[b] = static_cast<int>(order.size());
      order.push_back(b);
      stack.pop_back();
    }
  }
  std::vector<int> dominator(exit + 1, -1);
  dominator[exit] = exit;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const int b = *it;
      if (b == exit) continue;
      int best = -1;
      for (int s : after[b]) {
        if (dominator[s] < 0) continue;
        int x = s;
        int y = best < 0 ? s : best;
        while (x != y) {
          while (number[x] < number[y]) x = dominator[x];
          while (number[y] < number[x]) y = dominator[y];
        }
        best = x;
      }
      if (best >= 0 && dominator[b] != best) {
        dominator[b] = best;
        changed = true;
      }
    }
  }
  for (int& d : dominator) {
    if (d == exit) d = -1;
  }
  return dominator;
}

// The operands of a draft that it writes, and those it reads.
template <class Write, class Read>
void each_operand(const Draft& d, Write write, Read read) {
  size_t k = 0;
  for (const char* r = d.info->results; *r && k < d.slots.size(); ++r, ++k) {
    if (d.slots[k] >= 0) write(d.slots[k]);
  }
  for (; k < d.slots.size(); ++k) {
    if (d.slots[k] >= 0) read(d.slots[k]);
  }
  if (d.guard >= 0) read(d.guard);
}

class BitSet {
 public:
  explicit BitSet(size_t n) : words_((n + 63) / 64, 0) {}
  void set(int k) { words_[k / 64] |= 1ull << (k % 64); }
  void clear(int k) { words_[k / 64] &= ~(1ull << (k % 64)); }
  bool test(int k) const { return words_[k / 64] >> (k % 64) & 1; }
  // this |= other; true when something was added.
  bool merge(const BitSet& other) {
    bool grew = false;
    for (size_t i = 0; i < words_.size(); ++i) {
      grew |= (other.words_[i] & ~words_[i]) != 0;
      words_[i] |= other.words_[i];
    }
    return grew;
  }
  void merge_minus(const BitSet& other, const BitSet& minus) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i] & ~minus.words_[i];
  }
  template <class F>
  void each(F f) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (u64 left = words_[i]; left; left &= left - 1) {
        f(static_cast<int>(i * 64) + __builtin_ctzll(left));
      }
    }
  }

 private:
  std::vector<u64> words_;
};

struct Range {
  int slot;
  int first = INT32_MAX;
  int last = -1;
};

// The first and last instruction where a slot holds a value that is still wanted.
std::vector<Range> live_ranges(const std::vector<Draft>& code, std::vector<Slot>& slots) {
  const Graph g = build_graph(code);
  const size_t n = slots.size();
  const size_t blocks = g.blocks.size();
  std::vector<BitSet> reads(blocks, BitSet(n));   // before any write in the block
  std::vector<BitSet> writes(blocks, BitSet(n));  // of all lanes
  std::vector<BitSet> in(blocks, BitSet(n));
  std::vector<BitSet> out(blocks, BitSet(n));
  const auto is_virtual = [&](int s) { return slots[s].kind == Slot::Kind::kVirtual; };
  for (size_t b = 0; b < blocks; ++b) {
    for (int k = g.blocks[b].first; k <= g.blocks[b].last; ++k) {
      const auto read = [&](int s) {
        if (is_virtual(s) && !writes[b].test(s)) reads[b].set(s);
      };
      each_operand(code[k], [](int) {}, read);
      if (code[k].guard < 0) {
        each_operand(
            code[k],
            [&](int s) {
              if (is_virtual(s)) writes[b].set(s);
            },
            [](int) {});
      }
    }
    in[b] = reads[b];
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = blocks; k-- > 0;) {
      bool grew = false;
      for (int s : g.blocks[k].next) grew |= out[k].merge(in[s]);
      if (!grew) continue;
      changed = true;
      in[k].merge_minus(out[k], writes[k]);
    }
  }
  in[0].each([&](int s) { slots[s].unset = true; });
  std::vector<Range> ranges(n);
  for (size_t s = 0; s < n; ++s) ranges[s].slot = static_cast<int>(s);
  const auto touch = [&](int s, int at) {
    ranges[s].first = std::min(ranges[s].first, at);
    ranges[s].last = std::max(ranges[s].last, at);
  };
  for (size_t b = 0; b < blocks; ++b) {
    in[b].each([&](int s) { touch(s, g.blocks[b].first); });
    out[b].each([&](int s) { touch(s, g.blocks[b].last + 1); });
    for (int k = g.blocks[b].first; k <= g.blocks[b].last; ++k) {
      // A result may take the place of a source only where each lane is read before it is written.
      const int written = code[k].info->lanewise ? k + 1 : k;
      each_operand(
          code[k],
          [&](int s) {
            touch(s, written);
            touch(s, k + 1);
          },
          [&](int s) { touch(s, k); });
    }
  }
  // What a wgmma under way reads and writes keeps its place until it has been waited for.
  for (const InFlight::Span& span : find_in_flight(code).spans) {
    touch(span.slot, span.first);
    touch(span.slot, span.last);
  }
  return ranges;
}

u32 bytes_of(Width width) {
  return width == Width::kPredicate ? 4 : width == Width::kWord ? 128 : 256;
}

}  // namespace

void resolve_targets(std::vector<Draft>& code, const std::vector<int>& label_position) {
  for (Draft& d : code) {
    if (d.label >= 0) d.target = label_position[d.label];
  }
}

void analyse_flow(std::vector<Draft>& code, const std::vector<int>& label_position) {
  resolve_targets(code, label_position);
  const Graph g = build_graph(code);
  const std::vector<int> dominator = post_dominators(code, g);
  for (size_t b = 0; b < g.blocks.size(); ++b) {
    Draft& end = code[g.blocks[b].last];
    if (end.kind != Kind::kBranch || end.guard < 0 || dominator[b] < 0) continue;
    end.reconverge = g.blocks[dominator[b]].first;
    code[end.reconverge].joins = true;
  }
}

void allocate_slots(const std::vector<Draft>& code, std::vector<Slot>& slots, Program& program) {
  u32 end = kSpecialBytes;
  for (Slot& s : slots) {
    if (s.kind == Slot::Kind::kSpecial) s.offset = static_cast<u32>(s.value) * 128;
  }
  // Widest first, so that everything is aligned.
  for (Width width : {Width::kDouble, Width::kWord, Width::kPredicate}) {
    for (Slot& s : slots) {
      if (s.kind != Slot::Kind::kConstant || s.width != width) continue;
      s.offset = end;
      end += bytes_of(width);
      program.constants.push_back({s.offset, width, s.value, s.base != Base::kNone});
    }
  }
  end = (end + 127) / 128 * 128;
  program.constant_end = end;

  std::vector<Range> ranges = live_ranges(code, slots);
  std::erase_if(ranges, [&](const Range& r) {
    return slots[r.slot].kind != Slot::Kind::kVirtual || r.last < 0;
  });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.first != b.first ? a.first < b.first : a.slot < b.slot;
  });
  // The three widths have places of their own, so slots never overlap partly.
  for (Width width : {Width::kDouble, Width::kWord, Width::kPredicate}) {
    std::vector<std::pair<int, u32>> active;  // (last, offset), a heap with the earliest end on top
    std::vector<u32> free;
    u32 used = 0;
    const auto later = std::greater<std::pair<int, u32>>();
    for (const Range& r : ranges) {
      if (slots[r.slot].width != width) continue;
      while (!active.empty() && active.front().first < r.first) {
        free.push_back(active.front().second);
        std::pop_heap(active.begin(), active.end(), later);
        active.pop_back();
      }
      u32 offset;
      if (free.empty()) {
        offset = end;
        end += bytes_of(width);
        ++used;
      } else {
        offset = free.back();
        free.pop_back();
      }
      slots[r.slot].offset = offset;
      active.emplace_back(r.last, offset);
      std::push_heap(active.begin(), active.end(), later);
    }
    if (width != Width::kPredicate)
      program.live_registers += used * (width == Width::kDouble ? 2 : 1);
    end = (end + 127) / 128 * 128;
  }
  program.register_bytes = end;
}

}  // namespace vgpu::ptx
