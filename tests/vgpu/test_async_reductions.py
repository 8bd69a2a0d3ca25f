"""Asynchronous reductions: red.async, cp.reduce.async.bulk, and those through tensor maps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from tests.vgpu.tensor_maps import BFLOAT16, HEADER, Tiling, encode
from tests.vgpu.test_tensor_copies import OPERATIONS, REGISTERS, SHARED, store_kernel

TYPES = {
    "u32": np.dtype(np.uint32),
    "s32": np.dtype(np.int32),
    "u64": np.dtype(np.uint64),
    "s64": np.dtype(np.int64),
    "b32": np.dtype(np.uint32),
    "b64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
REDUCTIONS: dict[str, Any] = {
    **OPERATIONS,
    "add.noftz": lambda x, a: x + a,
}


def forms(table: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (op, kind) for ops, kinds in table.items() for op in ops.split() for kind in kinds.split()
    ]


# Source: PTX ISA, cp.reduce.async.bulk: operations and types by where they go.
TO_GLOBAL = forms(
    {
        "add": "u32 s32 u64 f32 f64",
        "add.noftz": "f16 bf16",
        "min max": "u32 s32 u64 s64 f16 bf16",
        "inc dec": "u32",
        "and or xor": "b32 b64",
    }
)
TO_SHARED = forms(
    {"add": "u32 s32 u64", "min max": "u32 s32", "inc dec": "u32", "and or xor": "b32"}
)


def operands(kind: str, count: int) -> tuple[Array, Array]:
    """Values before, and what is added; all bits of integers, signs and wraps among them."""
    rng = np.random.default_rng(5)
    dtype = TYPES[kind]
    if np.issubdtype(dtype, np.integer):
        raw = rng.integers(0, 256, (2, count * dtype.itemsize), dtype=np.uint8)
        before, added = raw[0].view(dtype).copy(), raw[1].view(dtype).copy()
        before[::5] = added[::5]
        before[1::7] = 0
        return before, added
    values = rng.standard_normal((2, count)).astype(dtype)
    if dtype.itemsize == 2:
        values[0, 3] = np.array(2.0**-24 if kind == "f16" else 2.0**-130, dtype)  # subnormal
    return values[0], values[1]


def reduced(op: str, before: Array, added: Array) -> Array:
    with np.errstate(over="ignore"):
        result = REDUCTIONS[op](before, added)
    return np.asarray(result).astype(before.dtype)


def same(found: Array, expected: Array) -> None:
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(("op", "kind"), TO_GLOBAL)
@pytest.mark.parametrize("copies", ["late", "eager"])
def test_bulk_reductions_to_global_memory(hopper: Driver, copies: str, op: str, kind: str) -> None:
    hopper.vgpu.set_option("copies", copies)
    before, added = operands(kind, 64)
    raw = hopper.buffer(before.view(np.uint8))
    nbytes = before.nbytes
    body = f"""
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x; mov.u32 %a, tile;
        NEXT: setp.ge.u32 %p, %t, {nbytes // 4}; @%p bra DONE;
        shl.b32 %n, %t, 2; cvt.u64.u32 %d2, %n; add.u64 %d2, %d1, %d2; ld.global.u32 %v, [%d2];
        add.u32 %n, %a, %n; st.shared.u32 [%n], %v; add.u32 %t, %t, 32; bra NEXT;
        DONE: fence.proxy.async.shared::cta; bar.sync 0;
        mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%d0], [tile], {nbytes};
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        END: ret;"""
    ptx = HEADER + entry(["u64", "u64"], REGISTERS, body, SHARED)
    hopper.run(ptx, [raw, hopper.buffer(added.view(np.uint8))])
    same(hopper.read(raw), reduced(op, before, added))


# A cluster of two: block 0 adds to the memory of block 1, which waits for the bytes.
BETWEEN = """
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x;
    mov.u32 %c0, %cluster_ctarank; mov.u32 %a, tile;
    mul.wide.u32 %d2, %c0, {nbytes}; sub.u64 %d2, %d0, %d2; add.u64 %d2, %d2, {nbytes};
    NEXT: setp.ge.u32 %p, %t, {words}; @%p bra FILLED;
    mul.wide.u32 %d3, %t, 4; add.u64 %d3, %d2, %d3; ld.global.u32 %v, [%d3];
    shl.b32 %n, %t, 2; add.u32 %n, %a, %n; st.shared.u32 [%n], %v;
    add.u32 %t, %t, 32; bra NEXT;
    FILLED: mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
    fence.proxy.async.shared::cta;
    READY: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    setp.eq.u32 %p, %c0, 1; @%p bra WAIT;
    mapa.shared::cluster.u32 %c1, %a, 1; mov.u32 %c2, bar; mapa.shared::cluster.u32 %c2, %c2, 1;
    {send}
    bra OVER;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra WAIT;
    WRITE: setp.ge.u32 %p, %t, {words}; @%p bra OVER;
    shl.b32 %n, %t, 2; add.u32 %n, %a, %n; ld.shared.u32 %v, [%n];
    mul.wide.u32 %d3, %t, 4; add.u64 %d3, %d1, %d3; st.global.u32 [%d3], %v;
    add.u32 %t, %t, 32; bra WRITE;
    OVER: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""


