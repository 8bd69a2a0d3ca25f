#include "ptx/lexer.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

namespace vgpu::ptx {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

}  // namespace

void Lexer::advance(size_t n) {
  for (size_t i = 0; i < n && position_ < text_.size(); ++i) line_ += text_[position_++] == '\n';
}

void Lexer::skip() {
  while (!at_end()) {
    if (std::isspace(static_cast<unsigned char>(peek()))) {
      advance(1);
    } else if (peek_is("//")) {
      const size_t end = text_.find('\n', position_);
      advance((end == text_.npos ? text_.size() : end) - position_);
    } else if (peek_is("/*")) {
      const size_t end = text_.find("*/", position_ + 2);
      advance((end == text_.npos ? text_.size() : end + 2) - position_);
    } else {
      return;
    }
  }
}

bool Lexer::accept(char c) {
  if (peek() != c) return false;
  advance(1);
  skip();
  return true;
}

void Lexer::expect(char c) {
  if (!accept(c)) {
    fail(std::string("expected '") + c + "', found '" + std::string(text_.substr(position_, 20)) +
         "'");
  }
}

std::string Lexer::identifier() {
  size_t end = position_;
  const bool dotted = peek() == '%';
  if (dotted) ++end;
  while (end < text_.size() && (is_name(text_[end]) || (dotted && text_[end] == '.'))) ++end;
  if (end == position_) {
    fail("expected a name, found '" + std::string(text_.substr(position_, 20)) + "'");
  }
  std::string name(text_.substr(position_, end - position_));
  advance(end - position_);
  skip();
  return name;
}

std::string Lexer::word() {
  size_t end = position_;
  const bool directive = peek() == '.';  // `.reg.b32 t` is two of them
  if (directive) ++end;
  while (end < text_.size() &&
         (is_name(text_[end]) || (text_[end] == '.' && !directive) || text_[end] == ':')) {
    ++end;
  }
  if (end == position_) {
    fail("expected an opcode or directive, found '" + std::string(text_.substr(position_, 20)) +
         "'");
  }
  std::string found(text_.substr(position_, end - position_));
  advance(end - position_);
  skip();
  return found;
}

std::string Lexer::quoted() {
  expect('"');
  const size_t end = text_.find('"', position_);
  if (end == text_.npos) fail("a string does not end");
  std::string found(text_.substr(position_, end - position_));
  advance(end + 1 - position_);
  skip();
  return found;
}

bool Lexer::at_number() const {
  const char c = peek();
  if (std::isdigit(static_cast<unsigned char>(c))) return true;
  return c == '-' && position_ + 1 < text_.size() &&
         std::isdigit(static_cast<unsigned char>(text_[position_ + 1]));
}

Operand Lexer::number() {
  Operand value;
  const bool negative = peek() == '-';
  size_t begin = position_ + (negative ? 1 : 0);
  size_t end = begin;
  const auto at = [&](size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  const char mark = at(begin) == '0' ? static_cast<char>(std::tolower(at(begin + 1))) : '\0';
  if (mark == 'f' || mark == 'd') {
    end = begin + 2 + (mark == 'f' ? 8 : 16);
    const std::string digits(text_.substr(begin + 2, end - begin - 2));
    value.kind = mark == 'f' ? Operand::Kind::kFloat32 : Operand::Kind::kFloat64;
    value.bits = std::strtoull(digits.c_str(), nullptr, 16);
    if (negative) value.bits ^= mark == 'f' ? 0x80000000ull : 1ull << 63;
  } else {
    while (std::isalnum(static_cast<unsigned char>(at(end))) || at(end) == '.') ++end;
    std::string digits(text_.substr(begin, end - begin));
    const bool hex = mark == 'x';
    if (!hex && digits.find_first_of(".eE") != digits.npos) {
      const double parsed = std::strtod(digits.c_str(), nullptr) * (negative ? -1 : 1);
      value.kind = Operand::Kind::kFloat64;
      std::memcpy(&value.bits, &parsed, 8);
    } else {
      value.kind = Operand::Kind::kInteger;
      const int base = hex ? 16 : mark == 'b' ? 2 : mark != '\0' && digits.size() > 1 ? 8 : 10;
      value.bits = std::strtoull(digits.c_str() + (base == 2 ? 2 : 0), nullptr, base);
      if (negative) value.bits = 0 - value.bits;
    }
  }
  advance(end - position_);
  skip();
  return value;
}

void Lexer::skip_past(char c) {
  int depth = 0;
  while (!at_end()) {
    const char here = peek();
    if (here == '"') {
      quoted();
      continue;
    }
    depth += here == '{';
    depth -= here == '}';
    advance(1);
    skip();
    if (here == c && depth == 0) return;
  }
}

}  // namespace vgpu::ptx
