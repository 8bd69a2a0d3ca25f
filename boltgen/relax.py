"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual."""

from __future__ import annotations

from boltgen.frontend.relax import codegen, partition

__all__ = ["partition"]

# For those who call RunCodegen themselves on a module that they annotated.
codegen.register()
