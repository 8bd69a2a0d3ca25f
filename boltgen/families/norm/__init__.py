"""`norm`: layer norm, RMS norm and softmax of rows, and group norms of images in place.

The kernels include a prologue and an epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from boltgen.arch import Arch
from boltgen.families.boundary import first_beyond, last_below
from boltgen.families.family import KernelFamily, always, of_layer
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
from boltgen.families.norm.model import instructions, predict
from boltgen.families.norm.traits import (
    RowNorm,
    compiled_traits,
    groups_of_vector,
    norm_of,
    rows_of,
    vector_of,
)
from boltgen.families.space import Knob, Space, small_space
from boltgen.ir.kernel import Launch
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm
from boltgen.problems.workload import Layer, Workload


def _space(workload: Workload, arch: Arch) -> Space[NormConfig]:
    """Return the space: threads per row, vectors per thread, rows per threadblock, and passes."""
    layer = workload.single
    problem = norm_of(layer)
    return small_space(
        NormConfig.family,
        (
            Knob("threads", THREADS, 32),
            Knob("vectors", VECTORS, 4),
            Knob("rows", ROWS, 4),
            Knob("passes", _PASSES, 1),
        ),
        _config_at,
        _point_of,
        lambda config: violations(layer, config, arch),
        is_sensible=lambda config: is_sensible(problem, config),
    )


def _launch(workload: Workload, config: NormConfig) -> Launch:
    """Return the sizes of a matrix, with the rows to gather from if any; or the sizes of images."""
    del config
    problem = norm_of(workload.single)
    struct = code.ARGUMENTS[isinstance(problem, GroupNorm)]
    sizes = problem.sizes
    if problem.row_norm.a_rows is not None:
        sizes["a_rows"] = problem.row_norm.a_rows
    return Launch(struct=struct, sizes=sizes)


def _boundaries(workload: Workload, config: NormConfig, arch: Arch) -> tuple[Workload, ...]:
    """Return up to three workloads.

    The first has one row more than a threadblock and the workload's columns. The second has the
    most columns, or, if streamed, more than a thread holds at a time. The third has one row of few
    columns. Rows are gathered from fewer rows, and from more.
    """
    layer = workload.single
    problem, traits = norm_of(layer), of_layer(compiled_traits)(workload)
    held = config.columns(vector_of(problem))
    sized = _of_images if isinstance(problem, GroupNorm) else _of_matrix
    layers = (replace(layer, problem=each) for each in sized(problem, config, held))
    legal = (
        each
        for each in map(_single, layers)
        if of_layer(compiled_traits)(each) == traits
        and not of_layer(violations)(each, config, arch)
    )
    return tuple(dict.fromkeys(legal))


def _single(layer: Layer) -> Workload:
    return Workload(layers=(layer,))


def _of_matrix(problem: RowNorm, config: NormConfig, held: int) -> Iterator[Norm]:
    assert isinstance(problem, Norm)
    vector = vector_of(problem)

    def fits(sized: Norm) -> bool:
        return vector_of(sized) == vector

    columns = min(problem.columns, 2 * held)
    several = _of_rows(replace(problem, rows=config.rows + 1), config.rows // 2 + 1)
    yield several if columns == problem.columns else replace(several, columns=columns)
    end = first_beyond if config.streamed else last_below
    yield end(several, held + (not config.streamed), _with_columns, fits)
    yield first_beyond(_of_rows(replace(problem, rows=1), 3), 0, _with_columns, fits)


def _of_images(problem: RowNorm, config: NormConfig, held: int) -> Iterator[GroupNorm]:
    """Yield images of one row of pixels: several of one group, one of two groups, and one pixel."""
    assert isinstance(problem, GroupNorm)
    groups = max(groups_of_vector(problem), 1)
    channels, of_pixel = groups * problem.channels_per_group, rows_of(problem)[1] // problem.pixels
    one = replace(problem, groups=groups, c=channels, h=1)
    most = held // of_pixel + config.streamed
    yield replace(one, n=config.rows + 1, w=max(min(problem.pixels, most), 1))
    yield replace(one, n=1, groups=2 * groups, c=2 * channels, w=max(most, 1))
    yield replace(one, n=1, w=1)


# A row is read once, or, if it is streamed, in several passes.
_PASSES = (1, 2)


def _config_at(point: Mapping[str, int]) -> NormConfig:
    given = dict(point)
    return NormConfig(streamed=given.pop("passes") > 1, **given)


def _point_of(config: NormConfig) -> dict[str, int]:
    own = {name: getattr(config, name) for name in ("threads", "vectors", "rows")}
    return own | {"passes": _PASSES[config.streamed]}


def _of_rows(problem: Norm, rows: int) -> Norm:
    return problem if problem.a_rows is None else replace(problem, a_rows=rows)


def _with_columns(problem: Norm, columns: int) -> Norm:
    return problem.resized(columns, columns)


FAMILY = KernelFamily(
    config_type=NormConfig,
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
