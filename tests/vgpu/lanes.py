"""Runs one instruction on many operands: plainly, guarded, and in a divergent branch."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.driver import Array, Driver, entry

_EDGES: dict[str, list[int]] = {
    "int": [
        *(0, 1, 2, 3, 31, 32, 33, 63, 64, 127, 128, 255, 0x7FFF, 0x8000, 0xFFFF, 0x10000),
        *(0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000),
        *(0x7FFFFFFFFFFFFFFF, 1 << 63, (1 << 64) - 1),
    ],
    "f16": [
        *(0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3555, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00),
        *(0x7E00, 0x3800, 0x3801, 0xB800),
    ],
    "f32": [
        *(0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF),
        *(0x7F800000, 0xFF800000, 0x7FC00000, 0x3F000000, 0x3FC00000, 0x40200000, 0xBF000000),
        *(0x33000000, 0x33000001, 0x38800000, 0x387FC000, 0x477FE000, 0x477FF000, 0x4F000000),
        *(0x4EFFFFFF, 0xCF000000, 0x5F000000, 0x437F8000),
    ],
    "f64": [
        *(0, 1 << 63, 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF),
        *(0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x3FE0000000000000),
        *(0x41DFFFFFFFC00000, 0x41E0000000000000, 0x43E0000000000000, 0x3690000000000001),
        *(0x3FF0000010000000, 0x3FF0000030000000),
    ],
}

COUNT = 256  # operand tuples an instruction is run on


def width(kind: str) -> int:
    return 16 if kind in ("f16", "bf16") else 32 if kind == "f16x2" else int(kind[1:])


def container(kind: str) -> int:
    """The register and memory width: 8-bit values travel in 16-bit registers."""
    return max(width(kind), 16)


def operands(kinds: tuple[str, ...], seed: int = 0) -> list[list[int]]:
    """Edge values against each other, then random ones; raw bits."""
    rng = np.random.default_rng(seed)
    columns: list[list[int]] = []
    for position, kind in enumerate(kinds):
        size = width(kind)
        mask = (1 << size) - 1
        family = kind if kind in _EDGES else "int"
        edges = sorted({edge & mask for edge in _EDGES[family]})
        stride = len(edges) ** position
        column = [edges[(i // stride) % len(edges)] for i in range(COUNT // 2)]
        if family == "int" or kind == "f64":
            column += [int(v) & mask for v in rng.integers(0, 1 << 63, COUNT // 4, dtype=np.uint64)]
        moderate = rng.standard_normal(COUNT) * 8
        if family != "int":
            cast = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
            column += [int(v) for v in moderate.astype(cast).view(f"u{size // 8}")]
        else:
            column += [int(v) & mask for v in rng.integers(-50, 50, COUNT)]
        columns.append(column[:COUNT])
    return columns


def run_instruction(
    driver: Driver,
    instruction: str,
    kinds: tuple[str, ...],
    result: str,
    columns: list[list[int]] | None = None,
    *,
    header: str = "",
) -> tuple[Array, Array]:
    """`instruction` has %d for the result and %a, %b, %c for the operands, which are those of
    `operands(kinds)` or the `COUNT` of each of `columns`. `header` replaces the driver's.

    Returns the results of all lanes, and those of a second and third run of the instruction in
    every other third of the lanes, by a guard and by a branch, the others keeping 0x55...
    """
    columns = columns or operands(kinds)
    names = "abc"[: len(kinds)]
    out_bits = container(result)
    lines = ["mov.u32 %tid, %tid.x;", "mov.u32 %cta, %ctaid.x;"]
    lines += ["mad.lo.u32 %i, %cta, 64, %tid;", "rem.u32 %m, %i, 3;", "setp.eq.u32 %odd, %m, 1;"]
    registers = [
        ".reg .pred %odd, %p, %q;",
        ".reg .b32 %tid, %cta, %i, %m, %x, %y;",
        ".reg .b64 %at;",
    ]
    for k, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        bits = container(kind)
        registers.append(f".reg .b{bits} %{name};")
        lines += [f"ld.param.u64 %at, [p{k}];", f"mad.wide.u32 %at, %i, {bits // 8}, %at;"]
        lines.append(f"ld.global.b{bits} %{name}, [%at];")
    registers.append(f".reg .b{out_bits} %d;")
    fill = f"mov.b{out_bits} %d, {0x5555555555555555 & ((1 << out_bits) - 1)};"

    def store(parameter: int) -> list[str]:
        return [
            f"ld.param.u64 %at, [p{parameter}];",
            f"mad.wide.u32 %at, %i, {out_bits // 8}, %at;",
            f"st.global.b{out_bits} [%at], %d;",
        ]

    first = len(kinds)
    guarded = " ".join(
        f"@%odd {part.strip()};" for part in instruction.strip().rstrip(";").split(";")
    )
    lines += [fill, instruction, *store(first), fill, guarded, *store(first + 1)]
    lines += [fill, "@!%odd bra SKIP;", instruction, "SKIP:", *store(first + 2), "ret;"]
    ptx = header + entry(["u64"] * (first + 3), "\n".join(registers), "\n".join(lines))
    function = driver.function(driver.load(ptx), "k")
    inputs = [
        driver.buffer(np.array(column, f"u{container(kind) // 8}"))
        for column, kind in zip(columns, kinds, strict=True)
    ]
    poison = np.full(COUNT, 0xAA, f"u{out_bits // 8}")
    outputs = [driver.buffer(poison) for _ in range(3)]
    driver.launch(function, [*inputs, *outputs], grid=(COUNT // 64, 1, 1), block=(64, 1, 1))
    plain, by_guard, by_branch = (driver.read(buffer) for buffer in outputs)
    for buffer in (*inputs, *outputs):
        driver.free(buffer)
    chosen = np.arange(COUNT) % 3 == 1
    untouched = np.array(0x5555555555555555 & ((1 << out_bits) - 1), plain.dtype)
    expected = np.where(chosen, plain, untouched)
    np.testing.assert_array_equal(by_guard, expected, err_msg=f"guarded {instruction}")
    np.testing.assert_array_equal(by_branch, expected, err_msg=f"divergent {instruction}")
    return plain, expected