def run_between(hopper: Driver, before: Array, added: Array, send: str) -> Array:
    body = BETWEEN.format(nbytes=before.nbytes, words=before.nbytes // 4, send=send)
    registers = REGISTERS + ".reg .b32 %w; .reg .b64 %x;"
    ptx = HEADER + entry(["u64", "u64"], registers, body, SHARED)
    ptx = ptx.replace("\n{", "\n.reqnctapercluster 2\n{", 1)
    both = hopper.buffer(np.concatenate([before, added]).view(np.uint8))
    out = hopper.buffer(np.zeros(before.nbytes, np.uint8))
    hopper.vgpu.set_option("check", "all")
    hopper.vgpu.clear_findings()
    hopper.run(ptx, [both, out], grid=(2, 1, 1))
    assert hopper.vgpu.findings() == []
    return hopper.read(out)


@pytest.mark.parametrize(("op", "kind"), TO_SHARED)
@pytest.mark.parametrize("copies", ["late", "eager"])
def test_bulk_reductions_to_another_block(hopper: Driver, copies: str, op: str, kind: str) -> None:
    hopper.vgpu.set_option("copies", copies)
    before, added = operands(kind, 32)
    send = f"""setp.ne.u32 %p, %t, 0; @%p bra OVER;
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{kind}
            [%c1], [tile], {before.nbytes}, [%c2];"""
    same(run_between(hopper, before, added, send), reduced(op, before, added))


@pytest.mark.parametrize(("op", "kind"), TO_SHARED)
def test_values_reduced_into_another_block(hopper: Driver, op: str, kind: str) -> None:
    before, added = operands(kind, 32)
    size = before.itemsize
    value = "%w" if size == 4 else "%x"
    send = f"""mad.lo.u32 %n, %t, {size}, %a; ld.shared.b{8 * size} {value}, [%n];
        mad.lo.u32 %c1, %t, {size}, %c1;
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{kind}
            [%c1], {value}, [%c2];"""
    same(run_between(hopper, before, added, send), reduced(op, before, added))


# Source: PTX ISA, cp.reduce.async.bulk.tensor: the type is the map's.
TO_TENSORS = forms(
    {
        "add": "u32 s32 u64 f32 f64 f16 bf16",
        "min max": "u32 s32 u64 s64 f16 bf16",
        "inc dec": "u32",
        "and or xor": "u32 s32 u64 s64",
    }
)


@pytest.mark.parametrize(("op", "kind"), TO_TENSORS)
def test_reductions_into_tensors(hopper: Driver, op: str, kind: str) -> None:
    """Nothing is written where a box lies outside of its tensor."""
    before, added = (x.reshape(8, 16) for x in operands(kind, 128))
    shaped = before.view(np.uint16) if kind == "bf16" else before
    target = hopper.buffer(shaped)
    tiling = Tiling(box=(16, 8), kind=BFLOAT16 if kind == "bf16" else None)
    form = f"cp.reduce.async.bulk.tensor.{{rank}}d.global.shared::cta.{op}.tile.bulk_group"
    source = hopper.buffer(added.view(np.uint8))
    hopper.run(store_kernel((0, 3), added.nbytes, form), [encode(hopper, target, tiling), source])
    expected = before.copy()
    expected[3:] = reduced(op, before[3:], added[:5])
    same(hopper.read(target), expected)
