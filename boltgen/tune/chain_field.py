"""Which configurations of a back-to-back kernel a session tries.

There is no round one: between layers the kernel depends on the epilogues, and a plain one would
rank nothing. A chain has tens of legal configurations, few of them far apart, and each is a kernel
that takes a compiler seconds: so those are timed that the model likes best, as they ship.
"""

from __future__ import annotations

from collections.abc import Mapping

from boltgen.arch import Arch
from boltgen.ir.chain import Chain
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.space.b2b_enumerate import enumerate_chain_configs
from boltgen.space.b2b_legality import chain_violations
from boltgen.space.config import B2bConfig
from boltgen.space.legality import Violation
from boltgen.tune.chain_model import predict_chain

# A choice: as many kernels as single products have in round two, and one more.
CHAIN_FINALISTS = 4


class ChainLaunches:
    """The legal configurations of one chain, and what the model says of them.

    Raises:
        NoLegalConfigError: there is none.
    """

    def __init__(self, chain: Chain, arch: Arch) -> None:
        self._chain, self._arch = chain, arch
        self._configs = enumerate_chain_configs(chain, arch)

    def predicted_us(self, config: B2bConfig, epilogue: ElementwiseGraph) -> float:
        """The analytical model's time; a chain's epilogues are in it."""
        del epilogue
        return predict_chain(self._chain, config, self._arch).time_us

    def violations(self, config: B2bConfig) -> tuple[Violation, ...]:
        """The rules that a configuration breaks."""
        return chain_violations(self._chain, config, self._arch)

    def finalists(
        self, epilogue: ElementwiseGraph, field_us: Mapping[B2bConfig, float]
    ) -> tuple[B2bConfig, ...]:
        """What is timed, the predicted fastest first."""
        del field_us
        order = sorted((self.predicted_us(each, epilogue), each) for each in self._configs)
        return tuple(config for _, config in order[:CHAIN_FINALISTS])
