"""Kernels that are wrong on purpose: each as a mistake in a template or header would make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from boltgen.families.source import KernelSource

Sabotage = Callable[[KernelSource], KernelSource]


def _changed(source: KernelSource, old: str, new: str) -> KernelSource:
    assert old in source.text, f"{source.symbol} has no {old!r}"
    return replace(source, text=source.text.replace(old, new))


def wrong_constant(source: KernelSource) -> KernelSource:
    """The sum is too large by a hundredth."""
    text = "operator()(float acc"
    assert text in source.text
    head, _, body = source.text.partition(text)
    arguments, _, rest = body.partition("const {\n")
    return replace(source, text=f"{head}{text}{arguments}const {{\n    acc *= 1.01f;\n{rest}")


def one_row_more(source: KernelSource) -> KernelSource:
    """The kernel computes, and stores, a row more than there is."""
    return _changed(
        source,
        f"{source.symbol}_device, args, status);",
        f"{source.symbol}_device,\n"
        "      [&] { static thread_local boltgen_gemm_args more; more = *args; ++more.m;\n"
        "            return &more; }(), status);",
    )


def no_barriers(source: KernelSource) -> KernelSource:
    """Threads do not wait for each other's part of a tile."""
    include = '#include "boltgen/activations.h"'
    return _changed(source, include, f"#define __syncthreads() static_cast<void>(0)\n{include}")


def foreign_symbol(source: KernelSource) -> KernelSource:
    """The kernel is there under another name."""
    renamed = source.symbol.replace("boltgen_", "other_")
    return replace(source, text=source.text.replace(source.symbol, renamed))


def no_wait(source: KernelSource) -> KernelSource:
    """The kernel does not wait for the kernel before it."""
    first = source.text.index("#include")
    waiting = (
        '#include "boltgen/dependent_launch.h"\n'
        "#define wait_for_earlier_kernels() let_next_kernel_start()\n"
    )
    return replace(source, text=source.text[:first] + waiting + source.text[first:])
