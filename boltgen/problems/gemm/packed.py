"""Weights of four or eight bits with a scale per group, in one matrix of bytes.

Arrow: the frontend packs a model's weights, a problem names the format, kernels and the oracle
unpack them. The unpacked weight is (number - zero point) * scale, rounded once to FP16, as ONNX's
DequantizeLinear computes it for FP16 scales. The difference is an integer of magnitude below 2**8,
which FP16 represents exactly; so every kernel multiplies the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import VECTOR_BYTES

Bytes = NDArray[np.uint8]
_SCALE_BYTES = 2

# A lane reads sixteen numbers of a column at once, which share one scale. Source:
# templates/include/boltgen/skinny_packed.h, SkinnyStep::kElements.
BITS, GROUPS = (4, 8), (16, 32, 64, 128, 256)


def _whole_vectors(size_bytes: int) -> int:
    return -(-size_bytes // VECTOR_BYTES) * VECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """The format of a packed B: (N, `row_bytes(k)`) bytes, one row per column of B.

    A row begins with K unsigned numbers of `bits` bits each, padded to whole groups. From the next
    multiple of 16 bytes on, it has one FP16 scale per `group` numbers; the last group may be
    shorter. If `has_zeros`, one byte per group follows with its zero point; otherwise every zero
    point is 2**(bits - 1). The row is padded to a multiple of 16 bytes. With four bits, a 32-bit
    word holds eight numbers, the even indices in its lower half.

    Raises:
        InvalidProblemError: kernels do not read these `bits` or this `group`.
    """

    bits: int
    group: int
    has_zeros: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("bits", self.bits, BITS), ("group", self.group, GROUPS)):
            if value not in known:
                raise InvalidProblemError(
                    f"PackedWeights: {name}={value}; kernels read {', '.join(map(str, known))}"
                )

    @property
    def middle(self) -> int:
        """The zero point if the weights store none."""
        return int(2 ** (self.bits - 1))

    @property
    def short(self) -> str:
        """`int4 in groups of 32`, `int8 in groups of 128 with zero points`."""
        zeros = " with zero points" if self.has_zeros else ""
        return f"int{self.bits} in groups of {self.group}{zeros}"

    def groups(self, k: int) -> int:
        """Return the number of groups in a row."""
        return -(-k // self.group)

    def scales_at(self, k: int) -> int:
        """Return the offset of a row's scales, in bytes."""
        return _whole_vectors(self.groups(k) * self.group * self.bits // 8)

    def row_bytes(self, k: int) -> int:
        """Return the bytes of a row."""
        each = _SCALE_BYTES + int(self.has_zeros)
        return _whole_vectors(self.scales_at(k) + self.groups(k) * each)

    def packed(self, numbers: Bytes, scales: NDArray[np.float16], zeros: Bytes | None) -> Bytes:
        """Pack `numbers` (N, K) with `scales` and `zeros` (N, groups).

        The padding of the last group is multiplied as 0.

        Raises:
            InvalidProblemError: a shape or dtype is wrong, a number has more bits, or `zeros` are
                given although the format has none, or are missing.
        """
        n, k = numbers.shape
        groups = self.groups(k)
        self._check(numbers, scales, zeros, (n, groups))
        middle = np.full((n, groups), self.middle, np.uint8) if zeros is None else zeros
        whole = np.repeat(middle, self.group, axis=1)
        whole[:, :k] = numbers
        if self.bits == 4:
            nibbles = whole.reshape(n, -1, 4, 2).transpose(0, 1, 3, 2).reshape(n, -1, 2)
            whole = nibbles[..., 0] | nibbles[..., 1] << 4
        made = np.zeros((n, self.row_bytes(k)), np.uint8)
        made[:, : whole.shape[1]] = whole
        at, behind = self.scales_at(k), self.scales_at(k) + _SCALE_BYTES * groups
        made[:, at:behind] = np.ascontiguousarray(scales).view(np.uint8)
        if zeros is not None:
            made[:, behind : behind + groups] = zeros
        return made

    def _check(
        self,
        numbers: Bytes,
        scales: NDArray[np.float16],
        zeros: Bytes | None,
        shape: tuple[int, int],
    ) -> None:
        if (zeros is not None) != self.has_zeros:
            raise InvalidProblemError(f"PackedWeights: zero points for {self.short}")
        wanted: list[tuple[str, NDArray[Any], type, tuple[int, int]]] = [
            ("numbers", numbers, np.uint8, (shape[0], numbers.shape[1])),
            ("scales", scales, np.float16, shape),
        ]
        if zeros is not None:
            wanted.append(("zeros", zeros, np.uint8, shape))
        for name, array, dtype, own in wanted:
            if array.dtype != dtype or array.shape != own:
                raise InvalidProblemError(
                    f"PackedWeights: {name} are {array.dtype} {array.shape}, not "
                    f"{np.dtype(dtype)} {own}"
                )
            if dtype is np.uint8 and array.size and int(array.max()) >= 2**self.bits:
                raise InvalidProblemError(
                    f"PackedWeights: {name} reach {int(array.max())}, beyond {self.bits} bits"
                )

    def unpacked(self, packed: Bytes, k: int) -> NDArray[np.float16]:
        """Return the weights (N, K) that kernels multiply, in FP16.

        Raises:
            InvalidProblemError: `packed` is not a matrix of bytes with rows of this length.
        """
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != self.row_bytes(k):
            raise InvalidProblemError(
                f"PackedWeights: {packed.dtype} {packed.shape}; {self.short} and K={k} have rows "
                f"of {self.row_bytes(k)} bytes"
            )
        n, groups = len(packed), self.groups(k)
        at, behind = self.scales_at(k), self.scales_at(k) + _SCALE_BYTES * groups
        numbers = packed[:, : groups * self.group * self.bits // 8]
        if self.bits == 4:
            nibbles = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(n, -1, 2, 4)
            numbers = nibbles.transpose(0, 1, 3, 2).reshape(n, -1)
        scales = np.ascontiguousarray(packed[:, at:behind]).view(np.float16)
        zeros = packed[:, behind : behind + groups].astype(np.float16)
        zeros = zeros if self.has_zeros else np.full((n, groups), self.middle, np.float16)
        wide = numbers.reshape(n, groups, self.group).astype(np.float16)
        with np.errstate(over="ignore"):
            made = (wide - zeros[..., None]) * scales[..., None]
        return np.ascontiguousarray(made.reshape(n, -1)[:, :k])

    def drawn(self, rng: np.random.Generator, n: int, k: int, most: float) -> Bytes:
        """Return random packed weights (N, K) of magnitudes up to `most`, a scale per group."""
        groups, end = self.groups(k), 2**self.bits
        numbers = rng.integers(0, end, (n, k), np.uint8)
        scales = rng.uniform(0.5, 1.0, (n, groups)) * most / (end - 1)
        zeros = rng.integers(0, end, (n, groups), np.uint8) if self.has_zeros else None
        return self.packed(numbers, scales.astype(np.float16), zeros)
