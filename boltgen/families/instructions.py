"""The instructions of a kernel, as far as configuration and problem determine them.

No compiler runs, so candidates can be ranked by instructions before any kernel exists. The
instructions that ptxas adds for addresses, predicates and loops are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The instructions of one warp until its threadblock ends, and the launch's grid.

    The warp is a multiplying one, if only some multiply, of a threadblock with the most work.
    `products` counts tensor-core instructions, `shared_loads` the loads of operands from shared
    memory into registers, `copies` the loads of operands from global memory. Each copy moves
    `copy_bytes` for a thread, or for a box of the tensor memory accelerator (TMA). Each thread
    computes `outputs` elements of the result, with `arithmetic` further instructions for all of
    them. Counts cover all `steps`, and are means if warps differ. `idle` is the share of the
    `threadblocks`, or of the tiles of persistent ones, that lies beyond the output.
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
        """The total number of instructions; each output is stored by one."""
        counted = self.products + self.shared_loads + self.copies
        return counted + self.outputs + self.arithmetic
