"""Moves on the virtual GPU: exact, within their operands, in whole sectors, without conflicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.kernels import move_spec
from benchmarks.harness.kernel_launch import Args, Array, Cuda, KernelError, KernelLibrary
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.errors import InvalidProblemError
from boltgen.families.move import MoveConfig
from boltgen.families.registry import launch
from boltgen.families.source import KernelSource, kernel_symbol, render_library
from boltgen.ir.dtypes import DType
from boltgen.measure.abi import arguments
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    LayoutTransform,
    Move,
    nhwc,
    reference_move,
)
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from

NCHW_F16 = Form(layout=ImageLayout.NCHW, dtype=DType.F16)
NCHW_F32 = Form(layout=ImageLayout.NCHW, dtype=DType.F32)
NHWC_F32 = Form(layout=ImageLayout.NHWC, dtype=DType.F32)
MOVES = tuple(
    Move(source=source, target=target)
    for narrow in (DType.F16, DType.BF16)
    for source, target in itertools.product(
        (Form(layout=ImageLayout.NCHW, dtype=narrow), nhwc(narrow), NCHW_F32, NHWC_F32), repeat=2
    )
    if nhwc(narrow) in (source, target)
)
# (n, h, w, source channels, target channels): images, odd everything, several tiles, vectors at
# one side only, cropping, one pixel, more channels than a tile.
SIZES = (
    (2, 16, 24, 3, 4),
    (1, 9, 7, 3, 8),
    (2, 14, 19, 46, 48),
    (1, 1, 1, 1, 8),
    (3, 13, 5, 48, 46),
    (1, 8, 8, 64, 64),
    (2, 20, 26, 174, 176),
    (1, 5, 12, 200, 200),
    (1, 3, 3, 2039, 2040),
    (1, 4, 4, 9, 1),
    (1, 40, 41, 8, 1),
)


@dataclass(frozen=True, slots=True)
class Moves:
    """All moves, for one architecture."""

    library: KernelLibrary
    arch: str

    def launch(self, move: Move, args: Args) -> None:
        self.library.launch(kernel_symbol(move_spec(move, self.arch)), args)


RunMove = Callable[[Move, Array, int], Array]


@pytest.fixture(scope="module", params=["sm_75", "sm_80", "sm_90"])
def library(
    cuda: Cuda, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Moves:
    """All moves, on a device of their arch."""
    cuda.become(request.param)
    settings = settings_from()
    tools = find_toolchain(settings)
    specs = [move_spec(move, request.param) for move in MOVES]
    text = render_library(specs)
    source = KernelSource(spec=specs[0], symbol="moves", workspace_symbol="", text=text)
    unit = kernel_unit(source, tools, DeviceCode.PTX)
    objects = objects_or_raise(compile_all([unit], Cache(settings.cache_dir), jobs=1))
    folder: Path = tmp_path_factory.mktemp("moves")
    path = link_shared([objects[0].path], folder / "libmoves.so", tools)
    return Moves(KernelLibrary(path), request.param)


def arguments_of(move: Move, images: int, pixels: int, channels: tuple[int, int]) -> Args:
    """What the family asks for, without the tensors."""
    transform = LayoutTransform(
        move=move,
        images=images,
        pixels=pixels,
        source_channels=channels[0],
        target_channels=channels[1],
    )
    asked = launch(Workload.of(transform), MoveConfig())
    assert asked.workspace_bytes == 0
    return arguments(asked.struct, asked.sizes)


@pytest.fixture
def run(cuda: Cuda, library: Moves) -> Iterator[RunMove]:
    def run_move(move: Move, source: Array, target_c: int) -> Array:
        like = reference_move(move, source, target_c)
        poison = np.full(like.nbytes, 0xFF, np.uint8).view(like.dtype).reshape(like.shape)
        nhwc = source.transpose(0, 2, 3, 1) if move.source.layout is ImageLayout.NCHW else source
        n, h, w, c = nhwc.shape
        args = arguments_of(move, n, h * w, (c, target_c))
        args.source, args.target = cuda.upload(source), cuda.upload(poison)
        library.launch(move, args)
        cuda.synchronise()
        return cuda.download(args.target, like)

    yield run_move
    cuda.free_all()


def image(move: Move, sizes: tuple[int, ...], rng: np.random.Generator) -> Array:
    n, h, w, c, _ = sizes
    shape = (n, c, h, w) if move.source.layout is ImageLayout.NCHW else (n, h, w, c)
    dtype = move.source.dtype.numpy
    values = rng.uniform(-4, 4, shape).astype(dtype)
    # What rounding makes of large, tiny and special values is part of the move.
    special = np.array([np.inf, -0.0, 65519.0, 1e-8, 6e-8, -np.inf, 3.395e38, 1e-40], np.float64)
    with np.errstate(over="ignore"):
        special = special.astype(dtype)
    flat = values.reshape(-1)
    flat[: min(flat.size, special.size)] = special[: flat.size]
    return values


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("move", MOVES, ids=str)
def test_a_move_is_exact(move: Move, sizes: tuple[int, ...], run: RunMove, rng) -> None:
    source, target_c = image(move, sizes, rng), sizes[-1]
    with np.errstate(over="ignore"):
        expected = reference_move(move, source, target_c)
    moved = run(move, source, target_c)
    unsigned = np.uint16 if expected.itemsize == 2 else np.uint32
    np.testing.assert_array_equal(moved.view(unsigned), expected.view(unsigned))


@pytest.mark.parametrize("check", ["memcheck", "initcheck", "racecheck", "synccheck"])
@pytest.mark.parametrize("move", MOVES, ids=str)
def test_checks_find_nothing(move: Move, check: str, run: RunMove, cuda: Cuda, rng) -> None:
    cuda.vgpu.clear_findings()
    cuda.vgpu.set_option("check", check)
    try:
        for sizes in SIZES[:6]:
            run(move, image(move, sizes, rng), sizes[-1])
    finally:
        cuda.vgpu.set_option("check", "none")
    assert cuda.vgpu.findings() == []


def count(
    move: Move, source: Array, target_c: int, run: RunMove, cuda: Cuda
) -> tuple[Array, dict[str, Any]]:
    """The moved array, and what the virtual GPU counted."""
    cuda.vgpu.clear_launches()
    cuda.vgpu.set_option("counters", "on")
    try:
        moved = run(move, source, target_c)
    finally:
        cuda.vgpu.set_option("counters", "off")
    (counted,) = cuda.vgpu.counters()
    return moved, counted


# Sizes whose rows begin at whole sectors: a byte that is not asked for is then never touched.
COUNTED = (
    (Move(source=NCHW_F32, target=NHWC_F16), (2, 16, 16, 3, 4)),
    (Move(source=NCHW_F32, target=NHWC_F16), (2, 16, 16, 3, 8)),
    (Move(source=NCHW_F16, target=NHWC_F16), (2, 16, 16, 3, 4)),
    (Move(source=NCHW_F16, target=NHWC_F16), (2, 16, 16, 3, 8)),
    (Move(source=NCHW_F32, target=NHWC_F16), (1, 16, 16, 64, 64)),
    (Move(source=NCHW_F32, target=NHWC_F16), (1, 16, 16, 46, 48)),
    (Move(source=NCHW_F32, target=NHWC_F16), (1, 16, 16, 70, 64)),
    (Move(source=NCHW_F16, target=NHWC_F16), (1, 16, 16, 174, 176)),
    (Move(source=NCHW_F16, target=NHWC_F16), (1, 16, 16, 128, 128)),
    (Move(source=NHWC_F16, target=NCHW_F32), (1, 16, 16, 64, 64)),
    (Move(source=NHWC_F16, target=NCHW_F32), (1, 16, 16, 48, 46)),
    (Move(source=NHWC_F16, target=NCHW_F16), (1, 16, 16, 64, 64)),
    (Move(source=NHWC_F16, target=NCHW_F16), (1, 16, 16, 176, 174)),
    (Move(source=NHWC_F16, target=NHWC_F16), (4, 16, 16, 46, 48)),
    (Move(source=NHWC_F16, target=NHWC_F16), (4, 16, 16, 174, 176)),
    (Move(source=NHWC_F32, target=NHWC_F16), (4, 16, 16, 46, 48)),
    (Move(source=NHWC_F32, target=NHWC_F16), (4, 16, 16, 64, 64)),
    (Move(source=NHWC_F16, target=NHWC_F32), (4, 16, 16, 46, 48)),
    (Move(source=NHWC_F16, target=NHWC_F32), (4, 16, 16, 48, 46)),
)


def in_bf16(move: Move) -> Move:
    """The same move with BF16 in the place of FP16."""

    def form(form: Form) -> Form:
        return replace(form, dtype=DType.BF16) if form.dtype is DType.F16 else form

    return Move(source=form(move.source), target=form(move.target))


@pytest.mark.parametrize(
    ("move", "sizes"),
    [*COUNTED, *((in_bf16(move), sizes) for move, sizes in COUNTED)],
    ids=str,
)
def test_every_sector_is_whole_and_no_bank_conflicts(
    move: Move, sizes: tuple[int, ...], run: RunMove, cuda: Cuda, rng
) -> None:
    source = image(move, sizes, rng)
    moved, counted = count(move, source, sizes[-1], run, cuda)
    assert counted["global_store"]["sectors"] * 32 == moved.nbytes
    # A tile of a repad begins at any vector: one sector more at either end of each block.
    tiles = -(-moved.size // 4096) if move.source.layout is move.target.layout else 0
    assert counted["global_load"]["sectors"] * 32 <= source.nbytes + 2 * 32 * tiles
    assert counted["shared"]["bank_conflicts"] == 0
    # Vectors of 16 bytes: a request of a warp writes 16 sectors, less where a tile is ragged.
    assert counted["global_store"]["requests"] * 32 * 16 <= 4 / 3 * moved.nbytes


@pytest.mark.parametrize("source_form", [NHWC_F16, NHWC_F32], ids=str)
def test_cropped_rows_of_fp16_cost_a_wavefront_where_they_meet(
    source_form: Form, run: RunMove, cuda: Cuda, rng
) -> None:
    """No frontend asks for this; a warp's 32 words then come from one more than 32."""
    move, sizes = Move(source=source_form, target=NHWC_F16), (4, 16, 16, 48, 46)
    moved, counted = count(move, image(move, sizes, rng), sizes[-1], run, cuda)
    assert counted["global_store"]["sectors"] * 32 == moved.nbytes
    assert counted["shared"]["bank_conflicts"] <= counted["shared"]["requests"]


