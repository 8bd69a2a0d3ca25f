"""Element types and memory orders: the words that every later stage uses.

Whatever depends on an element type is a figure of its row here. A distinction that is no figure is
a `match` that ends in `assert_never`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.ir.extent import divides


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """The names by which C++ converts an element type, in kernels, moves, epilogues and profiler.

    `cutlass` is the type in kernels, `moved` the type in moves, which need no CUTLASS. `rounding`
    is the device function that rounds FP32 to the type, None if that changes nothing. `adapter` is
    the constant of `boltgen/region_call.h` by which an adapter checks a tensor, and `profiler` the
    number in the enumeration of `profiler.h`, None if that has none.
    """

    cutlass: str
    moved: str
    rounding: str | None
    adapter: str
    profiler: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The facts of an element type; `DType` says what each figure means."""

    short: str
    size_bytes: int
    significand_bits: int
    max_exponent: int
    numpy: type
    conversions: Conversions | None
    accumulators: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_whole: bool = False
    weight: str | None = None
    largest: float | None = None
    least_exponent: int | None = None


_ROWS = {
    "float16": _Row(
        short="f16",
        size_bytes=2,
        significand_bits=11,
        max_exponent=15,
        numpy=np.float16,
        conversions=Conversions(
            cutlass="cutlass::half_t",
            moved="boltgen::Half",
            rounding="boltgen::round_to_half",
            adapter="kFloat16",
            profiler=0,
        ),
        # PTX ISA, mma.sync: m16n8k8 of FP16, with FP16 or FP32 accumulators, from sm_75.
        accumulators={"float32": (7, 5), "float16": (7, 5)},
    ),
    "bfloat16": _Row(
        short="bf16",
        size_bytes=2,
        significand_bits=8,
        max_exponent=127,
        numpy=ml_dtypes.bfloat16,
        conversions=Conversions(
            cutlass="cutlass::bfloat16_t",
            moved="boltgen::Bfloat16",
            rounding="boltgen::round_to_bfloat16",
            adapter="kBfloat16",
            profiler=2,
        ),
        # PTX ISA, mma.sync: m16n8k8 and m16n8k16 of BF16, with FP32 accumulators, from sm_80.
        accumulators={"float32": (8, 0)},
    ),
    "float32": _Row(
        short="f32",
        size_bytes=4,
        significand_bits=24,
        max_exponent=127,
        numpy=np.float32,
        conversions=Conversions(
            cutlass="float",
            moved="float",
            rounding=None,
            adapter="kFloat32",
            profiler=1,
        ),
        # No tensor core multiplies FP32: TF32 keeps 11 bits of its significand.
    ),
    "float8_e4m3fn": _Row(
        short="e4m3",
        size_bytes=1,
        significand_bits=4,
        max_exponent=8,
        numpy=ml_dtypes.float8_e4m3fn,
        conversions=Conversions(
            cutlass="cutlass::float_e4m3_t",
            moved="uint8_t",
            rounding=None,
            adapter="boltgen::kFloat8E4m3",
            profiler=None,
        ),
        # PTX ISA, mma.sync: m16n8k32 of 8-bit floats, with FP32 accumulators, from sm_89.
        accumulators={"float32": (8, 9)},
        largest=448.0,  # the greatest significand is NaN
        least_exponent=-6,
    ),
    "float8_e5m2": _Row(
        short="e5m2",
        size_bytes=1,
        significand_bits=3,
        max_exponent=15,
        numpy=ml_dtypes.float8_e5m2,
        conversions=Conversions(
            cutlass="cutlass::float_e5m2_t",
            moved="uint8_t",
            rounding=None,
            adapter="boltgen::kFloat8E5m2",
            profiler=None,
        ),
        accumulators={"float32": (8, 9)},
    ),
    "int8": _Row(
        short="s8",
        size_bytes=1,
        significand_bits=7,
        max_exponent=6,
        numpy=np.int8,
        conversions=Conversions(
            cutlass="int8_t",
            moved="int8_t",
            rounding=None,
            adapter="boltgen::kInt8",
            profiler=3,
        ),
        # PTX ISA, mma.sync: m8n8k16 of 8-bit integers from sm_75, m16n8k32 from sm_80.
        accumulators={"int32": (7, 5)},
        is_whole=True,
    ),
    "uint8": _Row(
        short="u8",
        size_bytes=1,
        significand_bits=8,
        max_exponent=7,
        numpy=np.uint8,
        conversions=Conversions(
            cutlass="uint8_t",
            moved="uint8_t",
            rounding=None,
            adapter="boltgen::kUint8",
            profiler=4,
        ),
        accumulators={"int32": (7, 5)},
        is_whole=True,
        weight="int8",
    ),
    "int32": _Row(
        short="s32",
        size_bytes=4,
        significand_bits=31,
        max_exponent=30,
        numpy=np.int32,
        conversions=Conversions(
            cutlass="int32_t",
            moved="int32_t",
            rounding=None,
            adapter="boltgen::kInt32",
            profiler=5,
        ),
        is_whole=True,
    ),
}


