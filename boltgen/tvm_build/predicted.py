"""The predicted time of a partitioned Relax model; nothing is compiled.

A launch moves each of its tensors once; workspaces and caches are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm

from boltgen.arch import Arch
from boltgen.artifact.coverage import RestKernel
from boltgen.families.constants import model_constants
from boltgen.frontend import relax
from boltgen.pipeline import Plan, plan_regions
from boltgen.problems.layout_transform.problem import LayoutTransform
from boltgen.tuning.choice.graph_costs import GraphTimes
from boltgen.tvm_build.lowering.schedules import unscheduled
from boltgen.tvm_build.model import Model
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.tvm_build.rest.relax_kernels import rest_kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """The module that TVM would build, its regions' plan, and times in us.

    `regions_us` counts kernels of regions and layout transforms, `rest_us` TVM's kernels by name.
    """

    module: tvm.IRModule
    plan: Plan
    moves: tuple[LayoutTransform, ...]
    rest: tuple[RestKernel, ...]
    regions_us: float
    rest_us: Mapping[str, float]

    @property
    def total_us(self) -> float:
        """The time of all launches."""
        return self.regions_us + sum(self.rest_us.values())


def model_times(model: Model, arch: Arch) -> ModelTimes:
    """Predict the times of a partitioned model's launches on `arch`.

    Raises:
        NoLegalConfigError: no kernel computes a region.
    """
    plan = plan_regions(model.regions, arch.name)
    symbols = [each.symbol for each in model.regions]
    attached = relax.attach(model.partitioned, (), symbols, {})
    module = unscheduled(attached, cuda_target(arch))
    rest = tuple(rest_kernels(module) or ())
    moves = tuple(move.transform for each in plan.launches for move in each.memory.moves)
    times, constants = GraphTimes(arch), model_constants(arch)
    regions_us = sum(row[0].time_us for row in plan.decisions)
    regions_us += sum(times.move_us(move.bytes_moved, 1) for move in moves)
    return ModelTimes(
        module=module,
        plan=plan,
        moves=moves,
        rest=rest,
        regions_us=regions_us,
        rest_us={each.name: each.time_us(arch, constants) for each in rest},
    )
