// The module, its variables, and the heads of functions.
#include "ptx/parser.h"

#include <algorithm>
#include <set>

namespace vgpu::ptx {
namespace {

const std::set<std::string> kLinkage = {".visible", ".extern", ".weak", ".common"};

Space space_of(const std::string& directive) {
  if (directive == ".global") return Space::kGlobal;
  if (directive == ".const") return Space::kConst;
  if (directive == ".shared") return Space::kShared;
  if (directive == ".local") return Space::kLocal;
  return Space::kParam;
}

constexpr u64 kLargestGlobal = 1ull << 40;
constexpr u64 kLargestLocal = 1ull << 28;

}  // namespace

bool is_space(const std::string& d) {
  return d == ".global" || d == ".const" || d == ".shared" || d == ".local" || d == ".param";
}

Module Parser::run() {
  while (!lex_.at_end()) top_level();
  return std::move(module_);
}

void Parser::top_level() {
  bool is_extern = false;
  std::string word = lex_.word();
  while (kLinkage.count(word)) {
    is_extern |= word == ".extern";
    word = lex_.word();
  }
  if (word == ".version") {
    lex_.word();
  } else if (word == ".target") {
    module_.target = lex_.word();
    while (lex_.accept(',')) lex_.word();
  } else if (word == ".address_size") {
    lex_.number();
  } else if (word == ".entry" || word == ".func") {
    function(word == ".entry");
  } else if (is_space(word)) {
    variables(word, is_extern, module_.variables);
    lex_.expect(';');
  } else if (word == ".file") {
    const int number = static_cast<int>(lex_.number().bits);
    module_.files[number] = lex_.quoted();
    while (lex_.accept(',')) lex_.number();
  } else if (word == ".section") {
    lex_.skip_past('}');
  } else if (word == ".alias" || word == ".pragma") {
    lex_.skip_past(';');
  } else {
    lex_.fail("unknown directive '" + word + "'");
  }
}

// `.align 4 .b8 name[8] = {...}`, after the state space.
void Parser::variables(const std::string& space, bool is_extern, std::vector<Variable>& into) {
  u32 align = 0;
  u32 element = 0;
  while (element == 0) {
    const std::string word = lex_.word();
    if (word == ".align") {
      align = static_cast<u32>(lex_.number().bits);
    } else if (word == ".attribute") {
      lex_.expect('(');
      lex_.skip_past(')');
    } else if (word == ".v2" || word == ".v4") {
      lex_.fail("vector variables are not supported");
    } else if (word == ".ptr") {
      continue;  // `.ptr .global .align 16` of a parameter says nothing that is needed
    } else {
      element = type_bytes(word.substr(1));
      if (element == 0 && !is_space(word) && word != ".u64")
        lex_.fail("unknown type '" + word + "'");
    }
  }
  do {
    // A parameter puts its attributes after the type: `.param .u64 .ptr .align 1 name`.
    while (lex_.peek() == '.') {
      if (lex_.word() == ".align") lex_.number();
    }
    Variable variable;
    variable.space = space_of(space);
    variable.is_extern = is_extern;
    variable.align = align ? align : element;
    variable.name = lex_.identifier();
    u64 count = 1;
    bool open = false;
    if (lex_.accept('<')) {  // .param .b32 p<4>
      lex_.fail("parameterised variable names are not supported");
    }
    while (lex_.accept('[')) {
      if (lex_.accept(']')) {
        open = true;
      } else {
        count = extent(count, lex_.number().bits);
        lex_.expect(']');
      }
    }
    if (lex_.accept('=')) initialiser(variable, element);
    variable.bytes = open ? variable.data.size() : extent(count, element);
    check_size(variable);
    into.push_back(std::move(variable));
  } while (lex_.peek() == ',' && space != ".param" && lex_.accept(','));
}

u64 Parser::extent(u64 count, u64 times) {
  u64 product = 0;
  if (__builtin_mul_overflow(count, times, &product)) lex_.fail("an array is too large");
  return product;
}

void Parser::check_size(const Variable& v) {
  const bool global = v.space == Space::kGlobal || v.space == Space::kConst;
  if (v.bytes > (global ? kLargestGlobal : kLargestLocal))
    lex_.fail("variable " + v.name + " of " + std::to_string(v.bytes) + " bytes is too large");
  if (v.data.size() > v.bytes) lex_.fail("variable " + v.name + " has too many initial values");
  if (v.align == 0 || v.align > 4096 || (v.align & (v.align - 1)) != 0)
    lex_.fail("variable " + v.name + " has an alignment of " + std::to_string(v.align));
}

void Parser::initialiser(Variable& variable, u32 element) {
  const Level level(*this);
  if (lex_.accept('{')) {
    if (lex_.accept('}')) return;
    do {
      initialiser(variable, element);
    } while (lex_.accept(','));
    lex_.expect('}');
    return;
  }
  const u64 at = variable.data.size();
  variable.data.resize(at + element);
  u64 bits = 0;
  if (lex_.at_number()) {
    const Operand value = lex_.number();
    bits = convert_literal(value, element);
  } else {  // an address: symbol, symbol+4, generic(symbol)
    std::string symbol = lex_.identifier();
    const bool generic = symbol == "generic" && lex_.accept('(');
    if (generic) symbol = lex_.identifier();
    s64 addend = 0;
    if (lex_.accept('+')) addend = static_cast<s64>(lex_.number().bits);
    if (generic) lex_.expect(')');
    if (generic && lex_.accept('+')) addend = static_cast<s64>(lex_.number().bits);
    variable.references.push_back({at, symbol, addend});
  }
  for (u32 i = 0; i < element; ++i) variable.data[at + i] = static_cast<u8>(bits >> (8 * i));
}

u64 Parser::convert_literal(const Operand& value, u32 element) {
  if (value.kind == Operand::Kind::kFloat64 && element == 4) {
    double wide;
    __builtin_memcpy(&wide, &value.bits, 8);
    const float narrow = static_cast<float>(wide);
    u32 bits;
    __builtin_memcpy(&bits, &narrow, 4);
    return bits;
  }
  return value.bits;
}

void Parser::function(bool is_entry) {
  fn_ = Function();
  fn_.is_entry = is_entry;
  fn_.scopes.emplace_back();
  scope_ = 0;
  if (lex_.peek() == '(') parameters(fn_.results);
  fn_.name = lex_.identifier();
  if (lex_.peek() == '(') parameters(fn_.params);
  while (lex_.peek() == '.') attribute();
  if (lex_.accept(';')) {  // a declaration
    if (!module_.find(fn_.name)) module_.functions.push_back(std::move(fn_));
    return;
  }
  fn_.has_body = true;
  module_.locations.push_back({lex_.line(), 0, 0});  // locations do not reach across functions
  lex_.expect('{');
  block();
  auto earlier = std::find_if(module_.functions.begin(), module_.functions.end(),
                              [&](const Function& f) { return f.name == fn_.name; });
  if (earlier != module_.functions.end()) {
    *earlier = std::move(fn_);
  } else {
    module_.functions.push_back(std::move(fn_));
  }
}

void Parser::attribute() {
  const std::string word = lex_.word();
  u32* triple = word == ".maxntid"             ? fn_.max_threads
                : word == ".reqntid"           ? fn_.required_threads
                : word == ".reqnctapercluster" ? fn_.required_cluster
                : word == ".maxclusterrank"    ? &fn_.max_cluster
                : word == ".maxnreg"           ? &fn_.max_registers
                : word == ".minnctapersm"      ? &fn_.min_blocks
                                               : nullptr;
  if (word == ".explicitcluster") fn_.explicit_cluster = true;
  const int most =
      word == ".maxnreg" || word == ".minnctapersm" || word == ".maxclusterrank" ? 1 : 3;
  u32 ignored[3];
  if (!triple) triple = ignored;
  for (int i = 0; i < most && lex_.at_number(); ++i) {
    triple[i] = static_cast<u32>(lex_.number().bits);
    if (!lex_.accept(',')) break;
  }
  if (lex_.peek() == '"') lex_.fail("unexpected string after " + word);
}

void Parser::parameters(std::vector<int>& into) {
  lex_.expect('(');
  if (lex_.accept(')')) return;
  do {
    const std::string space = lex_.word();
    if (space == ".reg") lex_.fail(".reg parameters are not supported");
    const size_t before = fn_.variables.size();
    variables(space, false, fn_.variables);
    for (size_t i = before; i < fn_.variables.size(); ++i) {
      fn_.scopes[0].variables[fn_.variables[i].name] = static_cast<int>(i);
      into.push_back(static_cast<int>(i));
    }
  } while (lex_.accept(','));
  lex_.expect(')');
}

std::string Instruction::text() const {
  std::string joined = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) joined += "." + parts[i];
  return joined;
}

const Function* Module::find(const std::string& name) const {
  for (const Function& f : functions) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

u64 Module::function_address(const std::string& name) const {
  constexpr u64 kFunctionWindow = 1ull << 58;  // beside those of types.h
  for (size_t k = 0; k < functions.size(); ++k) {
    if (functions[k].name == name) return kFunctionWindow + 16 * k;
  }
  return 0;
}

u32 type_bytes(const std::string& type) {
  if (type == "f16x2" || type == "bf16x2") return 4;
  if (type == "bf16") return 2;
  if (type == "b128") return 16;
  if (type == "f32x2") return 8;
  if (type.size() < 2) return 0;
  const std::string width = type.substr(1);
  if (std::string("busf").find(type[0]) == std::string::npos) return 0;
  if (width == "8" && type[0] != 'f') return 1;
  if (width == "16") return 2;
  if (width == "32") return 4;
  if (width == "64") return 8;
  return 0;
}

Module parse(const std::string& text) { return Parser(text).run(); }

}  // namespace vgpu::ptx
