"""Options of a tuning session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boltgen.cost.model import ANALYTICAL, CostModel
from boltgen.families.family import Level
from boltgen.problems.workload import Workload
from boltgen.tuning.session.scheduler import ByWeight, Scheduler
from boltgen.tuning.strategies.evolutionary import Evolutionary
from boltgen.tuning.strategies.strategy import StrategyFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The strategy, cost model, scheduler and further options of a session.

    Candidates are the kernels of a library of that `level`, ordered by `cost_model`; at the full
    level the remaining budget is spent on unlisted kernels. With `wait` the session waits for
    another one on the same device. `seed` determines all random choices. `runs` has, for each of
    several models, the number of runs of its workloads; without it all tasks belong to one model.
    """

    strategy: StrategyFactory = Evolutionary
    cost_model: CostModel = ANALYTICAL
    scheduler: Scheduler = field(default_factory=ByWeight)
    level: Level = Level.STANDARD
    seed: int = 0
    wait: bool = True
    runs: tuple[Mapping[Workload, float], ...] = ()
