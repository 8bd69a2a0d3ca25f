"""wmma: matrices loaded, multiplied and stored in every shape, type and layout, against numpy.

The fragments between are the virtual GPU's own, so only whole products are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver, entry
from tests.vgpu.cuda_programs import link, run
from tests.vgpu.fragments import words_of


@dataclass(frozen=True)
class Wmma:
    m: int
    n: int
    k: int
    a: str  # type of both factors
    c: str
    d: str
    layouts: tuple[str, str] = ("row", "col")
    sums: tuple[str, str] = ("row", "row")  # layouts of C and D
    clamps: bool = False
    operation: str = ""  # of bits

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def name(self) -> str:
        types = f"{self.d}.{self.c}" if self.a == "f16" else f"{self.d}.{self.a}.{self.a}.{self.c}"
        tail = ".satfinite" if self.clamps else ".rn" if self.a == "f64" else ""
        kind = f"wmma.mma{self.operation}.sync.aligned.{'.'.join(self.layouts)}"
        return f"{kind}.{self.shape}.{types}{tail}"


# Registers of the fragments of A and B (PTX ISA, "Matrix fragments for wmma").
FACTORS = {
    "f16": (8, 8),
    "bf16": {16: (4, 4), 8: (2, 8), 32: (8, 2)},
    "s8": {16: (2, 2), 8: (1, 4), 32: (4, 1)},
    "u8": {16: (2, 2), 8: (1, 4), 32: (4, 1)},
    "tf32": (4, 4),
    "f64": (1, 1),
    "s4": (1, 1),
    "u4": (1, 1),
    "b1": (1, 1),
}
BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "tf32": 32, "f64": 64, "s4": 4, "u4": 4, "b1": 1}
DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "s32": np.dtype(np.int32),
}

WIDE = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
LAYOUTS = list(product(["row", "col"], ["row", "col"]))
CASES = [
    *(Wmma(*s, "f16", c, d, x) for s in WIDE for c, d in product(["f16", "f32"], repeat=2)
      for x in LAYOUTS),
    *(Wmma(*s, t, c, c, x) for s in WIDE for t, c in (("bf16", "f32"), ("s8", "s32"), ("u8", "s32"))
      for x in LAYOUTS),
    *(Wmma(*s, "s8", "s32", "s32", clamps=True) for s in WIDE),
    *(Wmma(16, 16, 16, "f16", "f32", "f32", sums=x) for x in LAYOUTS),
    *(Wmma(8, 32, 16, "f16", "f16", "f16", sums=x) for x in LAYOUTS),
    *(Wmma(16, 16, 8, "tf32", "f32", "f32", x) for x in LAYOUTS),
    *(Wmma(8, 8, 4, "f64", "f64", "f64", x) for x in LAYOUTS),
    Wmma(8, 8, 32, "s4", "s32", "s32"),
    Wmma(8, 8, 32, "u4", "s32", "s32", clamps=True),
    Wmma(8, 8, 128, "b1", "s32", "s32", operation=".xor.popc"),
    Wmma(8, 8, 128, "b1", "s32", "s32", operation=".and.popc"),
]  # fmt: skip


def _factor(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    if kind in ("s4", "u4", "b1"):
        low, high = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}[kind]
        return rng.integers(low, high, shape)
    if kind in ("s8", "u8"):
        limits = np.iinfo(DTYPES[kind])
        return rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[kind])
    values = rng.standard_normal(shape).astype(DTYPES[kind])
    if kind == "tf32":  # what tensor cores see
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values


def _in_memory(matrix: Array, layout: str, bits: int, pad: int) -> tuple[Array, int]:
    """Bytes of the matrix with `pad` elements of NaN or ones between its lines, and its stride."""
    lines = matrix if layout == "row" else matrix.T
    if bits >= 8:
        filler = np.full((len(lines), pad), np.nan if lines.dtype.kind in "fV" else 1)
        padded = np.concatenate([lines, filler.astype(lines.dtype)], axis=1)
        return np.ascontiguousarray(padded).view(np.uint8).reshape(-1), padded.shape[1]
    padded = np.concatenate([lines, np.ones((len(lines), pad), int)], axis=1)
    return np.ascontiguousarray(words_of(padded, bits)).view(np.uint8).reshape(-1), padded.shape[1]


def _names(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{k}" for k in range(count)) + "}"


def _run(
    driver: Driver, wmma: Wmma, a: Array, b: Array, c: Array, *, space: str, fixed: bool
) -> Array:
    registers = FACTORS[wmma.a]
    counts = registers[wmma.m] if isinstance(registers, dict) else registers
    sums = wmma.m * wmma.n // 32
    c_count, d_count = (sums // 2 if t == "f16" else sums for t in (wmma.c, wmma.d))
    wide = 64 if wmma.a == "f64" else 32
    pad = 128 if wmma.a == "b1" else 32 if wmma.a in ("s4", "u4") else 16
    operands = []
    for matrix, layout, kind in (
        (a, wmma.layouts[0], wmma.a),
        (b, wmma.layouts[1], wmma.a),
        (c, wmma.sums[0], wmma.c),
    ):
        operands.append(_in_memory(matrix, layout, BITS.get(kind, 32), pad))
    out_stride = (wmma.n if wmma.sums[1] == "row" else wmma.m) + 8
    lines = wmma.m if wmma.sums[1] == "row" else wmma.n
    body = [f"ld.param.u64 %d{k}, [p{k}];" for k in range(4)]
    strides = [str(stride) for _, stride in operands] + [str(out_stride)]
    if not fixed:
        body += [f"ld.param.u32 %s{k}, [p{4 + k}];" for k in range(4)]
        strides = [f"%s{k}" for k in range(4)]
    before = ""
    where = ["%d0", "%d1", "%d2"]
    if space == ".shared":  # a copy of A, by the first lane
        before = ".shared .align 32 .b8 tile[16384];"
        size = len(operands[0][0])
        body.append(f"""
            mov.u32 %x, 0; mov.u32 %y, tile;
            COPY: ld.global.u8 %h, [%d0]; st.shared.u8 [%y], %h; add.u64 %d0, %d0, 1;
            add.u32 %y, %y, 1; add.u32 %x, %x, 1; setp.lt.u32 %p, %x, {size}; @%p bra COPY;
            mov.u32 %y, tile;""")
        where[0] = "%y"
    elif space == ".global":
        body += [f"cvta.to.global.u64 %d{k}, %d{k};" for k in range(4)]
    aligned = f"sync.aligned.{{}}.{wmma.shape}"
    for k, (name, layout, count, kind) in enumerate(
        [
            ("a", wmma.layouts[0], counts[0], wmma.a),
            ("b", wmma.layouts[1], counts[1], wmma.a),
            ("c", wmma.sums[0], c_count, wmma.c),
        ]
    ):
        of = space if k == 0 or space == ".global" else ""
        to = _names(name, count)
        load = f"wmma.load.{name}.{aligned.format(layout)}{of}.{kind}"
        body.append(f"{load} {to}, [{where[k]}], {strides[k]};")
    factors = f"{_names('a', counts[0])}, {_names('b', counts[1])}"
    body.append(f"{wmma.name} {_names('o', d_count)}, {factors}, {_names('c', c_count)};")
    to = f"[%d3], {_names('o', d_count)}, {strides[3]}"
    body.append(f"wmma.store.d.{aligned.format(wmma.sums[1])}.{wmma.d} {to}; ret;")
    declared = f""".reg .b{wide} %a<8>, %b<8>, %c<8>, %o<8>; .reg .b64 %d<4>;
        .reg .b32 %s<4>, %x, %y; .reg .b16 %h; .reg .pred %p;"""
    dtype = DTYPES[wmma.d]
    out = driver.buffer(np.full((lines, out_stride), 99, dtype))
    buffers = [driver.buffer(data) for data, _ in operands]
    parameters = ["u64"] * 4 + ["u32"] * 4
    ptx = entry(parameters, declared, "\n".join(body), before)
    values = [stride for _, stride in operands] + [out_stride]
    driver.run(ptx, [*buffers, out, *values])
    found = driver.read(out)
    for buffer in (*buffers, out):
        driver.free(buffer)
    inner = wmma.n if wmma.sums[1] == "row" else wmma.m
    assert (found[:, inner:] == 99).all(), "something was stored beside the matrix"
    found = found[:, :inner]
    return found if wmma.sums[1] == "row" else found.T


@pytest.mark.parametrize("wmma", CASES, ids=lambda w: f"{w.name}-{'.'.join(w.sums)}")
def test_products(driver: Driver, wmma: Wmma) -> None:
    rng = np.random.default_rng(wmma.m + wmma.k)
    a = _factor(rng, wmma.a, (wmma.m, wmma.k))
    b = _factor(rng, wmma.a, (wmma.k, wmma.n))
    integers = wmma.c == "s32"
    if integers:
        c = rng.choice([-(2**31), 2**31 - 1, 5], (wmma.m, wmma.n)).astype(np.int32)
    else:
        c = rng.standard_normal((wmma.m, wmma.n)).astype(DTYPES[wmma.c])
    for space, fixed in ((".global", True), ("", False), (".shared", False)):
        found = _run(driver, wmma, a, b, c, space=space, fixed=fixed)
        if integers:
            wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
            if wmma.a == "b1":
                combine = np.bitwise_xor if "xor" in wmma.name else np.bitwise_and
                exact = combine(wide_a[:, :, None], wide_b[None]).sum(axis=1) + c
            else:
                exact = wide_a @ wide_b + c
            clamped = np.clip(exact, -(2**31), 2**31 - 1)
            wrapped = (exact + 2**31) % 2**32 - 2**31
            np.testing.assert_array_equal(found, clamped if wmma.clamps else wrapped)
            continue
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        exact = wide_a @ wide_b + c
        magnitude = np.abs(wide_a) @ np.abs(wide_b) + np.abs(c)
        bound = 2 * wmma.k * 2.0 ** (-53 if wmma.a == "f64" else -24) * magnitude
        if wmma.d == "f16":
            bound += 2.0**-11 * np.abs(exact) + 2.0**-25
        assert (np.abs(found - exact) <= bound).all()


def test_elements_of_a_fragment_may_be_changed_one_by_one(driver: Driver) -> None:
    """What programs do to all elements alike (wmma::fragment::x) happens to the matrix."""
    wmma = Wmma(16, 16, 16, "f16", "f32", "f32")
    rng = np.random.default_rng(2)
    a = _factor(rng, "f16", (16, 16))
    doubled = "\n".join(f"add.f16x2 %a{k}, %a{k}, %a{k};" for k in range(8))
    names = _names("a", 8), _names("o", 8)
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
        wmma.load.a.sync.aligned.row.m16n16k16.f16 {names[0]}, [%d0];
        wmma.load.b.sync.aligned.col.m16n16k16.f16 {_names("b", 8)}, [%d0];
        {doubled}
        {wmma.name} {names[1]}, {names[0]}, {_names("b", 8)}, {_names("z", 8)};
        wmma.store.d.sync.aligned.row.m16n16k16.f32 [%d1], {names[1]};
        ret;"""
    zeros = "\n".join(f"mov.b32 %z{k}, 0;" for k in range(8))
    registers = ".reg .b32 %a<8>, %b<8>, %o<8>, %z<8>; .reg .b64 %d<2>;"
    out = driver.buffer(np.zeros((16, 16), np.float32))
    driver.run(entry(["u64", "u64"], registers, zeros + body), [driver.buffer(a), out])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(driver.read(out), 2 * wide @ wide.T, rtol=1e-5, atol=1e-4)


