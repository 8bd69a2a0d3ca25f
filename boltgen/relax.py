"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual.

With `relax_pipeline=boltgen.relax.pipeline(target)` TVM's part is scheduled as `boltgen.compile` has
it: pools and depthwise convolutions with a thread for each result.
"""

from __future__ import annotations

from boltgen.frontend.relax import codegen, partition
from boltgen.runtime.schedules import pipeline

__all__ = ["partition", "pipeline"]

# For those who call RunCodegen themselves on a module that they annotated.
codegen.register()
