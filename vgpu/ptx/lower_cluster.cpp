// Clusters, the fences of their proxies, and mbarriers.
#include "exec/async.h"
#include "ptx/builder.h"
#include "ptx/opcode.h"

namespace vgpu::ptx {
namespace {

void add(std::set<std::string>& to, std::initializer_list<const char*> more) {
  to.insert(more.begin(), more.end());
}

const std::set<std::string> kOrders = {
    "release", "acquire",     "relaxed",         "cta", "cluster", "gpu", "sys",
    "shared",  "shared::cta", "shared::cluster", "b64"};

}  // namespace

// A shared address as 32 bits of the cluster's window, its offset added. `space` is that of the
// operand; a generic one is looked at when the instruction runs.
int Builder::cluster_address(const Operand& operand, const Parts& parts) {
  const bool shared =
      has(parts, "shared") || has(parts, "shared::cta") || has(parts, "shared::cluster");
  const Address a = address(operand, shared ? 'w' : 'd');
  if (a.entry_parameter || a.local_storage)
    throw Unsupported("its address is none of shared memory");
  if (!shared) {
    const int to = new_slot(Width::kWord);
    emit("shared_of_generic", {to, a.slot}).imm = a.offset;
    return to;
  }
  return moved(a);
}

// The address of an operand that lies in this space whatever the instruction's parts say.
int Builder::moved(const Address& a) {
  if (a.offset == 0) return a.slot;
  const bool wide = slots_[static_cast<size_t>(a.slot)].width == Width::kDouble;
  const int to = new_slot(wide ? Width::kDouble : Width::kWord);
  emit(wide ? "add.u64" : "add.u32",
       {to, a.slot, constant(wide ? Width::kDouble : Width::kWord, static_cast<u64>(a.offset))});
  return to;
}
int Builder::whole_address(const Operand& operand, char code) {
  const Address a = address(operand, code);
  if (a.local_storage) throw Unsupported("its address is that of a parameter of a call");
  if (!a.entry_parameter) return moved(a);
  const int to = new_slot(Width::kDouble);
  emit("add.u64",
       {to, special(Special::kParamBase), constant(Width::kDouble, static_cast<u64>(a.offset))});
  return to;
}

// ld, st, atom and red of .shared::cluster go through generic addresses.
Builder::Address Builder::cluster_generic(const Operand& operand) {
  Address a = address(operand, 'w');
  const int wide = new_slot(Width::kDouble);
  emit("extend.u", {wide, a.slot});
  a.slot = new_slot(Width::kDouble);
  emit("add.u64", {a.slot, wide, constant(Width::kDouble, kSharedWindow)});
  return a;
}

bool Builder::lower_cluster(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const std::string& base = parts[0];
  const auto& o = ins.operands;
  if (base == "mbarrier") {
    needs(80);
    lower_mbarrier(ins);
  } else if (base == "tensormap") {
    lower_tensor_map(ins);
  } else if (base == "mapa") {
    needs(90);
    if (!only(parts, {"shared::cluster", "u32", "u64"})) unknown();
    const bool wide = parts.back() == "u64";
    const char code = wide ? 'd' : 'w';
    const Width width = wide ? Width::kDouble : Width::kWord;
    const std::string type = "." + parts.back();
    // Of the address what lies in its CTA, and the other CTA's place in the window.
    const int from = source(o.at(1), code, parts.back());
    const int rank = source(o.at(2), 'w', "u32");
    int high = new_slot(Width::kWord);
    emit("shl.u32", {high, rank, constant(Width::kWord, kSharedSpanBits)});
    if (wide) {
      const int extended = new_slot(Width::kDouble);
      emit("extend.u", {extended, high});
      high = extended;
    }
    const int low = new_slot(width);
    const u64 keep = (wide && !has(parts, "shared::cluster") ? kWindowMask : 0) | (kSharedSpan - 1);
    emit("and" + type, {low, from, constant(width, keep)});
    emit("or" + type, {result(o.at(0), code, false), low, high});
  } else if (base == "getctarank") {
    if (!only(parts, {"shared::cluster", "u32", "u64"})) unknown();
    const bool wide = parts.back() == "u64";
    int address = source(o.at(1), wide ? 'd' : 'w', parts.back());
    if (wide) {
      const int low = new_slot(Width::kWord);
      emit("truncate", {low, address});
      address = low;
    }
    emit("shr.u32",
         {result(o.at(0), 'w', false), address, constant(Width::kWord, kSharedSpanBits)});
  } else if (base == "barrier" && has(parts, "cluster")) {
    needs(90);
    if (!only(parts, {"cluster", "arrive", "wait", "release", "relaxed", "acquire", "aligned"}))
      unknown();
    emit("barrier.cluster." + parts.at(2), {}).extra =
        (has(parts, "aligned") ? kAligned : 0) | (has(parts, "relaxed") ? kRelaxed : 0);
  } else if (base == "isspacep" && space_base(parts.back()) == "shared") {
    const int to = result(o.at(0), 'p', false);
    emit("isspacep.shared", {to, source(o.at(1), 'd', "u64")}).extra =
        parts.back() == "shared::cluster" ? 1 : 0;
  } else if (base == "fence" && parts.size() > 1) {
    lower_proxy_fence(ins);
  } else if (base == "cp" && has(parts, "mbarrier")) {
    if (!only(parts, {"async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"}))
      unknown();
    emit("cp.async.mbarrier.arrive", {cluster_address(o.at(0), parts)}).extra =
        has(parts, "noinc") ? 1 : 0;
  } else if (base == "cp" && has(parts, "bulk")) {
    needs(90);
    lower_bulk(ins);
  } else if ((base == "st" || base == "red") && has(parts, "async")) {
    needs(90);
    lower_async_store(ins);
  } else {
    return false;
  }
  return true;
}

// What follows the generic proxy's accesses, or those of another proxy.
void Builder::lower_proxy_fence(const Instruction& ins) {
  const Parts& parts = ins.parts;
  static const std::set<std::string> kKnown = {"proxy",
                                               "async",
                                               "async::generic",
                                               "alias",
                                               "tensormap::generic",
                                               "tensormap",
                                               "mbarrier_init",
                                               "global",
                                               "shared::cta",
                                               "shared::cluster",
                                               "acquire",
                                               "release",
                                               "acq_rel",
                                               "sc",
                                               "relaxed",
                                               "cta",
                                               "cluster",
                                               "gpu",
                                               "sys",
                                               "sync_restrict::shared::cta",
                                               "sync_restrict::shared::cluster"};
  if (!only(parts, kKnown)) unknown();
  const bool async = has(parts, "proxy") && has(parts, "async");
  MadeVisible made = MadeVisible::kNone;
  if (has(parts, "mbarrier_init")) {
    made = MadeVisible::kOwn;
  } else if (async) {
    made = has(parts, "global") ? MadeVisible::kNone : MadeVisible::kSeen;
  } else if (!has(parts, "proxy") || has(parts, "async::generic")) {
    made = made_visible(parts);
  }
  emit(async ? "fence.async" : "fence", {}).extra = static_cast<u32>(made);
}

// A release of a cluster's scope or a wider one makes them visible.
MadeVisible Builder::made_visible(const Parts& parts) {
  const bool wide =
      has(parts, "cluster") || has(parts, "gpu") || has(parts, "gl") || has(parts, "sys");
  const bool releases = !has(parts, "acquire") && !has(parts, "relaxed");
  return wide && releases ? MadeVisible::kSeen : MadeVisible::kNone;
}

void Builder::lower_mbarrier(const Instruction& ins) {
  const Parts& parts = ins.parts;
  const auto& o = ins.operands;
  const std::string& what = parts.at(1);
  std::set<std::string> known = kOrders;
  known.insert(what);
  const auto number = [&](size_t k) { return source(o.at(k), 'w', "u32"); };
  if (what == "init" || what == "inval") {
    if (!only(parts, known)) unknown();
    const int at = cluster_address(o.at(0), parts);
    if (what == "init") {
      emit("mbarrier.init", {at, number(1)});
    } else {
      emit("mbarrier.inval", {at});
    }
  } else if (what == "expect_tx" || what == "complete_tx") {
    if (!only(parts, known)) unknown();
    const int at = cluster_address(o.at(0), parts);
    emit("mbarrier.arrive", {-1, at, -1, number(1)}).extra =
        kOnlyBytes | (what == "complete_tx" ? kCompletesBytes : 0);
  } else if (what == "arrive" || what == "arrive_drop") {
    add(known, {"expect_tx", "noComplete"});
    if (!only(parts, known)) unknown();
    // The state is left out where the mbarrier may lie in another CTA.
    const size_t first = o.at(0).kind == Operand::Kind::kAddress ? 0 : 1;
    const int at = cluster_address(o.at(first), parts);
    const int value = o.size() > first + 1 ? number(first + 1) : -1;
    const bool expects = has(parts, "expect_tx");
    const bool wanted = first == 1 && o.at(0).kind != Operand::Kind::kSink;
    const int state = wanted ? result(o.at(0), 'd', false) : -1;
    emit("mbarrier.arrive", {state, at, expects ? -1 : value, expects ? value : -1}).extra =
        (what == "arrive_drop" ? kDrops : 0) | (has(parts, "noComplete") ? kNoComplete : 0);
  } else if (what == "test_wait" || what == "try_wait") {
    add(known, {"parity"});
    if (!only(parts, known)) unknown();
    const bool parity = has(parts, "parity");
    const int at = cluster_address(o.at(1), parts);
    const int phase = source(o.at(2), parity ? 'w' : 'd', parity ? "u32" : "u64");
    emit("mbarrier." + what + (parity ? ".parity" : ""), {result(o.at(0), 'p', false), at, phase});
  } else if (what == "pending_count") {
    const int state = source(o.at(1), 'd', "u64");
    emit("mbarrier.pending_count", {result(o.at(0), 'w', false), state});
  } else {
    unknown();
  }
}

}  // namespace vgpu::ptx
