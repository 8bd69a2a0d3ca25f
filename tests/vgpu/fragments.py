"""Matrices to and from the registers of a warp, as the PTX ISA's tables lay fragments out, and the
product of fragments in one warp."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Driver, entry
from boltgen.errors import VgpuError


def words_of(matrix: Array, bits: int) -> Array:
    """Rows of elements as rows of registers: 32 bits wide, 64 for doubles."""
    if bits >= 8:
        return np.ascontiguousarray(matrix).view(np.uint64 if bits == 64 else np.uint32)
    fields = matrix.astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)
    per_word = 32 // bits
    fields = fields.reshape(len(matrix), -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    words: Array = (fields << shifts).sum(axis=2, dtype=np.uint64).astype(np.uint32)
    return words


def pack(matrix: Array, bits: int | None = None) -> Array:
    """Registers [lane, register] of A, or of B transposed."""
    rows = words_of(matrix, bits or 8 * matrix.dtype.itemsize)
    lane = np.arange(32)
    registers = [
        rows[lane // 4 + 8 * r, 4 * h + lane % 4]
        for h in range(rows.shape[1] // 4)
        for r in range(len(rows) // 8)
    ]
    return np.stack(registers, axis=1)


def pack_sums(matrix: Array) -> Array:
    """Registers [lane, register] of C: pairs of neighbouring columns, packed when they are f16."""
    lane = np.arange(32)
    pairs = [
        matrix[(lane // 4 + 8 * r)[:, None], 2 * (lane % 4)[:, None] + np.arange(2)]
        for r in range(len(matrix) // 8)
    ]
    return np.concatenate([words_of(p, 8 * matrix.dtype.itemsize) for p in pairs], axis=1)


def unpack_sums(words: Array, rows: int, dtype: np.dtype[np.generic]) -> Array:
    out = np.zeros((rows, 8), dtype)
    each = words.shape[1] // (rows // 8)
    for lane in range(32):
        for r in range(rows // 8):
            values = np.ascontiguousarray(words[lane, r * each : (r + 1) * each]).view(dtype)
            out[lane // 4 + 8 * r, 2 * (lane % 4) : 2 * (lane % 4) + 2] = values
    return out


def multiply_fragments(
    driver: Driver,
    instruction: str,
    a: Array,
    b: Array,
    c: Array,
    *,
    results: int | None = None,
    metadata: tuple[int, int] | None = None,
) -> Array:
    """The registers [lane, register] of D, from those of A, B and C, in one warp.

    `metadata` is the address of a register of each lane, and the selector.
    """
    parts = [a, b, c]
    results = results or c.shape[1]
    bits = 8 * a.dtype.itemsize
    words = np.concatenate(parts, axis=1)
    names = [f"%r{k}" for k in range(words.shape[1])]
    groups, first = [], 0
    for part in parts:
        groups.append("{" + ", ".join(names[first : first + part.shape[1]]) + "}")
        first += part.shape[1]
    to = [f"%o{k}" for k in range(results)]
    body = ["mov.u32 %t, %tid.x; ld.param.u64 %d, [p0];"]
    body.append(f"mad.wide.u32 %d, %t, {bits // 8 * len(names)}, %d;")
    body += [f"ld.global.b{bits} {name}, [%d+{bits // 8 * k}];" for k, name in enumerate(names)]
    if metadata is not None:
        address, selector = metadata
        body.append(f"mad.wide.u32 %d, %t, 4, {address}; ld.global.b32 %e, [%d];")
        groups.append(f"%e, {selector}")
    body.append(f"{instruction} {{{', '.join(to)}}}, {', '.join(groups)};")
    body.append(f"ld.param.u64 %d, [p1]; mad.wide.u32 %d, %t, {bits // 8 * results}, %d;")
    body += [f"st.global.b{bits} [%d+{bits // 8 * k}], {name};" for k, name in enumerate(to)]
    registers = f".reg .b32 %t, %e; .reg .b{bits} %r<{len(names)}>, %o<{results}>; .reg .b64 %d;"
    out = driver.buffer(np.zeros((32, results), words.dtype))
    data = driver.buffer(words)
    driver.run(entry(["u64", "u64"], registers, "\n".join(body) + "\nret;"), [data, out])
    found = driver.read(out)
    driver.free(data)
    driver.free(out)
    return found


def several_instruction_sets(driver: Driver) -> list[str]:
    """Instruction sets to compare; the test is skipped where the build has one only."""
    found = instruction_sets(driver)
    if len(found) == 1:
        pytest.skip(f"this build has {found[0]} only: set BOLTGEN_VGPU_ISAS to compare several")
    return found


def instruction_sets(driver: Driver) -> list[str]:
    """The instruction sets that this build has and this CPU can execute."""
    found = []
    for isa in ("avx512", "avx2", "generic"):
        try:
            driver.vgpu.set_option("isa", isa)
        except VgpuError:
            continue
        found.append(isa)
    return found
