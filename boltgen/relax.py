"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual.

With `relax_pipeline=boltgen.relax.pipeline(target)`, what TVM computes is scheduled as it is by
`boltgen.compile`: pools and depthwise convolutions have a thread for each result, short rows of a
softmax or layer norm a warp.
"""

from __future__ import annotations

from boltgen.frontend.relax import partition
from boltgen.runtime.schedules import pipeline

__all__ = ["partition", "pipeline"]
