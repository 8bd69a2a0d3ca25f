"""Random programs of floating-point instructions, with branches, against exact arithmetic: types,
rounding modes, saturation and NaN, and lanes that part and meet again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.harness.driver import Driver, entry
from tests.vgpu.float_reference import Reference, arithmetic, extreme
from tests.vgpu.lanes import operands
from tests.vgpu.rounding import F16, F32, F64

FORMATS = {"f16": F16, "f32": F32, "f64": F64}
REGISTERS = 4  # of each type


@cache
def _reference(instruction: str) -> Reference:
    parts = instruction.split(".")
    fmt = FORMATS[parts[-1]]
    base = parts[0]
    if base in ("min", "max"):
        return extreme(fmt, largest=base == "max", nan="NaN" in parts)
    if base in ("neg", "abs"):
        top = 1 << (fmt.bits - 1)
        return (lambda a: a ^ top) if base == "neg" else (lambda a: a & (top - 1))
    mode = next((m for m in ("rz", "rm", "rp") if m in parts), "rn")
    exact = arithmetic(fmt, base, mode)
    one = fmt.round(1)  # type: ignore[arg-type]

    def saturated(*bits: int) -> int:
        value = exact(*bits)
        if fmt.is_nan(value) or value >> (fmt.bits - 1):
            return 0  # NaN and negative numbers, -0 among them
        return min(value, one)

    return saturated if "sat" in parts else exact


def _convert(to: str, source: str, bits: int) -> int:
    narrow, wide = FORMATS[to], FORMATS[source]
    if wide.is_nan(bits):
        return narrow.nan
    sign = bits >> (wide.bits - 1)
    if wide.is_inf(bits):
        return sign << (narrow.bits - 1) | narrow.exponent_mask << narrow.mantissa
    return narrow.round(wide.value(bits), negative_zero=bool(sign))


def _instructions() -> dict[str, int]:
    """Name and number of sources."""
    found = {}
    for kind in FORMATS:
        modes = ["rn"] if kind == "f16" else ["rn", "rz", "rm", "rp"]
        clamps = [""] if kind == "f64" else ["", ".sat"]
        for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            for mode in modes:
                for clamp in clamps:
                    found[f"{op}.{mode}{clamp}.{kind}"] = count
        for op in ("min", "max"):
            found[f"{op}.{kind}"] = 2
            if kind != "f64":
                found[f"{op}.NaN.{kind}"] = 2
        for op in ("neg", "abs"):
            found[f"{op}.{kind}"] = 1
    found |= {"div.rn.f32": 2, "div.rz.f32": 2, "div.rn.f64": 2}
    return found


INSTRUCTIONS = _instructions()
CONVERSIONS = [("f16", "f32"), ("f32", "f16"), ("f32", "f64"), ("f64", "f32"), ("f64", "f16")]


@dataclass(frozen=True)
class Step:
    """An operation, a conversion ("cvt.f16.f32"), or a branch on a comparison with two ways."""

    name: str
    to: int = 0
    sources: tuple[int, ...] = ()
    guard: bool = False  # it runs where the first source is below the second register
    ways: tuple[tuple[Step, ...], ...] = ()


register = st.integers(0, REGISTERS - 1)


@st.composite
def _operation(draw: st.DrawFn) -> Step:
    if draw(st.integers(0, 4)) == 0:
        to, source = draw(st.sampled_from(CONVERSIONS))
        return Step(f"cvt.{to}.{source}", draw(register), (draw(register),))
    name = draw(st.sampled_from(sorted(INSTRUCTIONS)))
    sources = tuple(draw(register) for _ in range(INSTRUCTIONS[name]))
    return Step(name, draw(register), sources, draw(st.integers(0, 3)) == 0)


def _branch(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    way = st.lists(inner, max_size=4).map(tuple)
    kind = st.sampled_from(["f32", "f64", "f16"])
    return st.builds(
        lambda k, a, b, x, y: Step(f"if.{k}", 0, (a, b), ways=(x, y)),
        *(kind, register, register, way, way),
    )


steps = st.recursive(_operation(), _branch, max_leaves=6)


def _name(kind: str, index: int) -> str:
    return f"%{ {'f16': 'h', 'f32': 'f', 'f64': 'd'}[kind] }{index}"


def _ptx(program: list[Step]) -> str:
    lines = ["ld.param.u64 %at, [p0]; mov.u32 %t, %tid.x;"]
    bytes_of = {kind: fmt.bits // 8 for kind, fmt in FORMATS.items()}
    lines.append(f"mad.wide.u32 %at, %t, {REGISTERS * sum(bytes_of.values()) + 8}, %at;")
    places, at = [], 0
    for kind in ("f64", "f32", "f16"):
        for k in range(REGISTERS):
            places.append((bytes_of[kind] * 8, _name(kind, k), at))
            at += bytes_of[kind]
    lines += [f"ld.global.b{bits} {name}, [%at+{place}];" for bits, name, place in places]
    labels = iter(range(1000))

    def add(step: Step) -> None:
        parts = step.name.split(".")
        kind = parts[-1]
        if parts[0] == "if":
            a, b = (_name(kind, s) for s in step.sources)
            n = next(labels)
            lines.append(f"setp.lt.{kind} %p, {a}, {b}; @!%p bra ELSE{n};")
            for inner in step.ways[0]:
                add(inner)
            lines.append(f"bra.uni END{n}; ELSE{n}:")
            for inner in step.ways[1]:
                add(inner)
            lines.append(f"END{n}:")
        elif parts[0] == "cvt":
            rounding = ".rn" if FORMATS[parts[1]].bits < FORMATS[kind].bits else ""
            to, source = _name(parts[1], step.to), _name(kind, step.sources[0])
            lines.append(f"cvt{rounding}.{parts[1]}.{kind} {to}, {source};")
        else:
            guard = ""
            if step.guard:
                first = _name(kind, step.sources[0])
                lines.append(f"setp.lt.{kind} %q, {first}, {_name(kind, 1)};")
                guard = "@%q "
            sources = ", ".join(_name(kind, s) for s in step.sources)
            lines.append(f"{guard}{step.name} {_name(kind, step.to)}, {sources};")

    for step in program:
        add(step)
    lines += [f"st.global.b{bits} [%at+{place}], {name};" for bits, name, place in places]
    registers = ".reg .pred %p, %q; .reg .b32 %t; .reg .b64 %at;"
    registers += f".reg .f64 %d<{REGISTERS}>; .reg .f32 %f<{REGISTERS}>; .reg .b16 %h<{REGISTERS}>;"
    return entry(["u64"], registers, "\n".join(lines) + "\nret;")


def _below(kind: str, a: int, b: int) -> bool:
    fmt = FORMATS[kind]
    if fmt.is_nan(a) or fmt.is_nan(b):
        return False

    def order(bits: int) -> int:
        magnitude = bits & ((1 << (fmt.bits - 1)) - 1)
        return -magnitude if bits >> (fmt.bits - 1) else magnitude

    return order(a) < order(b)


State = dict[str, list[int]]


def _interpret(step: Step, state: State) -> None:
    parts = step.name.split(".")
    kind = parts[-1]
    values = [state[kind][s] for s in step.sources]
    if parts[0] == "if":
        for inner in step.ways[0 if _below(kind, *values) else 1]:
            _interpret(inner, state)
    elif parts[0] == "cvt":
        state[parts[1]][step.to] = _convert(parts[1], kind, values[0])
    elif not step.guard or _below(kind, values[0], state[kind][1]):
        state[kind][step.to] = _reference(step.name)(*values)


def _initial(seed: int) -> list[State]:
    """For each lane edge values and ordinary ones, without the payloads of NaN."""
    rng = np.random.default_rng(seed)
    lanes: list[State] = [{} for _ in range(32)]
    for kind, fmt in FORMATS.items():
        (pool,) = operands((kind,))
        pool = [fmt.nan if fmt.is_nan(v) else v for v in pool]
        for lane in lanes:
            lane[kind] = [pool[i] for i in rng.integers(0, len(pool), REGISTERS)]
    return lanes


def _bytes(state: State) -> bytes:
    packed = b"".join(
        value.to_bytes(FORMATS[kind].bits // 8, "little")
        for kind in ("f64", "f32", "f16")
        for value in state[kind]
    )
    return packed + bytes(8)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(program=st.lists(steps, min_size=1, max_size=16), seed=st.integers(0, 1 << 30))
def test_programs(driver: Driver, program: list[Step], seed: int) -> None:
    lanes = _initial(seed)
    image = np.frombuffer(b"".join(_bytes(lane) for lane in lanes), np.uint8)
    data = driver.buffer(image)
    driver.run(_ptx(program), [data])
    for lane in lanes:
        for step in program:
            _interpret(step, lane)
    wanted = b"".join(_bytes(lane) for lane in lanes)
    found = driver.read(data).tobytes()
    driver.free(data)
    if found != wanted:
        size = len(wanted) // 32
        lane = next(k for k in range(32) if found[k * size :][:size] != wanted[k * size :][:size])
        raise AssertionError(f"lane {lane}: {_ptx(program)}")
