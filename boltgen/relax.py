"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual.

With `relax_pipeline=boltgen.relax.pipeline(target)` its part is scheduled as by `boltgen.compile`:
a thread for each result of pools and depthwise convolutions.
"""

from __future__ import annotations

from boltgen.frontend.relax import codegen, partition
from boltgen.runtime.schedules import pipeline

__all__ = ["partition", "pipeline"]

# For those who call RunCodegen themselves on a module that they annotated.
codegen.register()
