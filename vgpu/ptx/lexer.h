// Splits PTX text into tokens on demand, and knows the line it is on.
#pragma once

#include <string>
#include <string_view>

#include "ptx/ast.h"

namespace vgpu::ptx {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { skip(); }

  bool at_end() const { return position_ >= text_.size(); }
  u32 line() const { return line_; }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  bool peek_is(std::string_view what) const { return text_.substr(position_, what.size()) == what; }

  bool accept(char c);
  void expect(char c);
  // A name: letters, digits, _ $ % ; a register such as %tid.x keeps its dots.
  std::string identifier();
  // The next opcode with all its dots and colons, or one directive.
  std::string word();
  std::string quoted();
  bool at_number() const;
  // An integer or floating-point literal, with a leading minus.
  Operand number();
  [[noreturn]] void fail(const std::string& what) const { throw SyntaxError(line_, what); }
  // Skips to and over the next c that is outside of braces.
  void skip_past(char c);

 private:
  void skip();  // blanks and comments
  void advance(size_t n);

  std::string_view text_;
  size_t position_ = 0;
  u32 line_ = 1;
};

}  // namespace vgpu::ptx
