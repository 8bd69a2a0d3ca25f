"""Arrow: a compiler's log to ptxas's report of each kernel in it: registers and spills."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Names the kernel, then its stack and spills, then its registers, each on a line of its own.
_KERNEL = re.compile(r"Compiling entry function '(\w+)' for ")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_DEVICE = "_device"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUsage:
    """Registers of a thread, and bytes that it spills to local memory and loads from it."""

    registers: int
    spilled_bytes: int


def kernel_usage(log: Path) -> dict[str, KernelUsage]:
    """Parse the registers and spills of kernels in a log, by their symbols.

    Empty where ptxas did not run, as for PTX alone, and where the log is not there.
    """
    if not log.is_file():
        return {}
    found: dict[str, KernelUsage] = {}
    symbol, spilled_bytes = "", 0
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if named := _KERNEL.search(line):
            symbol, spilled_bytes = named[1].removesuffix(_DEVICE), 0
        elif spills := _SPILLS.search(line):
            spilled_bytes = int(spills[1]) + int(spills[2])
        elif symbol and (used := _REGISTERS.search(line)):
            found[symbol] = KernelUsage(registers=int(used[1]), spilled_bytes=spilled_bytes)
            symbol = ""
    return found