def test_a_load_beyond_the_matrix_is_a_fault(driver: Driver) -> None:
    body = f"""ld.param.u64 %d0, [p0];
        wmma.load.a.sync.aligned.row.m16n16k16.f16 {_names("a", 8)}, [%d0], 24; ret;"""
    short = driver.buffer(np.zeros(16 * 24 - 9, np.float16))
    with pytest.raises(CudaError, match="out-of-bounds global read of 4 bytes"):
        driver.run(entry(["u64"], ".reg .b32 %a<8>; .reg .b64 %d0;", body), [short])


@pytest.mark.parametrize(
    "change",
    [{"m": 16, "n": 8}, {"a": "s8", "c": "f32", "d": "f32"}, {"layouts": ("up", "col")}],
    ids=["shape", "types", "layout"],
)
def test_what_is_not_there_is_refused_by_name(driver: Driver, change: dict[str, object]) -> None:
    wmma = replace(Wmma(16, 16, 16, "f16", "f32", "f32"), **change)  # type: ignore[arg-type]
    if "layouts" in change:
        name = f"wmma.load.a.sync.aligned.up.{wmma.shape}.f16"
        text = f"ld.param.u64 %d0, [p0]; {name} {_names('a', 8)}, [%d0], 16; ret;"
    else:
        name = wmma.name
        text = f"{name} " + ", ".join(_names(x, 8) for x in "oabc") + "; ret;"
    registers = ".reg .b32 %a<8>, %b<8>, %c<8>, %o<8>; .reg .b64 %d0;"
    with pytest.raises(CudaError, match=name.replace(".", r"\.")):
        driver.run(entry(["u64"], registers, text), [0, 0])


def test_wmma_of_cuda(library_folder: Path, tmp_path: Path) -> None:
    """nvcuda::wmma, as nvcc compiles it: all types and shapes of sm_80, exact on whole numbers."""
    program = link("wmma", library_folder / "libcudart.so.13", tmp_path, arch="sm_80")
    out, err = run(program, library_folder, check="initcheck,racecheck,synccheck,deadlock")
    shapes = [f"{shape}: 4" for shape in ("16x16x16", "32x8x16", "8x32x16")]
    names = ("half, float", "half, half", "bfloat, float", "s8, int", "u8, int")
    wanted = [f"{name} {shape}" for name in names for shape in shapes]
    wanted += ["tf32, float 16x16x8: 4", "double, double 8x8x4: 4"]
    wanted += ["s4, int 8x8x32: 1", "u4, int 8x8x32: 1", "b1, int 8x8x128: 1"]
    assert out.splitlines() == wanted
    assert not err
