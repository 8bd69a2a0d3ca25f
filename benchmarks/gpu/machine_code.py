"""How many instructions ptxas made of each kernel's PTX: counted in a library, not executed.

The virtual GPU executes PTX. Of scalar code ptxas makes far less (a multiplication and an addition
become one instruction, two halves too, loads become wide), of CUTLASS's a little less.
Source: the ELF format, with 16 bytes an instruction since Volta (CUDA Binary Utilities 13.0,
"Instruction Set Reference").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_ELF, _MACHINE_CUDA = b"\x7fELF\x02\x01", 190
_SECTION_BYTES, _INSTRUCTION_BYTES = 64, 16
_TEXT = ".text."
_PTX = b".version "
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(")
# One a line: perhaps in a scope, perhaps under a guard.
_INSTRUCTION = re.compile(
    r"^\s*\{?\s*(?:@!?%\w+\s+)?[a-z][a-z0-9_]*(?:\.[\w:]+)*(?:\s+[^:;]*)?;", re.MULTILINE
)


def machine_per_ptx(library: bytes) -> dict[str, float]:
    """By kernel, machine instructions for each instruction of PTX that a library has for it.

    Of a library for one arch, uncompressed, with PTX beside the machine code.
    """
    machine = machine_instructions(library)
    return {
        kernel: machine[kernel] / count
        for kernel, count in ptx_instructions(library).items()
        if kernel in machine and count
    }


def ptx_instructions(library: bytes) -> dict[str, int]:
    """By kernel, the instructions of its PTX."""
    found = {}
    start = library.find(_PTX)
    while start >= 0:
        end = library.index(b"\0", start)
        _, *parts = _ENTRY.split(library[start:end].decode(errors="replace"))
        for kernel, text in zip(parts[::2], parts[1::2], strict=True):
            found[kernel] = len(_INSTRUCTION.findall(text))
        start = library.find(_PTX, end)
    return found


def machine_instructions(library: bytes) -> dict[str, int]:
    """By kernel, its machine instructions, with those that fill its last lines."""
    return {
        name.removeprefix(_TEXT): size // _INSTRUCTION_BYTES
        for at in _cubins(library)
        for name, size in _sections(library, at)
        if name.startswith(_TEXT)
    }


def _cubins(library: bytes) -> Iterator[int]:
    """Where files of machine code for GPUs begin."""
    at = library.find(_ELF)
    while at >= 0:
        if library[at + 18 : at + 20] == _MACHINE_CUDA.to_bytes(2, "little"):
            yield at
        at = library.find(_ELF, at + 1)


def _sections(library: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Names and sizes in bytes of the sections of the ELF file at that place."""
    (table,) = struct.unpack_from("<Q", library, at + 40)
    count, names = struct.unpack_from("<HH", library, at + 60)
    headers = [
        struct.unpack_from("<IIQQQQ", library, at + table + k * _SECTION_BYTES)
        for k in range(count)
    ]
    for name, _, _, _, _, size in headers:
        begin = at + headers[names][4] + name
        yield library[begin : library.index(b"\0", begin)].decode(), size
