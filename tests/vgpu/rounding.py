"""Exact arithmetic on floating-point bits: the reference for rounding."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE 754's shape."""

    bits: int
    mantissa: int  # stored bits
    bias: int
    nan: int  # the GPU's canonical NaN

    @property
    def exponent_mask(self) -> int:
        return (1 << (self.bits - 1 - self.mantissa)) - 1

    def split(self, bits: int) -> tuple[int, int, int]:
        fraction = bits & ((1 << self.mantissa) - 1)
        return bits >> (self.bits - 1), bits >> self.mantissa & self.exponent_mask, fraction

    def is_nan(self, bits: int) -> bool:
        _, exponent, fraction = self.split(bits)
        return exponent == self.exponent_mask and fraction != 0

    def is_inf(self, bits: int) -> bool:
        _, exponent, fraction = self.split(bits)
        return exponent == self.exponent_mask and fraction == 0

    def value(self, bits: int) -> Fraction:
        """The value of a finite number."""
        sign, exponent, fraction = self.split(bits)
        if exponent:
            fraction |= 1 << self.mantissa
        scale = max(exponent, 1) - self.bias - self.mantissa
        magnitude = Fraction(fraction) * Fraction(2) ** scale
        return -magnitude if sign else magnitude

    def round(self, value: Fraction, mode: str = "rn", *, negative_zero: bool = False) -> int:
        """The bits of `value` rounded: rn (to even), rz, rm (down) or rp (up)."""
        sign = value < 0 or (value == 0 and negative_zero)
        top = int(sign) << (self.bits - 1)
        magnitude = abs(value)
        if magnitude == 0:
            return top
        exponent = (magnitude.numerator.bit_length() - magnitude.denominator.bit_length()) + 1
        while Fraction(2) ** exponent > magnitude:
            exponent -= 1
        unit = Fraction(2) ** (max(exponent, 1 - self.bias) - self.mantissa)
        steps = magnitude / unit
        whole = math.floor(steps)
        rest = steps - whole
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
            "rz": False,
            "rm": sign and rest > 0,
            "rp": not sign and rest > 0,
        }[mode]
        rounded = (whole + up) * unit
        largest = (2 - Fraction(2) ** -self.mantissa) * Fraction(2) ** (
            self.exponent_mask - 1 - self.bias
        )
        infinity = self.exponent_mask << self.mantissa
        if rounded > largest:
            overflow = mode == "rn" or (mode == "rm" and sign) or (mode == "rp" and not sign)
            return top | (infinity if overflow else infinity - 1)
        whole = int(rounded / unit)
        if max(exponent, 1 - self.bias) == 1 - self.bias and whole < 1 << self.mantissa:
            return top | whole  # subnormal
        biased = max(exponent, 1 - self.bias) + self.bias
        if whole >> (self.mantissa + 1):
            whole >>= 1
            biased += 1
        return top | biased << self.mantissa | (whole & ((1 << self.mantissa) - 1))


F16 = Format(16, 10, 15, 0x7FFF)
BF16 = Format(16, 7, 127, 0x7FFF)
F32 = Format(32, 23, 127, 0x7FFFFFFF)
F64 = Format(64, 52, 1023, 0xFFF8000000000000)


def f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def f64(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def bits_f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def bits_f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])
