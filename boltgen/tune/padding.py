"""Times by which padding is chosen: those of the analytical model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from boltgen.arch import Arch
from boltgen.errors import NoLegalConfigError
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Problem
from boltgen.space.kernel import execution_problem
from boltgen.tune.model_constants import model_constants
from boltgen.tune.select import ModelCosts


@dataclass(frozen=True, slots=True)
class ModelPaddingCosts:
    """Predictions for `arch`, products summed in `accumulate`."""

    arch: Arch
    accumulate: DType
    _known: dict[tuple[Problem, Epilogue], float] = field(default_factory=dict)

    def kernel_us(self, problem: Problem, epilogue: Epilogue) -> float:
        """The predicted time of the best configuration; infinite where none is legal."""
        key = (problem, epilogue)
        if key not in self._known:
            executed = replace(execution_problem(problem), acc_dtype=self.accumulate)
            try:
                costs = ModelCosts(self.arch).costs(executed, epilogue).by_config.values()
            except NoLegalConfigError:
                self._known[key] = math.inf
            else:
                self._known[key] = min(cost for cost in costs if isinstance(cost, float))
        return self._known[key]

    def move_us(self, bytes_moved: int, launches: int) -> float:
        """A move's launches, and its bytes at the bandwidth that a copy reaches."""
        constants = model_constants()
        bytes_per_us = self.arch.dram_gb_per_s * 1e3 * constants.dram_fraction
        return launches * constants.launch_us + bytes_moved / bytes_per_us
