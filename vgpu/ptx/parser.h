// Recursive descent over the PTX grammar. Registers and variables are declared before their use, so
// their names become indices at once; labels are looked up when a function is lowered.
#pragma once

#include "ptx/ast.h"
#include "ptx/lexer.h"

namespace vgpu::ptx {

class Parser {
 public:
  explicit Parser(const std::string& text) : lex_(text) {}
  Module run();

 private:
  // More than any compiler writes, and little enough to end here instead of running out of memory.
  static constexpr int kDeepest = 200;

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

  // parser.cpp: the module, variables, heads of functions
  void top_level();
  void variables(const std::string& space, bool is_extern, std::vector<Variable>& into);
  u64 extent(u64 count, u64 times);
  void check_size(const Variable& v);
  void initialiser(Variable& variable, u32 element);
  static u64 convert_literal(const Operand& value, u32 element);
  void function(bool is_entry);
  void attribute();
  void parameters(std::vector<int>& into);

  // parser_body.cpp: statements, instructions, operands
  void block();
  void statement();
  void directive(const std::string& word);
  void declare_register(const std::string& name, const std::string& type);
  void instruction();
  void instruction(const std::string& word, u32 line);
  Operand operand();
  Operand simple_operand();
  s64 offset();
  Operand sequence(Operand::Kind kind, char end);
  Operand named(std::string name);

  Lexer lex_;
  Module module_;
  Function fn_;
  int scope_ = 0;
  int depth_ = 0;
};

// A state space's directive: ".global" and its like.
bool is_space(const std::string& directive);

}  // namespace vgpu::ptx
