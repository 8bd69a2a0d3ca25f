"""Every swizzle of a kernel for the price of one: host entries beside the one that it has.

CUTLASS has the swizzle in a kernel's type, but device code takes it from the launch's parameters:
the four swizzles' kernels are the same but for their names (a test compares their PTX). So a unit
of the bundle compiles a kernel once, and has an entry for each.

Arrow: kernel specs without swizzle -> the text of their unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boltgen.codegen.kernel import kernel_symbol, workspace_symbol
from boltgen.codegen.library import render_library
from boltgen.space.kernel import Family, KernelSpec
from boltgen.space.knobs import SWIZZLES

_HEADER = Path(__file__).resolve().parent / "swizzled.h"
# What a family is called in boltgen's headers, and its arguments' type.
_NAMES = {Family.GEMM: ("Gemm", "gemm"), Family.CONV2D: ("Conv2d", "conv2d")}
_ENTRY = """\
namespace {kernel}_kernel {{

using Swizzled{swizzle} = swizzled::{type}<Kernel, {swizzle}>;

extern "C" int {symbol}(
    boltgen_{name}_args const* args, boltgen_status* status) {{
  return boltgen::run_{name}<Swizzled{swizzle}>(
      swizzled::as<Swizzled{swizzle}>({kernel}_device), args, status);
}}

extern "C" size_t {workspace_symbol}(
    boltgen_{name}_args const* args) {{
  return boltgen::{name}_workspace_bytes<Swizzled{swizzle}>(args);
}}

}}  // namespace {kernel}_kernel
"""


def with_swizzle(spec: KernelSpec, swizzle: int) -> KernelSpec:
    """The same kernel with another swizzle."""
    return replace(spec, config=replace(spec.config, swizzle=swizzle))


def render_swizzled(specs: Sequence[KernelSpec]) -> str:
    """A unit with the kernels of `specs`, which have no swizzle, and an entry for each swizzle."""
    header = _HEADER.read_text(encoding="utf-8").replace("#pragma once\n", "")
    entries = [_entry(spec, swizzle) for spec in specs for swizzle in SWIZZLES if swizzle != 1]
    return "\n".join((render_library(specs), header, *entries))


def _entry(spec: KernelSpec, swizzle: int) -> str:
    type_, name = _NAMES[spec.family]
    symbol = kernel_symbol(with_swizzle(spec, swizzle))
    return _ENTRY.format(
        kernel=kernel_symbol(spec),
        swizzle=swizzle,
        type=type_,
        name=name,
        symbol=symbol,
        workspace_symbol=workspace_symbol(symbol),
    )
