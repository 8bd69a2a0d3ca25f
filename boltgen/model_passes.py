"""Arrow: options and measurements to the passes of a model.

what was measured, or the model predicts --> which products become one, what is padded
"""

from __future__ import annotations

import itertools
from functools import partial

from boltgen.arch import Arch, arch_named
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.families.registry import spaces
from boltgen.ir.dtypes import Precision
from boltgen.passes.regions.products import Rejects
from boltgen.passes.run import Passes
from boltgen.pipeline import PipelineOptions
from boltgen.problems.workload import Cut, Cutter, Layer, Workload, separate
from boltgen.stored import own_compilers, stored_measurements
from boltgen.tuning.choice.fusion import candidate_fusions, cut_layers
from boltgen.tuning.choice.graph_costs import GraphTimes, OpenMeasurements
from boltgen.tuning.choice.select import Task


def passes_for(arch: str, options: PipelineOptions) -> Passes:
    """Return the passes of a model for `arch`; a kernel gets as many anchors as is fastest.

    Raises:
        UnknownArchError: `arch` is not in the table.
        InvalidProblemError: its tensor cores do not multiply in the precision that is asked for, or
            not sum so.
    """
    row = arch_named(arch)
    _check_precision(row, options)
    costs = GraphTimes(row, _measurements(row, options))
    return Passes(
        precision=options.precision.dtype,
        cut=cutter(arch, options),
        padding=costs if options.pad else None,
        joining=costs if options.fuse else None,
        rejects=rejecter(arch, options),
        accumulate=options.accumulate,
        trace=options.trace,
    )


def _check_precision(arch: Arch, options: PipelineOptions) -> None:
    precision = options.precision
    reason = precision.dtype.accumulator_rejection(options.accumulate, arch.compute_capability)
    if reason is not None:
        raise InvalidProblemError(
            f"precision={precision.value}, accumulate={options.accumulate.value} on {arch.name}: "
            f"{reason}; precision={Precision.FP16.value} is for every architecture"
        )


def cutter(arch: str, options: PipelineOptions) -> Cutter:
    """Return the function that tells a frontend which anchors become one kernel on `arch`.

    By what was measured, on `options.device` first; by the analytical model where nothing was, or
    where there is no compiler whose kernels measurements could be of.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)
    if not options.fuse:
        return separate
    measurements = _measurements(row, options)

    rejects = rejecter(arch, options)

    def cut(layers: tuple[Layer, ...]) -> Cut:
        with measurements() as known:
            found = cut_layers(Workload(layers=layers).typical.layers, row, known)
        ends = itertools.accumulate(found.counts, initial=0)
        parts = [layers[begin:end] for begin, end in itertools.pairwise(ends)]
        refused = (rejects(Workload(layers=part)) for part in parts if len(part) > 1)
        return separate(layers) if any(refused) else found

    return cut


def rejecter(arch: str, options: PipelineOptions) -> Rejects:
    """Return the function that tells a frontend why no kernel computes a workload on `arch`, or
    None.

    Raises:
        UnknownArchError: `arch` is not in the table.
    """
    row = arch_named(arch)

    def rejects(workload: Workload) -> str | None:
        for each in workload.corners:
            try:
                spaces(each, row)
            except NoLegalConfigError as error:
                return str(error)
            if (given_up := options.excluded.gives_up(each)) is not None:
                return given_up
        return None

    return rejects


class Survey:
    """A cutter that cuts everything, and records the sequences that it was asked about.

    Layers of symbolic sizes are recorded at their typical ones, at which `cutter` decides.
    """

    def __init__(self) -> None:
        self.sequences: list[tuple[Layer, ...]] = []

    def __call__(self, layers: tuple[Layer, ...]) -> Cut:
        """A kernel for each layer."""
        self.sequences.append(Workload(layers=layers).typical.layers)
        return separate(layers)

    def tasks(self, arch: str) -> tuple[Task, ...]:
        """A task for each part of a sequence that is worth timing as one kernel."""
        row = arch_named(arch)
        return tuple(
            Task(workload=workload, is_alternative=True)
            for layers in self.sequences
            for workload in candidate_fusions(layers, row)
        )


def _measurements(arch: Arch, options: PipelineOptions) -> OpenMeasurements:
    """Open the measurements with the compilers that `options` mean."""
    tools = options.toolchain or own_compilers(options.settings)
    return partial(stored_measurements, arch, tools, options.settings, options.device)
