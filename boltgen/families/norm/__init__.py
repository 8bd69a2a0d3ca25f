"""`norm`: layer norm, RMS norm and softmax of rows, with what is done before and after."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.constants import ModelConstants
from boltgen.families.cutlass2.boundary import first_beyond, last_below
from boltgen.families.family import Footprint, WithoutLibrary
from boltgen.families.norm import code
from boltgen.families.norm.config import NormConfig
from boltgen.families.norm.legality import (
    ROWS,
    THREADS,
    VECTORS,
    footprint,
    is_sensible,
    rejection,
    violations,
)
from boltgen.families.norm.model import NormPrediction, predict
from boltgen.families.norm.traits import NormTraits, compiled_traits, norm_of, vector_of
from boltgen.families.space import Knob, Space, Violation
from boltgen.ir.kernel import Launch
from boltgen.ir.norm import Norm
from boltgen.ir.workload import Workload


class NormFamily(WithoutLibrary[NormConfig]):
    """See `families.family.KernelFamily`."""

    name = NormConfig.family
    config_type = NormConfig

    stem = staticmethod(code.stem)
    describe = staticmethod(code.describe)
    includes = staticmethod(code.includes)
    view = staticmethod(code.view)

    def rejects(self, workload: Workload, arch: Arch) -> str | None:
        """What is not one norm of rows whose epilogue has one result."""
        return rejection(workload, arch)

    def space(self, workload: Workload, arch: Arch) -> Space[NormConfig]:
        """Threads of a row, vectors of a thread, rows of a threadblock."""
        layer = workload.single
        problem = norm_of(layer)

        def tried() -> Iterator[NormConfig]:
            for threads, vectors, rows in itertools.product(THREADS, VECTORS, ROWS):
                yield NormConfig(threads=threads, vectors=vectors, rows=rows)

        def listed() -> Iterator[NormConfig]:
            for config in tried():
                if is_sensible(problem, config) and not violations(layer, config, arch):
                    yield config

        return Space(
            family=NormConfig.family,
            knobs=(
                Knob("threads", THREADS, 32),
                Knob("vectors", VECTORS, 4),
                Knob("rows", ROWS, 4),
            ),
            config_at=_config_at,
            point_of=_point_of,
            listed=listed,
            tried=tried,
            broken=lambda config: violations(layer, config, arch),
        )

    def violations(
        self, workload: Workload, config: NormConfig, arch: Arch
    ) -> tuple[Violation, ...]:
        """The rules of `legality`."""
        return violations(workload.single, config, arch)

    def footprint(self, workload: Workload, config: NormConfig) -> Footprint:
        """What `legality` says."""
        return footprint(workload.single, config)

    def predict(
        self,
        workload: Workload,
        config: NormConfig,
        arch: Arch,
        constants: ModelConstants | None = None,
    ) -> NormPrediction:
        """Bytes or waits, of `model`."""
        return predict(workload.single, config, arch, constants)

    def compiled(self, config: NormConfig) -> NormConfig:
        """All of it."""
        return config

    def traits(self, workload: Workload) -> NormTraits:
        """The function, types, vectors and graphs, and whether rows are taken."""
        return compiled_traits(workload.single)

    def launch(self, workload: Workload, config: NormConfig) -> Launch:
        """Rows and columns, and how many rows there are to take."""
        del config
        layer = workload.single
        problem = norm_of(layer)
        sizes = problem.sizes
        if problem.a_rows is not None:
            sizes[f"operands[{layer.place_of_rows}].ld"] = problem.a_rows
        return Launch(struct="boltgen_norm_args", sizes=sizes)

    def boundaries(
        self, workload: Workload, config: NormConfig, arch: Arch
    ) -> tuple[Workload, ...]:
        """A row more than a threadblock, of the columns at hand and of the most; one of few. Rows
        are taken of fewer, and of more.
        """
        problem, vector = norm_of(workload.single), vector_of(norm_of(workload.single))

        def fits(sized: Norm) -> bool:
            return vector_of(sized) == vector

        several = _of_rows(replace(problem, rows=config.rows + 1), config.rows // 2 + 1)
        most = last_below(several, config.columns(vector) + 1, _with_columns, fits)
        few = first_beyond(_of_rows(replace(problem, rows=1), 3), 0, _with_columns, fits)
        sized = (
            Workload(layers=(replace(workload.single, problem=each),))
            for each in (several, most, few)
        )
        legal = (each for each in sized if not self.violations(each, config, arch))
        return tuple(dict.fromkeys(legal))


def _config_at(point: Mapping[str, int]) -> NormConfig:
    return NormConfig(**point)


def _point_of(config: NormConfig) -> dict[str, int]:
    return {name: getattr(config, name) for name in ("threads", "vectors", "rows")}


def _of_rows(problem: Norm, rows: int) -> Norm:
    return problem if problem.a_rows is None else replace(problem, a_rows=rows)


def _with_columns(problem: Norm, columns: int) -> Norm:
    return problem.resized(columns, columns)


FAMILY = NormFamily()
