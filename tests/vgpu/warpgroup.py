"""One wgmma in one warpgroup: operands laid out in shared memory, and sums in registers, as the PTX
ISA's tables and CUTLASS's canonical layouts (cute/atom/mma_traits_sm90_gmma.hpp) say."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from benchmarks.harness.driver import Array, Buffer, Driver, entry

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
SHARED = 48 << 10  # of a block, without asking for more
MODES = {0: 0, 128: 1, 64: 2, 32: 3}

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "b1": np.dtype(np.uint8),  # eight a byte, the first one in the lowest bit
    "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
}


@dataclass(frozen=True)
class Layout:
    """Of a matrix [lines, k] in shared memory; lines are M or N."""

    swizzle: int = 128
    by_lines: bool = False  # lines run fastest ("MN-major")
    skip: int = 0  # bytes from the start of a swizzle's row to the first element: a later k step
    gap: int = 0  # bytes between groups of core matrices
    start: int = 0  # bytes from a multiple of 1024 to the pattern's start

    @property
    def width(self) -> int:
        """Chunks of 16 bytes in a row of the pattern."""
        return max(self.swizzle, 16) // 16

    def strides(self, lines: int, chunks: int) -> tuple[int, int]:
        """Leading and stride byte offsets."""
        atom = 8 * 16 * self.width + self.gap
        if not self.by_lines:
            return (atom * (lines // 8), atom) if not self.swizzle else (16, atom)
        if not self.swizzle:  # 8 steps of k in a core matrix
            return atom * (lines // 8), atom
        return atom * chunks, atom

    def place(self, matrix: Array, at: int, image: Array) -> int:
        """Write the matrix into an image of shared memory, from `at` (a multiple of 1024) on.
        Returns its descriptor."""
        lines, depth = matrix.shape
        size = matrix.dtype.itemsize
        per_chunk = 16 // size
        line, k = np.meshgrid(np.arange(lines), np.arange(depth), indexing="ij")
        if not self.by_lines:
            chunks = depth // per_chunk
            leading, stride = self.strides(lines, chunks)
            row, group = line % 8, line // 8
            chunk, rest = k // per_chunk, k % per_chunk * size
            offset = group * stride + row * 16 * self.width + chunk * leading + rest + self.skip
        else:
            leading, stride = self.strides(lines, depth // 8)
            chunk, rest = line // per_chunk, line % per_chunk * size
            row, group = k % 8, k // 8
            if not self.swizzle:
                offset = chunk * stride + group * leading + row * 16 + rest
            else:
                within, beyond = chunk % self.width, chunk // self.width
                offset = beyond * leading + group * stride + row * 16 * self.width + within * 16
                offset = offset + rest
        pattern = {0: 0, 32: 1, 64: 3, 128: 7}[self.swizzle]
        place = at + self.start + (offset ^ ((offset >> 7 & pattern) << 4))
        raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(lines, depth, size)
        for byte in range(size):
            image[place + byte] = raw[:, :, byte]
        return descriptor(
            at + self.start + self.skip, leading, stride, self.swizzle, (at + self.start) >> 7 & 7
        )


def descriptor(start: int, leading: int, stride: int, swizzle: int, base: int = 0) -> int:
    fields = (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32
    return fields | (base if swizzle else 0) << 49 | MODES[swizzle] << 62


@dataclass(frozen=True)
class Wgmma:
    """D[64, n] = ±A[64, k] B[n, k]^T + C."""

    n: int
    a: str = "f16"
    b: str = "f16"
    d: str = "f32"
    layout_a: Layout | None = Layout()  # None: A is in registers
    layout_b: Layout = Layout()
    signs: tuple[int, int] = (1, 1)
    clamps: bool = False
    accumulates: bool = True
    selector: int | None = None  # of sparse A

    @property
    def bits(self) -> int:
        return 1 if self.a == "b1" else 8 * DTYPES[self.a].itemsize

    @property
    def k(self) -> int:
        return 256 // self.bits * (1 if self.selector is None else 2)

    @property
    def stored(self) -> int:
        """Elements of a row of A that are stored; bytes of bits."""
        return 32 if self.a == "b1" else 256 // self.bits

    @property
    def sums(self) -> int:
        """Registers of a thread."""
        return self.n // (4 if self.d == "f16" else 2)

    @property
    def name(self) -> str:
        sparse = "" if self.selector is None else ".sp"
        end = ".and.popc" if self.a == "b1" else ".satfinite" if self.clamps else ""
        shape = f"m64n{self.n}k{self.k}.{self.d}.{self.a}.{self.b}"
        return f"wgmma.mma_async{sparse}.sync.aligned.{shape}{end}"

    @property
    def label(self) -> str:
        a = (
            "regs"
            if self.layout_a is None
            else f"{self.layout_a.swizzle}{'t' * self.layout_a.by_lines}"
        )
        b = f"{self.layout_b.swizzle}{'t' * self.layout_b.by_lines}"
        return f"{self.name.split('aligned.')[1]}-{a}-{b}"

    def text(self, sums: list[str], a: str, b: str, metadata: str, scale: str) -> str:
        operands = [braces(sums), a, b]
        if self.selector is not None:
            operands += [metadata, str(self.selector)]
        operands.append(scale)
        if self.a not in ("s8", "u8", "b1"):
            operands += [str(s) for s in self.signs]
        if self.a in ("f16", "bf16"):
            if self.layout_a is not None:
                operands.append(str(int(self.layout_a.by_lines)))
            operands.append(str(int(self.layout_b.by_lines)))
        return f"{self.name} {', '.join(operands)};"


def braces(names: list[str]) -> str:
    return "{" + ", ".join(names) + "}"


def pack_sums(c: Array) -> Array:
    """Registers [thread, register] of C[64, n]."""
    thread = np.arange(128)
    row = 16 * (thread // 32) + thread % 32 // 4
    out = []
    for j in range(c.shape[1] // 8):
        for r in range(2):
            columns = 8 * j + 2 * (thread % 4)[:, None] + np.arange(2)
            pair = np.ascontiguousarray(c[(row + 8 * r)[:, None], columns])
            out.append(pair.view(np.uint32))
    return np.ascontiguousarray(np.concatenate(out, axis=1))


def unpack_sums(words: Array, n: int, dtype: np.dtype[np.generic]) -> Array:
    out = np.zeros((64, n), dtype)
    thread = np.arange(128)
    row = 16 * (thread // 32) + thread % 32 // 4
    values = np.ascontiguousarray(words).view(dtype).reshape(128, n // 8, 2, 2)
    for j in range(n // 8):
        for r in range(2):
            for c in range(2):
                out[row + 8 * r, 8 * j + 2 * (thread % 4) + c] = values[:, j, r, c]
    return out


def pack_left(a: Array) -> Array:
    """Registers [thread, 4] of A[64, 32 bytes]."""
    rows = np.ascontiguousarray(a).view(np.uint32).reshape(64, 8)
    thread = np.arange(128)
    row = 16 * (thread // 32) + thread % 32 // 4
    t = thread % 4
    return np.stack([rows[row + 8 * (q % 2), t + 4 * (q // 2)] for q in range(4)], axis=1)


def copy_image(words: int) -> str:
    """PTX that fills shared memory `s` from the buffer p0, and orders it before wgmma."""
    return f"""
    ld.param.u64 %d0, [p0]; mov.u32 %t, %tid.x; mov.u32 %n, %t;
