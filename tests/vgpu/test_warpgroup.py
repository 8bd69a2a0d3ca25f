"""wgmma: every type, layout and size against numpy, on every instruction set of the host.

The order of the sums is the virtual GPU's own, so floating-point results are compared within a
bound that is derived from it; integers, and the instruction sets among each other, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver
from tests.vgpu.fragments import instruction_sets
from tests.vgpu.narrow_reference import narrow_sums
from tests.vgpu.warpgroup import DTYPES, Layout, Wgmma, multiply

SWIZZLES = (0, 32, 64, 128)
K_MAJOR = [
    *(Layout(s) for s in SWIZZLES),
    Layout(64, skip=32),
    Layout(128, skip=96),
    Layout(128, gap=1024),
    Layout(0, gap=64),
    Layout(128, start=384),  # a pattern that starts off its alignment: the base offset
    Layout(64, start=128),
]
MN_MAJOR = [
    *(Layout(s, by_lines=True) for s in SWIZZLES),
    Layout(64, by_lines=True, gap=512),
    Layout(0, by_lines=True, gap=64),
]
EIGHT = ("e4m3", "e5m2")
BYTES = ("s8", "u8")

FLOAT = [
    *(Wgmma(64, layout_a=x) for x in [*K_MAJOR, *MN_MAJOR, None]),
    *(Wgmma(128, layout_b=x) for x in [*K_MAJOR, *MN_MAJOR]),
    *(Wgmma(n) for n in (8, 16, 24, 40, 96, 104, 200, 256)),
    *(Wgmma(72, "bf16", "bf16", layout_b=x) for x in (Layout(64), MN_MAJOR[3])),
    *(Wgmma(n, d="f16", layout_a=x) for n in (8, 88, 256) for x in (Layout(), None)),
    *(Wgmma(n, "tf32", "tf32", layout_a=x) for n in (8, 136) for x in (Layout(32), None)),
    *(Wgmma(32, signs=s) for s in ((1, -1), (-1, 1), (-1, -1))),
    Wgmma(32, accumulates=False),
    Wgmma(32, d="f16", accumulates=False),
]
NARROW = [
    *(Wgmma(64, a, b, d) for a in EIGHT for b in EIGHT for d in ("f32", "f16")),
    Wgmma(248, "e4m3", "e5m2", layout_a=None),
    Wgmma(40, "e4m3", "e4m3", signs=(-1, 1)),
    Wgmma(24, "e5m2", "e4m3", accumulates=False),
]
INTEGER = [
    *(Wgmma(64, a, b, "s32", clamps=c) for a in BYTES for b in BYTES for c in (False, True)),
    *(Wgmma(n, "s8", "u8", "s32", layout_a=None) for n in (8, 24, 32, 112, 256)),
    Wgmma(48, "s8", "s8", "s32", accumulates=False),
]


def label(mma: Wgmma) -> str:
    return mma.label


def random_floats(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    values: Array = rng.standard_normal(shape).astype(DTYPES[kind])
    return values


def operands(mma: Wgmma, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    a = random_floats(rng, (64, mma.stored), mma.a)
    b = random_floats(rng, (mma.n, mma.k), mma.b)
    return a, b, random_floats(rng, (64, mma.n), mma.d)


def seen(values: Array, kind: str) -> Array:
    """What the tensor cores see, in double."""
    if kind == "tf32":
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    wide: Array = values.astype(np.float64)
    return wide


def check_floats(mma: Wgmma, found: Array, a: Array, b: Array, c: Array) -> None:
    """`a` with its zeros, in double."""
    wide_b = seen(b, mma.b)
    added = c.astype(np.float64) * mma.accumulates
    exact = mma.signs[0] * mma.signs[1] * (a @ wide_b.T) + added
    # k + 1 terms, k roundings to f32 of sums no larger than the sum of magnitudes, and one to D.
    magnitude = np.abs(a) @ np.abs(wide_b).T + np.abs(added)
    bound = mma.k * 2.0**-24 * magnitude
    if mma.d == "f16":
        bound += 2.0**-11 * np.abs(exact) + 2.0**-25
    assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize("mma", FLOAT, ids=label)
def test_float_products(hopper: Driver, mma: Wgmma) -> None:
    a, b, c = operands(mma, seed=mma.n)
    check_floats(mma, multiply(hopper, mma, a, b, c), seen(a, mma.a), b, c)


@pytest.mark.parametrize("scale", [1.0, 2.0**-9, 2.0**-120, 2.0**100])
@pytest.mark.parametrize("mma", NARROW, ids=label)
def test_narrow_products_have_the_bits_of_an_h100(hopper: Driver, mma: Wgmma, scale: float) -> None:
    """The factors are of all magnitudes, some 0 and some subnormal, the sums so far of `scale`."""
    rng = np.random.default_rng(mma.n)
    a, b, c = operands(mma, seed=mma.n)
    for x in (a, b):
        x[...] = (x.astype(np.float32) * 2.0 ** rng.integers(-9, 7, x.shape)).astype(x.dtype)
        x[rng.integers(0, 8, x.shape) == 0] = 0
    a[:3] = 0  # the sum so far is all
    if mma.d == "f16":
        scale = min(max(scale, 2.0**-9), 2.0**8)
    c = (c.astype(np.float64) * scale).astype(c.dtype)
    given = c if mma.accumulates else np.zeros_like(c)
    signed = (a.astype(np.float32) * (mma.signs[0] * mma.signs[1])).astype(a.dtype)
    wanted = narrow_sums(signed, b, given)
    found = multiply(hopper, mma, a, b, c)
    # A zero's sign is not the rule's.
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "mma",
    [Wgmma(24), Wgmma(40, "bf16", "bf16"), *NARROW, Wgmma(24, "tf32", "tf32")],
    ids=label,
)
def test_products_have_the_same_bits_on_every_instruction_set(hopper: Driver, mma: Wgmma) -> None:
    rng = np.random.default_rng(5)
    size = DTYPES[mma.a].itemsize
    cases = [operands(mma, 1)]
    # Any bits: subnormals, infinities and NaN among them.
    bits = [rng.integers(0, 256, (x, mma.k * size), dtype=np.uint8) for x in (64, mma.n)]
    a, b = (x.view(DTYPES[kind]) for x, kind in zip(bits, (mma.a, mma.b), strict=True))
    cases.append((a, b, operands(mma, 9)[2]))
    for a, b, c in cases:
        found = []
        for isa in instruction_sets(hopper):
            hopper.vgpu.set_option("isa", isa)
            found.append(multiply(hopper, mma, a, b, c).view(f"u{c.dtype.itemsize}"))
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


def whole(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    info = np.iinfo(DTYPES[kind])
    values = rng.integers(info.min, info.max + 1, shape)
    extreme = rng.integers(0, 4, shape)
    out: Array = np.where(extreme == 0, info.min, np.where(extreme == 1, info.max, values))
    return out.astype(DTYPES[kind])


def wanted_integers(mma: Wgmma, exact: Array) -> Array:
    if mma.clamps:
        clipped: Array = np.clip(exact, -(2**31), 2**31 - 1)
        return clipped
    return (exact + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("mma", INTEGER, ids=label)
def test_integer_products_are_exact(hopper: Driver, mma: Wgmma) -> None:
    rng = np.random.default_rng(mma.n)
    for limit in (1000, 2**31 - 1):  # sums that fit, and sums that do not
        a = whole(rng, (64, 32), mma.a)
        b = whole(rng, (mma.n, 32), mma.b)
        c = rng.choice([-limit - 1, limit], (64, mma.n)).astype(np.int32)
        exact = a.astype(np.int64) @ b.astype(np.int64).T + c.astype(np.int64) * mma.accumulates
        for isa in instruction_sets(hopper):
            hopper.vgpu.set_option("isa", isa)
            np.testing.assert_array_equal(
                multiply(hopper, mma, a, b, c), wanted_integers(mma, exact)
            )


@pytest.mark.parametrize("n", [8, 32, 256])
@pytest.mark.parametrize("registers", [False, True])
def test_products_of_bits(hopper: Driver, n: int, registers: bool) -> None:
    mma = Wgmma(n, "b1", "b1", "s32", layout_a=None if registers else Layout())
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 256, (x, 32), dtype=np.uint8) for x in (64, n))
    c = rng.integers(-1000, 1000, (64, n)).astype(np.int32)
    exact = np.unpackbits(a, axis=1).astype(np.int64) @ np.unpackbits(b, axis=1).T + c
    np.testing.assert_array_equal(multiply(hopper, mma, a, b, c), exact)


# --- sparse A

SPARSE = [
    *(Wgmma(64, layout_a=x, selector=s) for x in (Layout(), None) for s in (0, 1)),
    *(Wgmma(32, layout_b=x, selector=0) for x in (Layout(0), Layout(64), *MN_MAJOR)),
    Wgmma(40, layout_a=Layout(64, by_lines=True), selector=1),
    Wgmma(24, "bf16", "bf16", selector=1),
    Wgmma(16, d="f16", selector=0),
    *(Wgmma(n, "tf32", "tf32", selector=s) for n, s in ((8, 0), (64, 1))),
    *(Wgmma(64, a, b, d, selector=0) for a in EIGHT for b in EIGHT for d in ("f32", "f16")),
    *(Wgmma(32, a, b, "s32", selector=0, clamps=a == b) for a in BYTES for b in BYTES),
    Wgmma(256, "s8", "s8", "s32", layout_a=None, selector=0),
]


def choose(mma: Wgmma, seed: int) -> tuple[Array, Array]:
    """Which element of K each stored one is [64, stored], and the metadata of 128 threads."""
    rng = np.random.default_rng(seed)
    stored = mma.stored
    words = np.zeros(128, np.uint32)
    if mma.a == "tf32":  # one of two
        which = rng.integers(0, 2, (64, stored))
        k = 2 * np.arange(stored) + which
        nibbles = np.where(which == 0, 0b0100, 0b1110)
    else:  # two of four
        pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
        which = pairs[rng.integers(0, 6, (64, stored // 2))]
        k = (4 * np.arange(stored // 2)[:, None] + which).reshape(64, stored)
        nibbles = which[..., 0] | which[..., 1] << 2
    for thread in range(128):
        warp, g, t = thread // 32, thread % 32 // 4, thread % 4
        if mma.bits == 8:
            of_row = nibbles[16 * warp + g + 8 * (t % 2)]
            part = of_row[8 * (t // 2) : 8 * (t // 2) + 8]
        elif t // 2 == mma.selector:
            part = np.concatenate(
                [nibbles[16 * warp + g + 8 * r][4 * (t % 2) : 4 * (t % 2) + 4] for r in range(2)]
            )
        else:
            words[thread] = 0xFFFFFFFF  # not looked at
            continue
        words[thread] = sum(int(x) << 4 * n for n, x in enumerate(part))
    return k, words


@pytest.mark.parametrize("mma", SPARSE, ids=label)
def test_sparse_products(hopper: Driver, mma: Wgmma) -> None:
    k, metadata = choose(mma, seed=mma.n)
    rng = np.random.default_rng(3)
    if mma.d == "s32":
        a, b = whole(rng, (64, mma.stored), mma.a), whole(rng, (mma.n, mma.k), mma.b)
        c = rng.integers(-(2**31), 2**31, (64, mma.n)).astype(np.int32)
    else:
        a, b, c = operands(mma, seed=4)
    full = np.zeros((64, mma.k))
    np.put_along_axis(full, k, seen(a, mma.a), axis=1)
    found = multiply(hopper, mma, a, b, c, metadata=metadata)
    if mma.d == "s32":
        exact = full.astype(np.int64) @ b.astype(np.int64).T + c
        np.testing.assert_array_equal(found, wanted_integers(mma, exact))
    else:
        check_floats(mma, found, full, b, c)


def test_what_is_not_chosen_of_b_does_not_matter(hopper: Driver) -> None:
    mma = Wgmma(8, selector=0)
    a, b, c = operands(mma, seed=1)
    k, metadata = choose(mma, seed=1)
    k[:], metadata[:] = k[0], metadata[0]
    metadata[:] = sum(0b0100 << 4 * n for n in range(8))  # elements 0 and 1 of four
    clean = multiply(hopper, mma, a, b, c, metadata=metadata)
    b.reshape(8, -1, 4)[:, :, 2:] = np.nan
    np.testing.assert_array_equal(multiply(hopper, mma, a, b, c, metadata=metadata), clean)


# --- refusals


@pytest.mark.parametrize(
    "mma",
    [
        Wgmma(12),
        Wgmma(264),
        Wgmma(40, "s8", "s8", "s32"),
        Wgmma(64, "f16", "bf16"),
        Wgmma(64, "bf16", "bf16", "f16"),
        Wgmma(64, "s8", "s8", "f32"),
        Wgmma(64, "f16", "f16", "s32"),
        Wgmma(64, clamps=True),
        Wgmma(64, "b1", "b1", "s32", selector=0),
        Wgmma(64, signs=(2, 1)),
        Wgmma(64, "e4m3", "e4m3", selector=1),
    ],
    ids=label,
)
def test_products_that_do_not_exist_are_refused_by_name(hopper: Driver, mma: Wgmma) -> None:
    b = np.zeros((min(mma.n, 256) // 8 * 8, 64), np.uint8)
    with pytest.raises(CudaError, match=r"wgmma\.mma_async.*PTX line"):
        multiply(hopper, mma, np.zeros((64, 32), np.uint8), b, np.zeros((64, mma.n), np.float32))


# --- counters and modelled time


@pytest.fixture
def counting(hopper: Driver) -> Iterator[Driver]:
    hopper.vgpu.set_option("counters", "on")
    hopper.vgpu.clear_launches()
    yield hopper
    hopper.vgpu.set_option("counters", "off")


@pytest.mark.parametrize(
    ("mma", "name"),
    [
        (Wgmma(64), "m64n64k16.f32.f16.f16"),
        (Wgmma(16, "s8", "u8", "s32"), "m64n16k32.s32.s8.u8"),
        (Wgmma(32, selector=0), "sp.m64n32k32.f32.f16.f16"),
    ],
)
def test_products_are_counted_by_shape(counting: Driver, mma: Wgmma, name: str) -> None:
    a, b = np.zeros((64, mma.stored), DTYPES[mma.a]), np.zeros((mma.n, mma.k), DTYPES[mma.b])
    multiply(counting, mma, a, b, np.zeros((64, mma.n), DTYPES[mma.d]))
    found = counting.vgpu.counters()[-1]
    operations = 2 * 64 * mma.n * mma.k
    assert found["wgmma"] == {name: {"instructions": 4, "operations": operations}}
    assert found["mma_operations"] == operations
    assert found["instructions"]["mma"] == 4


@pytest.mark.parametrize(("kind", "speed"), [("f16", 1), ("tf32", 0.5), ("e4m3", 2)])
def test_modelled_time_is_that_of_the_dense_peak(counting: Driver, kind: str, speed: float) -> None:
    mma = Wgmma(256, kind, kind, layout_b=Layout(32))
    a, b = np.zeros((64, mma.stored), DTYPES[kind]), np.zeros((mma.n, mma.k), DTYPES[kind])
    multiply(counting, mma, a, b, np.zeros((64, mma.n), np.float32), times=2000)
    modelled = counting.vgpu.counters()[-1]["modelled"]
    assert modelled["bound_by"] == "tensor"
    peak = 989e12 / 132 * speed  # of one multiprocessor
    assert modelled["us"] == pytest.approx(2000 * 2 * 64 * 256 * mma.k / peak * 1e6, rel=0.02)
