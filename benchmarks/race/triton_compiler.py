"""Compile a kernel of `triton_kernels` to PTX by Triton's own compiler, without a GPU."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from benchmarks.race import triton_kernels
from benchmarks.race.contestant import CannotRunError
from benchmarks.race.triton_setup import WARP, Setup
from boltgen.arch import arch_named

# Triton specialises a kernel for pointers and extents that are multiples of this.
_DIVISOR = 16


def ptxas_for(arch: str) -> Path:
    """Return the ptxas for which Triton writes PTX: newer architectures have a newer one."""
    return Path(get_ptxas(_capability(arch)).path)


def _capability(arch: str) -> int:
    major, minor = arch_named(arch).compute_capability
    return 10 * major + minor


def made(setup: Setup, pointers: int, arch: str) -> Any:
    """Compile a kernel whose first parameters are so many pointers to FP16.

    Raises:
        CannotRunError: Triton does not compile it.
    """
    kernel = getattr(triton_kernels, setup.kernel)
    names = list(inspect.signature(kernel.fn).parameters)
    extents = dict(zip(names[pointers:], setup.extents, strict=False))
    types = dict.fromkeys(names[:pointers], "*fp16")
    types |= {n: "fp32" if isinstance(v, float) else "i32" for n, v in extents.items()}
    types |= dict.fromkeys(setup.constants, "constexpr")
    # As for a call from Python: pointers of tensors are aligned, and extents known to be multiples.
    aligned = [
        name for name in types if types[name] == "*fp16" or extents.get(name, 1) % _DIVISOR == 0
    ]
    source = ASTSource(
        kernel,
        signature=types,
        constexprs=dict(setup.constants),
        attrs={(names.index(name),): [["tt.divisibility", _DIVISOR]] for name in aligned},
    )
    target = GPUTarget("cuda", _capability(arch), WARP)
    # Fused multiply-adds are the default of this release, which warns unless they are asked for.
    options = {
        "num_warps": setup.warps,
        "num_stages": setup.stages,
        "enable_fp_fusion": True,
    }
    try:
        return triton.compile(source, target=target, options=options)
    except Exception as error:  # its compiler raises many kinds
        raise CannotRunError(f"it does not compile: {type(error).__name__}: {error}") from error
