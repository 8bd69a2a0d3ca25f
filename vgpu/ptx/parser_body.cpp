// The bodies of functions: statements, instructions and operands.
#include "ptx/parser.h"

namespace vgpu::ptx {
namespace {

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

constexpr size_t kMostRegisters = 1 << 20;

}  // namespace

// Statements up to the closing brace. Inline assembly opens scopes that reuse names.
void Parser::block() {
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

void Parser::statement() {
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

void Parser::directive(const std::string& word) {
  if (word == ".reg") {
    std::string type = lex_.word().substr(1);
    const size_t elements = type == "v2" ? 2 : type == "v4" ? 4 : 0;
    if (elements) type = lex_.word().substr(1);
    if (type != "pred" && type_bytes(type) == 0) lex_.fail("unknown register type '." + type + "'");
    do {
      const std::string name = lex_.identifier();
      if (lex_.accept('<')) {
        const u64 count = lex_.number().bits;
        lex_.expect('>');
        if (count > kMostRegisters) lex_.fail("too many registers");
        for (u64 i = 0; i < count; ++i) declare_register(name + std::to_string(i), type);
      } else if (elements) {  // a vector is its elements: a whole one is no operand here
        for (size_t e = 0; e < elements; ++e) declare_register(name + '.' + "xyzw"[e], type);
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

void Parser::declare_register(const std::string& name, const std::string& type) {
  if (fn_.registers.size() >= kMostRegisters) lex_.fail("too many registers");
  fn_.scopes[scope_].registers[name] = static_cast<int>(fn_.registers.size());
  fn_.registers.push_back({type});
}

void Parser::instruction() {
  const u32 line = lex_.line();
  lex_.expect('@');
  const bool negated = lex_.accept('!');
  const Operand guard = named(lex_.identifier());
  if (guard.kind != Operand::Kind::kRegister) lex_.fail("a guard must be a predicate register");
  instruction(lex_.word(), line);
  fn_.body.back().guard = guard.index;
  fn_.body.back().guard_negated = negated;
}

void Parser::instruction(const std::string& word, u32 line) {
  std::string opcode = word;
  while (lex_.peek() == '.') opcode += lex_.word();  // "lop3 .b32", as people write it
  Instruction ins;
  ins.parts = split_dots(opcode);
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

Operand Parser::operand() {
  Operand first = simple_operand();
  if (!lex_.accept('|')) return first;
  Operand pair;
  pair.kind = Operand::Kind::kPair;
  pair.elements.push_back(std::move(first));
  pair.elements.push_back(simple_operand());
  return pair;
}

Operand Parser::simple_operand() {
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
  std::string name = lex_.identifier();
  if (lex_.accept('.')) name += "." + lex_.identifier();  // of a vector register
  Operand value = named(std::move(name));
  if (value.kind == Operand::Kind::kSymbol || value.kind == Operand::Kind::kVariable) {
    value.offset = offset();
  }
  return value;
}

s64 Parser::offset() {
  if (lex_.accept('+')) return static_cast<s64>(lex_.number().bits);
  if (lex_.at_number()) return static_cast<s64>(lex_.number().bits);  // [%r1-4]
  return 0;
}

Operand Parser::sequence(Operand::Kind kind, char end) {
  Operand list;
  list.kind = kind;
  if (lex_.accept(end)) return list;
  do {
    list.elements.push_back(operand());
  } while (lex_.accept(','));
  lex_.expect(end);
  return list;
}

Operand Parser::named(std::string name) {
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

}  // namespace vgpu::ptx