class DType(Enum):
    """An element type; the value is its NumPy name.

    `size_bytes` is the size of an element. `short` is its name within a symbol. `significand_bits`
    counts the leading one. The row's accumulators are the types in which tensor cores sum products
    of this type, each with the first compute capability whose instruction does. A type whose row
    has no conversions is known, and no kernel reads or writes it. An `is_whole` type has integers;
    `significand_bits` are the bits of its largest one. An `is_narrow` type has floats of 8 bits,
    which kernels multiply and store, and nothing else reads.
    """

    F16 = "float16"
    BF16 = "bfloat16"
    F32 = "float32"
    E4M3 = "float8_e4m3fn"
    E5M2 = "float8_e5m2"
    I8 = "int8"
    U8 = "uint8"
    I32 = "int32"

    # By identity: a type is part of keys that are asked for a hundred thousand times.
    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        row = _ROWS[name]
        self.short = row.short
        self.size_bytes = row.size_bytes
        self.significand_bits = row.significand_bits
        self.max_exponent = row.max_exponent
        self.is_whole = row.is_whole
        self.is_narrow = row.size_bytes == 1 and not row.is_whole
        self._largest, self._least_exponent = row.largest, row.least_exponent
        self._numpy = row.numpy
        self._weight = row.weight
        self._accumulators = row.accumulators
        self._conversions = row.conversions

    @property
    def is_converted(self) -> bool:
        """Whether kernels read and write it."""
        return self._conversions is not None

    @property
    def conversions(self) -> Conversions:
        """The names of its conversions in C++.

        Raises:
            InvalidProblemError: it has none.
        """
        if self._conversions is None:
            known = " and ".join(CONVERTED)
            raise InvalidProblemError(
                f"no kernel converts {self.value}, but {known}; cast the tensor to one of them"
            )
        return self._conversions

    @property
    def weight(self) -> DType:
        """The type of B's elements beside an A of this type: kernels take weights of int8 only."""
        return self if self._weight is None else DType(self._weight)

    @property
    def cutlass(self) -> str:
        """The C++ type in kernels."""
        return self.conversions.cutlass

    @property
    def adapter(self) -> str:
        """The constant by which an adapter checks a tensor."""
        return self.conversions.adapter

    @property
    def profiler(self) -> int:
        """The number by which the profiler knows it.

        Raises:
            InvalidProblemError: it has none.
        """
        number = self.conversions.profiler
        if number is None:
            raise InvalidProblemError(
                f"the profiler knows no {self.value}, so its kernels are chosen by predicted time"
            )
        return number

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type of arrays."""
        return np.dtype(self._numpy)

    @property
    def ulp(self) -> float:
        """The distance from 1 to the next number."""
        return 2.0 ** (1 - self.significand_bits)

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest."""
        return self.ulp / 2

    @property
    def largest(self) -> float:
        """The largest finite number."""
        if self.is_whole:
            return float(np.iinfo(self._numpy).max)
        if self._largest is not None:
            return self._largest
        return (2.0 - self.ulp) * 2.0**self.max_exponent

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a whole significand."""
        least = self._least_exponent
        return float(2.0 ** (1 - self.max_exponent if least is None else least))

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number, and the distance between all subnormal ones."""
        return self.smallest_normal * self.ulp

    @property
    def overflow_threshold(self) -> float:
        """The smallest magnitude that rounds to infinity: half an ulp beyond the largest number.

        It is infinite of a type of 8 bits, whose results are clipped before.
        """
        if self.is_whole or self.is_narrow:
            return np.inf
        return (2.0 - self.unit_roundoff) * 2.0**self.max_exponent

    def accumulators(self, compute_capability: tuple[int, int] | None = None) -> tuple[DType, ...]:
        """Return the types in which tensor cores, of one capability or any, sum its products."""
        return tuple(
            DType(name)
            for name, since in self._accumulators.items()
            if compute_capability is None or compute_capability >= since
        )

    def accumulator_rejection(
        self, accumulator: DType, compute_capability: tuple[int, int] | None = None
    ) -> str | None:
        """Return why no tensor-core instruction sums its products in `accumulator`, or None.

        `compute_capability` asks for an instruction of that one; without it any will do.
        """
        since = self._accumulators.get(accumulator.value)
        if since is not None and (compute_capability is None or compute_capability >= since):
            return None
        known = self.accumulators(compute_capability)
        where = "" if compute_capability is None else " of sm_{}{}".format(*compute_capability)
        sums = ", ".join(dtype.value for dtype in known) or "no type"
        return (
            f"no tensor-core instruction{where} sums products of {self.value} in "
            f"{accumulator.value}: they are summed in {sums}"
        )


