// Recursive descent over the PTX grammar. Registers and variables are declared before their use, so
// their names become indices at once; labels are looked up when a function is lowered.
#include <algorithm>
#include <set>

#include "ptx/ast.h"
#include "ptx/lexer.h"

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

bool is_space(const std::string& d) {
  return d == ".global" || d == ".const" || d == ".shared" || d == ".local" || d == ".param";
}

std::vector<std::string> split_dots(const std::string& word) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= word.size()) {
    size_t dot = word.find('.', begin);
    if (dot == word.npos) dot = word.size();
    parts.push_back(word.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

// More than any compiler writes, and little enough to end here instead of running out of memory.
constexpr int kDeepest = 200;
constexpr size_t kMostRegisters = 1 << 20;
constexpr u64 kLargestGlobal = 1ull << 40;
constexpr u64 kLargestLocal = 1ull << 28;

class Parser {
 public:
  explicit Parser(const std::string& text) : lex_(text) {}

  Module run() {
    while (!lex_.at_end()) top_level();
    return std::move(module_);
  }

 private:
  // Counts a level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser.depth_ > kDeepest) parser.lex_.fail("nested too deeply");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;

   private:
    Parser& parser_;
  };

  void top_level() {
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
  void variables(const std::string& space, bool is_extern, std::vector<Variable>& into) {
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

  u64 extent(u64 count, u64 times) {
    u64 product = 0;
    if (__builtin_mul_overflow(count, times, &product)) lex_.fail("an array is too large");
    return product;
  }

  void check_size(const Variable& v) {
    const bool global = v.space == Space::kGlobal || v.space == Space::kConst;
    if (v.bytes > (global ? kLargestGlobal : kLargestLocal))
      lex_.fail("variable " + v.name + " of " + std::to_string(v.bytes) + " bytes is too large");
    if (v.data.size() > v.bytes) lex_.fail("variable " + v.name + " has too many initial values");
    if (v.align == 0 || v.align > 4096 || (v.align & (v.align - 1)) != 0)
      lex_.fail("variable " + v.name + " has an alignment of " + std::to_string(v.align));
  }

  void initialiser(Variable& variable, u32 element) {
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

  static u64 convert_literal(const Operand& value, u32 element) {
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

  void function(bool is_entry) {
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

  void attribute() {
    const std::string word = lex_.word();
    u32* triple = word == ".maxntid"   ? fn_.max_threads
                  : word == ".reqntid" ? fn_.required_threads
                                       : nullptr;
    u32 ignored[3];
    if (!triple) triple = ignored;
    for (int i = 0; i < 3 && lex_.at_number(); ++i) {
      triple[i] = static_cast<u32>(lex_.number().bits);
      if (!lex_.accept(',')) break;
    }
    if (lex_.peek() == '"') lex_.fail("unexpected string after " + word);
  }

  void parameters(std::vector<int>& into) {
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

  // Statements up to the closing brace. Inline assembly opens scopes that reuse names.
  void block() {
    const Level level(*this);
    while (!lex_.accept('}')) {
      if (lex_.at_end()) lex_.fail("function " + fn_.name + " does not end");
      if (lex_.accept(';')) continue;
      if (lex_.accept('{')) {
        const int outer = scope_;
        fn_.scopes.emplace_back();
        fn_.scopes.back().parent = outer;
        scope_ = static_cast<int>(fn_.scopes.size()) - 1;
        block();
        scope_ = outer;
        continue;
      }
      statement();
    }
  }

  void statement() {
    if (lex_.peek() == '@') {
      instruction();
      return;
    }
    const u32 line = lex_.line();
    if (lex_.peek() == '.') {
      directive(lex_.word());
      return;
    }
    // A label or an opcode: both start with a word, and a label's ends in a colon.
    std::string word = lex_.peek() == '%' ? lex_.identifier() : lex_.word();
    if (lex_.peek() == ':' || word.back() == ':') {
      if (word.back() == ':') {
        word.pop_back();
      } else {
        lex_.expect(':');
      }
      if (lex_.peek() == '.' && lex_.peek_is(".branchtargets")) {
        lex_.word();
        auto& targets = fn_.scopes[scope_].branch_targets[word];
        do {
          targets.push_back(lex_.identifier());
        } while (lex_.accept(','));
        lex_.expect(';');
      } else if (lex_.peek_is(".callprototype") || lex_.peek_is(".calltargets")) {
        lex_.skip_past(';');
      } else {
        fn_.scopes[scope_].labels[word] = fn_.body.size();
      }
      return;
    }
    instruction(word, line);
  }

  void directive(const std::string& word) {
    if (word == ".reg") {
      const std::string type = lex_.word().substr(1);
      if (type != "pred" && type_bytes(type) == 0)
        lex_.fail("unknown register type '." + type + "'");
      do {
        const std::string name = lex_.identifier();
        if (lex_.accept('<')) {
          const u64 count = lex_.number().bits;
          lex_.expect('>');
          if (count > kMostRegisters) lex_.fail("too many registers");
          for (u64 i = 0; i < count; ++i) declare_register(name + std::to_string(i), type);
        } else {
          declare_register(name, type);
        }
      } while (lex_.accept(','));
      lex_.expect(';');
    } else if (is_space(word)) {
      const size_t before = fn_.variables.size();
      variables(word, false, fn_.variables);
      lex_.expect(';');
      for (size_t i = before; i < fn_.variables.size(); ++i) {
        fn_.scopes[scope_].variables[fn_.variables[i].name] = static_cast<int>(i);
      }
    } else if (word == ".loc") {
      // `.loc 1 20 3` or `.loc 1 20 3, function_name $L, inlined_at 1 2 3`: no semicolon ends it.
      Location at;
      at.ptx_line = lex_.line();
      at.file = static_cast<int>(lex_.number().bits);
      at.line = static_cast<u32>(lex_.number().bits);
      module_.locations.push_back(at);
      while (lex_.at_number() || lex_.peek() == ',') {
        if (lex_.at_number()) {
          lex_.number();
          continue;
        }
        lex_.accept(',');
        lex_.identifier();
        if (!lex_.at_number()) {
          lex_.identifier();
          if (lex_.accept('+')) lex_.number();
        }
      }
    } else if (word == ".pragma") {
      lex_.skip_past(';');
    } else {
      lex_.fail("unknown directive '" + word + "' in " + fn_.name);
    }
  }

  void declare_register(const std::string& name, const std::string& type) {
    if (fn_.registers.size() >= kMostRegisters) lex_.fail("too many registers");
    fn_.scopes[scope_].registers[name] = static_cast<int>(fn_.registers.size());
    fn_.registers.push_back({type});
  }

  void instruction() {
    const u32 line = lex_.line();
    lex_.expect('@');
    const bool negated = lex_.accept('!');
    const Operand guard = named(lex_.identifier());
    if (guard.kind != Operand::Kind::kRegister) lex_.fail("a guard must be a predicate register");
    instruction(lex_.word(), line);
    fn_.body.back().guard = guard.index;
    fn_.body.back().guard_negated = negated;
  }

  void instruction(const std::string& word, u32 line) {
    Instruction ins;
    ins.parts = split_dots(word);
    ins.line = line;
    ins.scope = scope_;
    if (lex_.peek() != ';') {
      do {
        ins.operands.push_back(operand());
      } while (lex_.accept(','));
    }
    lex_.expect(';');
    fn_.body.push_back(std::move(ins));
  }

  Operand operand() {
    Operand first = simple_operand();
    if (!lex_.accept('|')) return first;
    Operand pair;
    pair.kind = Operand::Kind::kPair;
    pair.elements.push_back(std::move(first));
    pair.elements.push_back(simple_operand());
    return pair;
  }

  Operand simple_operand() {
    const Level level(*this);
    if (lex_.at_number()) return lex_.number();
    if (lex_.accept('{')) return sequence(Operand::Kind::kVector, '}');
    if (lex_.accept('(')) return sequence(Operand::Kind::kList, ')');
    if (lex_.accept('[')) {
      Operand address;
      address.kind = Operand::Kind::kAddress;
      address.elements.push_back(operand());
      address.offset = address.elements[0].kind == Operand::Kind::kVariable ||
                               address.elements[0].kind == Operand::Kind::kSymbol
                           ? 0
                           : offset();
      while (lex_.accept(',')) address.elements.push_back(operand());
      lex_.expect(']');
      return address;
    }
    if (lex_.accept('!')) {
      Operand negated = simple_operand();
      negated.negated = true;
      return negated;
    }
    if (lex_.accept('-')) {  // -%r1 is no PTX, but -WARP_SZ would be
      lex_.fail("unexpected '-'");
    }
    Operand value = named(lex_.identifier());
    if (value.kind == Operand::Kind::kSymbol || value.kind == Operand::Kind::kVariable) {
      value.offset = offset();
    }
    return value;
  }

  s64 offset() {
    if (lex_.accept('+')) return static_cast<s64>(lex_.number().bits);
    if (lex_.at_number()) return static_cast<s64>(lex_.number().bits);  // [%r1-4]
    return 0;
  }

  Operand sequence(Operand::Kind kind, char end) {
    Operand list;
    list.kind = kind;
    if (lex_.accept(end)) return list;
    do {
      list.elements.push_back(operand());
    } while (lex_.accept(','));
    lex_.expect(end);
    return list;
  }

  Operand named(std::string name) {
    Operand value;
    if (name == "_") return value;
    for (int s = scope_; s >= 0; s = fn_.scopes[s].parent) {
      const Scope& scope = fn_.scopes[s];
      if (auto it = scope.registers.find(name); it != scope.registers.end()) {
        value.kind = Operand::Kind::kRegister;
        value.index = it->second;
        return value;
      }
      if (auto it = scope.variables.find(name); it != scope.variables.end()) {
        value.kind = Operand::Kind::kVariable;
        value.index = it->second;
        return value;
      }
    }
    if (name[0] == '%') {
      // %tid.x is special; %r1.x selects nothing in today's PTX.
      value.kind = Operand::Kind::kSpecial;
      value.name = name.substr(1);
      return value;
    }
    if (name == "WARP_SZ") {
      value.kind = Operand::Kind::kInteger;
      value.bits = kWarpSize;
      return value;
    }
    value.kind = Operand::Kind::kSymbol;
    value.name = std::move(name);
    return value;
  }

  Lexer lex_;
  Module module_;
  Function fn_;
  int scope_ = 0;
  int depth_ = 0;
};

}  // namespace

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

u32 type_bytes(const std::string& type) {
  if (type == "f16x2" || type == "bf16x2") return 4;
  if (type == "bf16") return 2;
  if (type == "b128") return 16;
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
