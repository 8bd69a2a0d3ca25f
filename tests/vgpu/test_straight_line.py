"""Random straight-line PTX against an interpreter of Python's integers: registers are shared,
guarded and overwritten in every order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.harness.driver import Driver, entry

WORD = (1 << 32) - 1
REGISTERS = 6


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "add.u32": (2, lambda a, b: a + b),
    "sub.s32": (2, lambda a, b: a - b),
    "mul.lo.u32": (2, lambda a, b: a * b),
    "mul.hi.u32": (2, lambda a, b: a * b >> 32),
    "mul.hi.s32": (2, lambda a, b: _signed(a) * _signed(b) >> 32),
    "mad.lo.s32": (3, lambda a, b, c: a * b + c),
    "min.s32": (2, lambda a, b: min(_signed(a), _signed(b))),
    "max.u32": (2, max),
    "and.b32": (2, lambda a, b: a & b),
    "xor.b32": (2, lambda a, b: a ^ b),
    "not.b32": (1, lambda a: ~a),
    "shl.b32": (2, lambda a, b: a << min(b, 32)),
    "shr.u32": (2, lambda a, b: a >> min(b, 32)),
    "shr.s32": (2, lambda a, b: _signed(a) >> min(b, 32)),
    "popc.b32": (1, lambda a: bin(a).count("1")),
    "clz.b32": (1, lambda a: 32 - a.bit_length()),
    "mov.u32": (1, lambda a: a),
}


@dataclass(frozen=True)
class Step:
    operation: str
    to: int
    sources: tuple[int, ...]
    guard: str  # "", "@%p " or "@!%p "


@st.composite
def steps(draw: st.DrawFn) -> Step:
    operation = draw(st.sampled_from(sorted(OPERATIONS)))
    register = st.integers(0, REGISTERS - 1)
    count = OPERATIONS[operation][0]
    return Step(
        operation,
        draw(register),
        tuple(draw(register) for _ in range(count)),
        draw(st.sampled_from(["", "", "@%p ", "@!%p "])),
    )


def _ptx(program: list[Step]) -> str:
    lines = ["ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x;"]
    lines.append(f"mad.wide.u32 %d0, %t, {4 * REGISTERS}, %d0;")
    lines += [f"ld.global.u32 %r{k}, [%d0+{4 * k}];" for k in range(REGISTERS)]
    for step in program:
        # The guard follows the values: it is set anew before each guarded step.
        if step.guard:
            lines.append(f"setp.lt.s32 %p, %r{step.sources[0]}, 0;")
        sources = ", ".join(f"%r{k}" for k in step.sources)
        lines.append(f"{step.guard}{step.operation} %r{step.to}, {sources};")
    lines += [f"st.global.u32 [%d0+{4 * k}], %r{k};" for k in range(REGISTERS)]
    registers = f".reg .pred %p; .reg .b32 %t, %r<{REGISTERS}>; .reg .b64 %d0;"
    return entry(["u64"], registers, "\n".join(lines) + "\nret;")


def _interpret(program: list[Step], values: list[int]) -> list[int]:
    values = list(values)
    for step in program:
        negative = _signed(values[step.sources[0]]) < 0
        if step.guard and negative != (step.guard == "@%p "):
            continue
        function = OPERATIONS[step.operation][1]
        values[step.to] = function(*(values[k] for k in step.sources)) & WORD
    return values


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(program=st.lists(steps(), min_size=1, max_size=40), seed=st.integers(0, 1 << 30))
def test_straight_line_programs(driver: Driver, program: list[Step], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1 << 32, (32, REGISTERS), dtype=np.uint64).astype(np.uint32)
    values[rng.random(values.shape) < 0.4] %= 40  # shift counts, among others
    data = driver.buffer(values)
    driver.run(_ptx(program), [data])
    wanted = [_interpret(program, [int(v) for v in lane]) for lane in values]
    assert driver.read(data).tolist() == wanted
    driver.free(data)
