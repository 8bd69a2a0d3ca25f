// From the syntax tree of a kernel to the flat program that warps execute.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exec/op_table.h"
#include "exec/program.h"
#include "ptx/ast.h"

namespace vgpu::ptx {

// What lowering asks SymbolAddress for when a kernel calls malloc or free: no PTX name is like it.
inline constexpr const char* kDeviceHeap = "the heap of malloc";

// The device address of a module-scope variable, or nothing when there is none of that name.
using SymbolAddress = std::function<std::optional<u64>(const std::string&)>;

// `checks` has bits of Check; those that watch instructions are built into the program.
std::unique_ptr<Program> lower(const Module& module, const Function& kernel, const Isa& isa,
                               const SymbolAddress& symbols, u32 checks);

}  // namespace vgpu::ptx
