"""The launch arguments of attention."""

from __future__ import annotations

from dataclasses import replace

from boltgen.families.chain.traits import launch_of
from boltgen.ir.kernel import Launch
from boltgen.problems.workload import Workload


def launch_of_heads(workload: Workload) -> Launch:
    """Return the launch arguments of attention, for any family.

    Each head is a sequence of its own. The position of heads in TVM's tensors is not part of a
    workload: only the launch has strides, so one kernel and its records serve all positions.
    """
    dense = launch_of(workload)
    own = {f"layers[{index}].group_b": 1 for index in range(len(workload.layers))}
    sizes = {**dense.sizes, "heads": 1, **own}
    return replace(dense, struct="boltgen_attention_args", sizes=sizes)
