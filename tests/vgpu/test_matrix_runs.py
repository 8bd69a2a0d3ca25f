"""Runs of mma, which the virtual GPU executes at once, against the same instructions one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from tests.vgpu.fragments import instruction_sets

POOL = 24  # registers that operands and results are drawn from
FRAGMENTS = {  # registers of D and C, of A, and of B
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 4, 2),
    "m16n8k8.row.col.f32.f16.f16.f32": (4, 2, 1),
    "m16n8k16.row.col.f16.f16.f16.f16": (2, 4, 2),
    "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 4, 2),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 4, 2),
}
APART = "mov.u32 %between, 0;"  # ends a run


def _vector(registers: Array) -> str:
    return "{" + ", ".join(f"%r{k}" for k in registers) + "}"


def _random_products(shape: str, seed: int, count: int) -> list[str]:
    """Products whose fragments overlap in every way: A is the last one's, or D crosses C."""
    rng = np.random.default_rng(seed)
    sums, left, right = FRAGMENTS[shape]
    a = rng.choice(POOL, left)
    products = []
    for _ in range(count):
        if rng.random() < 0.4:
            a = rng.choice(POOL, left)
        b, c = rng.choice(POOL, right), rng.choice(POOL, sums)
        d = rng.permutation(c) if rng.random() < 0.5 else rng.choice(POOL, sums, replace=False)
        if len(set(d)) < sums:
            d = rng.choice(POOL, sums, replace=False)
        operands = ", ".join(map(_vector, (d, a, b, c)))
        products.append(f"mma.sync.aligned.{shape} {operands};")
    return products


def _kernel(instructions: list[str]) -> str:
    registers = f".reg .b32 %r<{POOL}>; .reg .b32 %t, %between; .reg .pred %p; .reg .b64 %d;"
    place = f"mov.u32 %t, %tid.x; mad.wide.u32 %d, %t, {4 * POOL}, %d;"
    lines = ["ld.param.u64 %d, [p0];", place]
    lines += [f"ld.global.u32 %r{k}, [%d+{4 * k}];" for k in range(POOL)]
    lines += instructions
    lines += ["ld.param.u64 %d, [p1];", place]
    lines += [f"st.global.u32 [%d+{4 * k}], %r{k};" for k in range(POOL)]
    return entry(["u64", "u64"], registers, "\n".join([*lines, "ret;"]))


def _registers_after(driver: Driver, instructions: list[str], words: Array) -> Array:
    out = driver.buffer(np.zeros_like(words))
    driver.run(_kernel(instructions), [driver.buffer(words), out])
    return driver.read(out)


@pytest.mark.parametrize("shape", FRAGMENTS)
def test_a_run_gives_the_bits_of_its_instructions(driver: Driver, shape: str) -> None:
    for seed in range(4):
        products = _random_products(shape, seed, count=24)
        words = np.random.default_rng(seed).standard_normal((32, 2 * POOL)).astype(np.float16)
        start = words.view(np.uint32)
        alone = [line for product in products for line in (product, APART)]
        found = []
        for isa in instruction_sets(driver):
            driver.vgpu.set_option("isa", isa)
            found.append(_registers_after(driver, products, start))
            found.append(_registers_after(driver, alone, start))
        for one, other in pairwise(found):
            np.testing.assert_array_equal(one, other)


ONE = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
ROW = [ONE + f"{{%r{d},%r{d + 1},%r{d + 2},%r{d + 3}}}, {{%r0,%r1}}, {{%r2}}, " for d in (4, 8, 12)]
ROW = [f"{line}{{%r16,%r17,%r18,%r19}};" for line in ROW]


def test_every_instruction_of_a_run_is_counted(driver: Driver) -> None:
    words = np.zeros((32, POOL), np.uint32)
    driver.vgpu.set_option("counters", "on")
    try:
        _registers_after(driver, ROW, words)
        found = driver.vgpu.counters()[-1]
    finally:
        driver.vgpu.set_option("counters", "off")
    assert found["instructions"]["mma"] == 3
    assert found["mma_operations"] == 3 * 2 * 16 * 8 * 8
    assert found["host_cycles"]["mma"] > 0
    record = driver.vgpu.launches()[-1]
    assert record.warp_instructions == sum(found["instructions"].values())


def test_a_jump_into_a_run_executes_its_end(driver: Driver) -> None:
    words = np.random.default_rng(1).standard_normal((32, 2 * POOL)).astype(np.float16)
    start = words.view(np.uint32)
    always = "setp.ne.u32 %p, %t, 77; @%p bra INTO;"
    found = _registers_after(driver, [always, ROW[0], "INTO:", *ROW[1:]], start)
    wanted = _registers_after(driver, ROW[1:], start)
    np.testing.assert_array_equal(found, wanted)


def test_an_undefined_fragment_spoils_its_own_product_only(driver: Driver) -> None:
    """The rest of the run counts as defined under initcheck."""
    driver.vgpu.set_option("check", "initcheck")
    undefined = driver.allocate(32 * 4)  # one word a lane that nothing wrote
    place = "ld.param.u64 %d, [p2]; mov.u32 %t, %tid.x; mad.wide.u32 %d, %t, 4, %d;"
    registers = f".reg .b32 %r<{POOL}>; .reg .b32 %t; .reg .b64 %d;"
    zeros = "".join(f"mov.u32 %r{k}, 0;" for k in range(POOL))
    spoilt = ROW[1].replace("{%r2}", "{%r3}")
    for product, wanted in ((0, 0), (1, 1), (2, 0)):
        driver.vgpu.clear_findings()
        out = driver.buffer(np.zeros(32, np.uint32))
        body = f"{zeros} {place} ld.global.u32 %r3, [%d]; {ROW[0]} {spoilt} {ROW[2]}"
        body += "ld.param.u64 %d, [p1]; mad.wide.u32 %d, %t, 4, %d;"
        body += f"st.global.u32 [%d], %r{4 + 4 * product}; ret;"
        driver.run(entry(["u64"] * 3, registers, body), [undefined, out, undefined])
        driver.read(out)
        assert len(driver.vgpu.findings()) == wanted, product