copy:
    shl.b32 %x, %n, 2; cvt.u64.u32 %d1, %x; add.s64 %d1, %d0, %d1; ld.global.u32 %y, [%d1];
    mov.u32 %z, s; add.u32 %z, %z, %x; st.shared.u32 [%z], %y;
    add.u32 %n, %n, 128; setp.lt.u32 %p, %n, {words}; @%p bra copy;
    fence.proxy.async; bar.sync 0;
    """


def program(mma: Wgmma, a: int, b: int, times: int) -> str:
    """A kernel (image, registers in, sums out): one product, or the same again and again."""
    sums = [f"%c{k}" for k in range(mma.sums)]
    extra = [f"%a{k}" for k in range(4)] + ["%m"]
    words = len(sums) + len(extra)
    left = braces(extra[:4]) if mma.layout_a is None else "%d2"
    body = [copy_image(SHARED // 4), "ld.param.u64 %d0, [p1];"]
    body.append(f"mad.wide.u32 %d0, %t, {4 * words}, %d0;")
    body += [f"ld.global.u32 {r}, [%d0+{4 * k}];" for k, r in enumerate([*sums, *extra])]
    body.append(f"mov.u64 %d2, {a}; mov.u64 %d3, {b};")
    body.append(f"mov.u32 %x, {int(mma.accumulates)}; setp.ne.u32 %p, %x, 0;")
    body.append("mov.u32 %n, 0;\nagain: wgmma.fence.sync.aligned;")
    body.append(mma.text(sums, left, "%d3", "%m", "%p"))
    body.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
    body.append(f"add.u32 %n, %n, 1; setp.lt.u32 %q, %n, {times}; @%q bra again;")
    body.append(f"ld.param.u64 %d0, [p2]; mad.wide.u32 %d0, %t, {4 * len(sums)}, %d0;")
    body += [f"st.global.u32 [%d0+{4 * k}], {r};" for k, r in enumerate(sums)]
    registers = (
        f".reg .b32 %t, %n, %x, %y, %z, %m, %a<4>, %c<{len(sums)}>; .reg .b64 %d<4>;"
        f" .reg .pred %p, %q; .shared .align 1024 .b8 s[{SHARED}];"
    )
    return HEADER + entry(["u64"] * 3, registers, "\n".join(body) + "\nret;")


def multiply(
    driver: Driver,
    mma: Wgmma,
    a: Array,
    b: Array,
    c: Array,
    *,
    metadata: Array | None = None,
    times: int = 1,
) -> Array:
    """`a` is [64, stored], `b` [n, k] (bits: bytes of them), `c` [64, n]."""
    image = np.zeros(1 << 16, np.uint8)  # more than there is: of shapes that are refused
    left = 0 if mma.layout_a is None else mma.layout_a.place(a, 0, image)
    right = mma.layout_b.place(b, 1 << 14, image)
    extra = np.zeros((128, 5), np.uint32)
    if mma.layout_a is None:
        extra[:, :4] = pack_left(a)
    if metadata is not None:
        extra[:, 4] = metadata
    words = np.concatenate([pack_sums(c), extra], axis=1)
    out = driver.buffer(np.zeros((128, mma.sums), np.uint32))
    buffers: list[Buffer | int] = [driver.buffer(image[:SHARED]), driver.buffer(words), out]
    driver.run(program(mma, left, right, times), buffers, block=(128, 1, 1))
    found = driver.read(out)
    for buffer in buffers:
        assert isinstance(buffer, Buffer)
        driver.free(buffer)
    return unpack_sums(found, mma.n, c.dtype)
