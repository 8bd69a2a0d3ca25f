"""Products of four- to eight-bit floats, with and without scales of blocks (sm_120a), against
numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver, entry
from boltgen.device.vgpu import Vgpu

DTYPES = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
LANES = np.arange(32)
GROUP, THREAD = LANES // 4, LANES % 4
TARGET = ".version 9.0\n.target sm_120a\n.address_size 64\n"


def bits_of(values: Array) -> Array:
    """One byte for each number, in its lowest bits."""
    return values.view(np.uint8).astype(np.uint32)


def random_matrix(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    return rng.normal(0, 2, shape).astype(np.float32).astype(DTYPES[kind])


def packed(matrix: Array, kind: str, nibbles: bool) -> Array:
    """Registers (register, lane) of a factor whose rows are those of A, or the columns of B.

    A byte holds six bits at its lower end, and four in its middle.
    """
    bits = bits_of(matrix)
    if kind == "e2m1" and not nibbles:
        bits = bits << 2
    each = 8 if nibbles else 4
    width = 32 // each
    rows = matrix.shape[0] // 8
    registers = np.zeros((2 * rows, 32), np.uint32)
    for h in range(2):
        for r in range(rows):
            for n in range(each):
                column = each * (4 * h + THREAD) + n
                part = bits[GROUP + 8 * r, column] << np.uint32(width * n)
                registers[rows * h + r] |= part.astype(np.uint32)
    return registers


Pair = tuple[Array, Array]


def multiply(driver: Driver, instruction: str, factors: Pair, c: Array, scales: Pair) -> Array:
    """The sums (16, 8). The factors and scales are registers; what stands behind the first space of
    `instruction` are the operands of the scales."""
    name, _, rest = instruction.partition(" ")
    registers = ".reg .b32 %r<40>; .reg .b64 %d<4>; .reg .b32 %sa, %sb;"
    sums = np.zeros((4, 32), np.float32)
    for r in range(4):
        sums[r] = c[GROUP + 8 * (r // 2), 2 * THREAD + r % 2]
    inputs = np.concatenate([*factors, sums.view(np.uint32), np.stack(scales)])
    body = ["mov.u32 %r39, %tid.x;", "ld.param.u64 %d0, [p0];", "mul.wide.u32 %d1, %r39, 4;"]
    body.append("add.u64 %d0, %d0, %d1; ld.param.u64 %d2, [p1]; add.u64 %d2, %d2, %d1;")
    names = [f"%r{k}" for k in range(10)] + ["%sa", "%sb"]
    body += [f"ld.global.b32 {name}, [%d0+{128 * k}];" for k, name in enumerate(names)]
    body.append(
        f"{name} {{%r10,%r11,%r12,%r13}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, "
        f"{{%r6,%r7,%r8,%r9}}{rest};"
    )
    body += [f"st.global.b32 [%d2+{128 * k}], %r{10 + k};" for k in range(4)]
    ptx = TARGET + entry(["u64", "u64"], registers, "\n".join(body) + " ret;")
    out = driver.buffer(np.zeros((4, 32), np.uint32))
    driver.run(ptx, [driver.buffer(inputs), out])
    found = driver.read(out).view(np.float32)
    result = np.zeros((16, 8), np.float32)
    for r in range(4):
        result[GROUP + 8 * (r // 2), 2 * THREAD + r % 2] = found[r]
    return result


def scale_values(kind: str, bits: Array) -> Array:
    if kind == "ue8m0":
        return np.where(bits == 255, np.nan, np.exp2(bits.astype(np.float64) - 127))
    return (bits & 0x7F).astype(np.uint8).view(DTYPES["e4m3"]).astype(np.float64)


@pytest.fixture
def geforce(driver: Driver, vgpu: Vgpu) -> Driver:
    vgpu.set_option("device", "sm_120")
    return driver


@pytest.mark.parametrize("a_kind", DTYPES)
@pytest.mark.parametrize("b_kind", ["e4m3", "e2m1", "e3m2"])
def test_without_scales(geforce: Driver, a_kind: str, b_kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b = random_matrix(rng, a_kind, (16, 32)), random_matrix(rng, b_kind, (8, 32))
    c = rng.normal(0, 1, (16, 8)).astype(np.float32)
    none = np.zeros(32, np.uint32)
    name = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{a_kind}.{b_kind}.f32"
    factors = (packed(a, a_kind, False), packed(b, b_kind, False))
    found = multiply(geforce, name, factors, c, (none, none))
    want = a.astype(np.float64) @ b.astype(np.float64).T + c
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


CASES = [
    ("mxf8f6f4", "scale_vec::1X", "e4m3", "e5m2", "ue8m0"),
    ("mxf8f6f4", "", "e2m1", "e2m3", "ue8m0"),
    ("mxf8f6f4", "scale_vec::1X", "e3m2", "e4m3", "ue8m0"),
    ("mxf4", "", "e2m1", "e2m1", "ue8m0"),
    ("mxf4", "scale_vec::2X", "e2m1", "e2m1", "ue8m0"),
    ("mxf4nvf4", "scale_vec::2X", "e2m1", "e2m1", "ue8m0"),
    ("mxf4nvf4", "scale_vec::4X", "e2m1", "e2m1", "ue4m3"),
    ("mxf4nvf4", "scale_vec::4X", "e2m1", "e2m1", "ue8m0"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(filter(None, case)))
@pytest.mark.parametrize("selected", [0, 1])
def test_with_scales_of_blocks(
    geforce: Driver, case: tuple[str, str, str, str, str], selected: int
) -> None:
    """`selected`: other bytes and threads hold the scales, which must not matter."""
    kind, vector, a_kind, b_kind, scale = case
    rng = np.random.default_rng(1)
    nibbles = kind != "mxf8f6f4"
    depth = 64 if nibbles else 32
    blocks = int(vector[-2]) if vector else (2 if nibbles else 1)
    byte = {1: 3, 2: 2, 4: 0}[blocks] * selected
    thread_a, thread_b = selected, 3 * selected
    a, b = random_matrix(rng, a_kind, (16, depth)), random_matrix(rng, b_kind, (8, depth))
    c = rng.normal(0, 1, (16, 8)).astype(np.float32)
    low, high = (120, 134) if scale == "ue8m0" else (0x20, 0x50)
    scale_a = rng.integers(low, high, (16, blocks))
    scale_b = rng.integers(low, high, (8, blocks))
    words = [rng.integers(0, 256, (32, 4)) for _ in range(2)]  # what is not read stays random
    for block in range(blocks):
        for r in range(2):
            words[0][4 * np.arange(8) + 2 * thread_a + r, byte + block] = scale_a[
                8 * r : 8 * r + 8, block
            ]
        words[1][4 * np.arange(8) + thread_b, byte + block] = scale_b[:, block]
    registers = [np.ascontiguousarray(w.astype(np.uint8)).view(np.uint32)[:, 0] for w in words]
    name = f"mma.sync.aligned.m16n8k{depth}.row.col.kind::{kind}.block_scale"
    name += f".{vector}" if vector else ""
    name += f".f32.{a_kind}.{b_kind}.f32.{scale} , %sa, {{{byte},{thread_a}}},"
    name += f" %sb, {{{byte},{thread_b}}}"
    found = multiply(
        geforce,
        name,
        (packed(a, a_kind, nibbles), packed(b, b_kind, nibbles)),
        c,
        (registers[0], registers[1]),
    )
    of_a = np.repeat(scale_values(scale, scale_a), depth // blocks, axis=1)
    of_b = np.repeat(scale_values(scale, scale_b), depth // blocks, axis=1)
    want = (a.astype(np.float64) * of_a) @ (b.astype(np.float64) * of_b).T + c
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-3)


def test_a_scale_that_is_no_number_spoils_its_row(geforce: Driver) -> None:
    ones = np.ones((16, 32), DTYPES["e4m3"])
    scales = np.full(32, 127, np.uint32)
    scales[4 * 5] = 255  # of row 5
    name = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
    name += ".f32.e4m3.e4m3.f32.ue8m0 , {%sa}, {0,0}, {%sb}, {0,0}"
    found = multiply(
        geforce,
        name,
        (packed(ones, "e4m3", False), packed(ones[:8], "e4m3", False)),
        np.zeros((16, 8), np.float32),
        (scales, np.full(32, 127, np.uint32)),
    )
    assert np.isnan(found[5]).all()
    np.testing.assert_array_equal(np.delete(found, 5, axis=0), 32)


@pytest.mark.parametrize(
    "name",
    [
        "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::2X.f32.e4m3.e4m3.f32.ue8m0",
        "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0",
        "m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3",
        "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue4m3",
        "m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e4m3.f32.ue8m0",
    ],
)
def test_what_the_manual_does_not_allow_is_unknown(geforce: Driver, name: str) -> None:
    zeros = np.zeros((4, 32), np.uint32)
    with pytest.raises(CudaError, match="does not know this instruction"):
        multiply(
            geforce,
            f"mma.sync.aligned.{name} , %sa, {{0,0}}, %sb, {{0,0}}",
            (zeros, zeros[:2]),
            np.zeros((16, 8), np.float32),
            (zeros[0], zeros[0]),
        )
