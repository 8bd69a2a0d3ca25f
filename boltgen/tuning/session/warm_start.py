"""Load this device's outcomes for a problem and its neighbours into a search.

Arrow: from the database to the experience of a session. Unlike times from elsewhere, all of them
were measured here, so they correct the cost model without a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from boltgen.arch import Arch
from boltgen.cost.model import CostModel
from boltgen.families.family import Config
from boltgen.families.registry import spaces, violations
from boltgen.ir.outcome import Outcome
from boltgen.tuning.session.transfer import Elsewhere
from boltgen.tuning.strategies.residual import Residual
from boltgen.tuning.strategies.strategy import SearchProblem


def recall(
    searched: SearchProblem,
    known: Mapping[Config, Outcome],
    elsewhere: Elsewhere,
    arch: Arch,
    model: CostModel,
) -> None:
    """Add a problem's `known` outcomes, and its neighbours' outcomes, to its experience.

    Raises:
        DatabaseError: the database cannot be read.
    """
    Residual(searched).observe(tuple(known.items()))
    for workload, outcomes in elsewhere.here(searched.workload).items():
        if outcomes and workload not in searched.experience:
            neighbour = SearchProblem(
                workload=workload,
                candidates=(),
                spaces=spaces(workload, arch),
                predicted_us=partial(model.predict_us, workload, arch=arch),
                experience=searched.experience,
            )
            # A record may be older than a rule that makes its configuration illegal.
            legal = [each for each in outcomes.items() if not violations(workload, each[0], arch)]
            Residual(neighbour).observe(legal)
