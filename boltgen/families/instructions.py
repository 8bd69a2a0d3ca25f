"""The instructions of a kernel, as its configuration and its problem decide them.

No compiler is asked, so that candidates can be ranked by instructions before any kernel exists.
Instructions that ptxas adds for addresses, predicates and loops are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The instructions of one warp until its threadblock ends, and its grid.

    The warp is one that multiplies, where only some do, and its threadblock is one that has most to
    do. `products` counts instructions of tensor cores. `shared_loads` counts the loads of their
    operands from shared memory into registers. `copies` counts the loads of operands from global
    memory; each moves `copy_bytes` for a thread, or for a box of the tensor memory accelerator.
    Each thread makes `outputs` elements of the result, with `arithmetic` instructions besides for
    all of these. Counts are of all its `steps`, and mean values where warps differ. `idle` is the
    share of the `threadblocks` of the launch, or of the tiles of persistent ones, that lies beyond
    the output.
    """

    threadblocks: int
    idle: float = 0.0
    steps: float
    products: float
    shared_loads: float
    copies: float
    copy_bytes: float
    outputs: float
    arithmetic: float

    @property
    def issued(self) -> float:
        """All of them: each output is stored by an instruction."""
        counted = self.products + self.shared_loads + self.copies
        return counted + self.outputs + self.arithmetic