# The types of numbers that kernels read and write, by their NumPy names: floats, integers, and the
# floats of 8 bits, which only products read and write.
FLOAT_TYPES = tuple(dtype for dtype in DType if not (dtype.is_whole or dtype.is_narrow))
CONVERTED = tuple(dtype.value for dtype in FLOAT_TYPES if dtype.is_converted)
WHOLE = tuple(dtype.value for dtype in DType if dtype.is_converted and dtype.is_whole)
FLOAT8 = tuple(dtype.value for dtype in DType if dtype.is_converted and dtype.is_narrow)


@dataclass(frozen=True, slots=True)
class Bytes:
    """The element type of packed tensors, with which nothing is computed as it is."""

    value: str = "uint8"
    size_bytes: int = 1
    adapter: str = "boltgen::kUint8"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type of arrays."""
        return np.dtype(self.value)


BYTES = Bytes()


class IndexType(Enum):
    """The element type of tensors that count rows."""

    INT32 = "int32"
    INT64 = "int64"

    @property
    def size_bytes(self) -> int:
        """Bytes of an element."""
        return self.numpy.itemsize

    @property
    def adapter(self) -> str:
        """The name in region_call.h."""
        return f"boltgen::k{self.value.capitalize()}"

    @property
    def cpp(self) -> str:
        """The type in C++."""
        return f"{self.value}_t"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type of arrays."""
        return np.dtype(self.value)


# The type of a tensor's elements in memory.
ElementType: TypeAlias = DType | Bytes | IndexType


class Precision(Enum):
    """The type that products multiply, as users name it."""

    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def dtype(self) -> DType:
        """Its element type."""
        match self:
            case Precision.FP16:
                return DType.F16
            case Precision.BF16:
                return DType.BF16


class Layout(Enum):
    """The memory order of a matrix as the problem writes it."""

    __hash__ = object.__hash__

    ROW = "row"
    COLUMN = "column"


# The widest vector load and store of every NVIDIA GPU in the table is 128 bits.
# Source: Bolt, section 3.2.3 (kernel padding).
VECTOR_BYTES = 16


def alignment_elements(dtype: DType, *extents: int) -> int:
    """Largest vector width, in elements, that divides every extent and fits one 128-bit access."""
    width = VECTOR_BYTES // dtype.size_bytes
    while not all(divides(width, extent) for extent in extents):
        width //= 2
    return width
