"""`recurrent`: all steps of LSTM, GRU and RNN in one launch, with projected inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.family import KernelFamily, always, of_layer
from boltgen.families.recurrent import code
from boltgen.families.recurrent.config import ALL_UNITS, RecurrentConfig
from boltgen.families.recurrent.legality import (
    GROUPS,
    MOST_ALONE,
    ROWS,
    SLICES,
    UNITS,
    footprint,
    most_parts,
    rejection,
    violations,
    workspace_bytes,
)
from boltgen.families.recurrent.model import instructions, predict
from boltgen.families.recurrent.traits import compiled_traits, recurrent_of
from boltgen.families.space import Knob, Space, small_space
from boltgen.ir.kernel import Launch
from boltgen.ir.recurrence import Cell
from boltgen.problems.workload import Workload

# The places of the weights: registers, or memory.
_PLACES = (1, 2)
# Knobs have no zeros: the hidden units of a threadblock are numbered from 1.
_UNITS = {place + 1: units for place, units in enumerate((ALL_UNITS, *UNITS))}


def _space(workload: Workload, arch: Arch) -> Space[RecurrentConfig]:
    """Groups of hidden units of a warp, the place of the weights, and how units are shared."""
    layer = workload.single
    return small_space(
        RecurrentConfig.family,
        (
            Knob("groups", GROUPS, 1),
            Knob("places", _PLACES, 1),
            Knob("units", tuple(_UNITS), 1),
            Knob("slices", SLICES, 1),
        ),
        _config_at,
        _point_of,
        lambda config: violations(layer, config, arch),
    )


def _launch(workload: Workload, config: RecurrentConfig) -> Launch:
    """The problem's sizes, and the memory in which threadblocks exchange states."""
    greatest = recurrent_of(workload.greatest.single)
    return Launch(
        struct=code.ARGUMENTS,
        sizes=recurrent_of(workload.single).sizes,
        workspace_bytes=workspace_bytes(greatest, config),
        threadblocks_at_once=most_parts(greatest, config),
    )


def _boundaries(workload: Workload, config: RecurrentConfig, arch: Arch) -> tuple[Workload, ...]:
    """A row more than a threadblock has, for a few steps, with all that a launch may pass; and one
    step of one row, with nothing.

    Of many hidden units the virtual GPU takes seconds for a step: they have one direction.
    """
    layer = workload.single
    problem, traits = recurrent_of(layer), compiled_traits(layer)
    has_bias = traits.cell is Cell.GRU
    several = replace(
        problem,
        steps=3,
        batch_rows=ROWS + 1,
        directions=2 if problem.hidden <= MOST_ALONE else 1,
        backwards=False,
        has_bias=has_bias,
        has_states=True,
        has_lengths=True,
        keeps_last=True,
    )
    one = replace(
        problem,
        steps=1,
        batch_rows=1,
        directions=1,
        backwards=True,
        has_bias=False,
        has_states=False,
        has_lengths=False,
        keeps_last=False,
    )
    layers = (replace(layer, problem=each) for each in (several, one))
    return tuple(
        Workload(layers=(each,))
        for each in layers
        if compiled_traits(each) == traits and not violations(each, config, arch)
    )


def _config_at(point: Mapping[str, int]) -> RecurrentConfig:
    return RecurrentConfig(
        groups=point["groups"],
        resident=point["places"] == _PLACES[0],
        units=_UNITS[point["units"]],
        slices=point["slices"],
    )


def _point_of(config: RecurrentConfig) -> dict[str, int]:
    (units,) = (place for place, units in _UNITS.items() if units == config.units)
    return {
        "groups": config.groups,
        "places": _PLACES[not config.resident],
        "units": units,
        "slices": config.slices,
    }


FAMILY = KernelFamily(
    config_type=RecurrentConfig,
    rejects=rejection,
    space=_space,
    violations=of_layer(violations),
    footprint=of_layer(footprint),
    predict=of_layer(predict),
    instructions=of_layer(instructions),
    traits=of_layer(compiled_traits),
    launch=_launch,
    boundaries=_boundaries,
    stem=code.stem,
    describe=code.describe,
    includes=always(code.HEADERS),
    view=code.view,
)