def test_every_move_is_among_those_that_are_counted() -> None:
    """Both directions of every cast and transpose that there is."""
    (mark,) = (
        mark
        for mark in test_every_sector_is_whole_and_no_bank_conflicts.pytestmark
        if mark.name == "parametrize"
    )
    assert {move for move, _ in mark.args[1]} == set(MOVES)


@pytest.mark.parametrize(
    ("source", "target"),
    [(NCHW_F32, NCHW_F16), (NCHW_F16, nhwc(DType.BF16)), (NHWC_F32, NHWC_F32)],
    ids=str,
)
def test_one_side_is_what_kernels_compute_in(source: Form, target: Form) -> None:
    with pytest.raises(InvalidProblemError, match=f"from {source} to {target}; one of"):
        Move(source=source, target=target)


def test_bad_arguments_are_named(library: Moves, cuda: Cuda) -> None:
    move = Move(source=NCHW_F32, target=NHWC_F16)
    good = cuda.upload(np.zeros(64, np.float32))
    args = arguments_of(move, 1, 4, (3, 4))
    args.source, args.target = good, good + 2
    with pytest.raises(KernelError, match=r"target is at address .*16-byte alignment"):
        library.launch(move, args)
    args.target, args.pixels = good, 0
    with pytest.raises(KernelError, match="pixels is 0; it must be at least 1"):
        library.launch(move, args)
    args.pixels, args.source = 4, None
    with pytest.raises(KernelError, match="source is a null pointer"):
        library.launch(move, args)
    cuda.free_all()
