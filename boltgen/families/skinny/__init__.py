"""`skinny`: matmuls of few rows, as in decoding, whose time is the time to read B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.boundary import first_beyond, last_below
from boltgen.families.family import Footprint, KernelFamily, of_anchor, of_layer
from boltgen.families.mma_sync.traits import compiled_traits
from boltgen.families.skinny import code
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.skinny.legality import (
    COLUMNS,
    ROWS,
    STEPS,
    WARPS,
    footprint,
    is_sensible,
    rejection,
    violations,
)
from boltgen.families.skinny.model import instructions, predict
from boltgen.families.space import Knob, Space, Violation, small_space
from boltgen.ir.kernel import Launch
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

_BATCH = 3


def _space(workload: Workload, arch: Arch) -> Space[SkinnyConfig]:
    """Return the space of rows, columns, warps, and steps in flight."""
    problem = _product(workload)
    return small_space(
        SkinnyConfig.family,
        (
            Knob("rows", ROWS, 8),
            Knob("columns", COLUMNS, 32),
            Knob("warps", WARPS, 8),
            Knob("steps", STEPS, 2),
        ),
        _config_at,
        _point_of,
        lambda config: violations(problem, config, arch),
        is_sensible=lambda config: is_sensible(problem, config),
    )


def _violations(workload: Workload, config: SkinnyConfig, arch: Arch) -> tuple[Violation, ...]:
    """The rules of `legality`."""
    return violations(_product(workload), config, arch)


def _footprint(workload: Workload, config: SkinnyConfig) -> Footprint:
    """Return the footprint by `legality`."""
    return footprint(_product(workload), config)


def _launch(workload: Workload, config: SkinnyConfig) -> Launch:
    """Return the problem's sizes; K is split within threadblocks, in any order of them."""
    del config
    sizes = _product(workload).sizes | {"split_k": 1, "swizzle": 1}
    return Launch(struct="boltgen_gemm_args", sizes=sizes)


def _boundaries(workload: Workload, config: SkinnyConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return several ragged tiles with K of over a round of the warps, and less than a tile."""
    problem, epilogue = _product(workload), workload.single.epilogue
    traits = compiled_traits(problem, epilogue)
    batch = _BATCH if problem.batch > 1 else 1
    deep = 2 * config.round(problem) + config.depth(problem)

    def fits(sized: Problem) -> bool:
        return compiled_traits(sized, epilogue) == traits

    large = replace(problem, batch=batch, m=config.rows + 3)
    large = first_beyond(large, deep, _with_depth, fits)
    large = first_beyond(large, 2 * config.columns, _with_columns, fits)
    small = replace(problem, batch=batch, m=1)
    small = first_beyond(small, 0, _with_depth, fits)
    small = last_below(small, config.columns, _with_columns, fits)
    found = (each for each in (large, small) if not violations(each, config, arch))
    return tuple(dict.fromkeys(Workload.of(each, epilogue) for each in found))


def _config_at(point: Mapping[str, int]) -> SkinnyConfig:
    return SkinnyConfig(**point)


def _point_of(config: SkinnyConfig) -> dict[str, int]:
    return {name: getattr(config, name) for name in ("rows", "columns", "warps", "steps")}


def _product(workload: Workload) -> Gemm:
    problem = workload.single.problem
    assert isinstance(problem, Gemm)
    return problem


def _with_depth(problem: Gemm, depth: int) -> Gemm:
    return problem.resized(depth, problem.n)


def _with_columns(problem: Gemm, columns: int) -> Gemm:
    return problem.resized(problem.k, columns)


# The compiled part of a workload is that of `mma_sync`.
FAMILY = KernelFamily(
    config_type=SkinnyConfig,
    rejects=rejection,
    space=_space,
    violations=_violations,
    footprint=_footprint,
    predict=of_layer(predict),
    instructions=of_layer(instructions),
    traits=of_anchor(compiled_traits),
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=code.includes,
    view=code.view,
)
