"""Configurations of sm_90a's attention kernels (the free parameters), and their compiled traits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.families.chain.traits import ChainTraits, layers_of_sm90
from boltgen.families.chain.traits import compiled_traits as traits_of_chain
from boltgen.families.wgmma import WARPGROUP_M
from boltgen.ir.dtypes import alignment_elements
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttentionSm90Config:
    """One attention kernel: a threadblock has `rows` of Q, and takes `keys` of them per step.

    `depth` is at least the columns of Q, `columns` at least the columns of V. Each multiplying
    warpgroup has 64 of the rows. The number of stages follows from shared memory.
    """

    family: ClassVar[str] = "attention_sm90"

    rows: int
    keys: int
    depth: int
    columns: int

    @property
    def warpgroups(self) -> int:
        """The number of multiplying warpgroups."""
        return self.rows // WARPGROUP_M

    @property
    def tile(self) -> str:
        """Rows, keys, and the columns of Q and V, as text."""
        return f"{self.rows}x{self.keys}x{self.depth}+{self.columns}"

    def __str__(self) -> str:
        return self.tile


def compiled_traits(workload: Workload) -> ChainTraits:
    """Return the traits for which a kernel of `workload` is compiled."""
    traits = traits_of_chain(workload)
    aligned = alignment_elements(traits.in_dtype)
    return replace(traits, layers=layers_of_sm90(traits), alignment_a=aligned)
