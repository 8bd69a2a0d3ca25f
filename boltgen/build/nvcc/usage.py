"""Arrow: from a compiler's log to ptxas's report of each kernel, and the audit of the report.

The log is kept with the compiled kernel in the cache, so a kernel from the cache is audited too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

# ptxas names the kernel, then its stack and spills, then its registers, on separate lines.
_KERNEL = re.compile(r"Compiling entry function '(\w+)' for ")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
# Including the functions that the kernel calls.
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SERIALISED = re.compile(
    r"wgmma\.mma_async instructions are serialized due to (.+?) (?:in|for) the function '(\w+)'"
)
_DEVICE = "_device"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUsage:
    """The report of ptxas about a kernel.

    `registers` and `stack_bytes` are per thread. `spilled_bytes` is the sum of bytes stored to and
    loaded from local memory because of spills. `serialised` is ptxas's reason for serialising the
    kernel's wgmma instructions, or empty.
    """

    registers: int
    spilled_bytes: int
    stack_bytes: int = 0
    serialised: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons, as sentences, why the kernel must not ship; empty if it may.

        Local memory is a fault: no kernel of boltgen needs it. An array lies there if a loop that
        ptxas did not unroll indexes it.
        """
        found = []
        if self.spilled_bytes:
            found.append(f"it spills registers: {self.spilled_bytes} bytes of stores and loads")
        elif self.stack_bytes:
            found.append(f"it keeps {self.stack_bytes} bytes in local memory")
        if self.serialised:
            found.append(f"its wgmma instructions are serialised due to {self.serialised}")
        return tuple(found)


def kernel_usage(log: Path) -> dict[str, KernelUsage]:
    """Return ptxas's report on the kernels in a log, by symbol.

    It is empty if ptxas did not run, as for PTX alone, or if the log does not exist.
    """
    if not log.is_file():
        return {}
    found: dict[str, KernelUsage] = {}
    serialised: dict[str, str] = {}
    symbol, stack_bytes, spilled_bytes = "", 0, 0
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if loss := _SERIALISED.search(line):
            serialised[loss[2].removesuffix(_DEVICE)] = loss[1]
        elif named := _KERNEL.search(line):
            symbol, stack_bytes, spilled_bytes = named[1].removesuffix(_DEVICE), 0, 0
        elif spills := _SPILLS.search(line):
            stack_bytes = int(spills[1])
            spilled_bytes = int(spills[2]) + int(spills[3])
        elif symbol and (used := _REGISTERS.search(line)):
            whole = _STACK.search(line)
            found[symbol] = KernelUsage(
                registers=int(used[1]),
                spilled_bytes=spilled_bytes,
                stack_bytes=max(stack_bytes, int(whole[1]) if whole else 0),
            )
            symbol = ""
    # The log does not say which kernel calls a function, so the reason counts for all kernels.
    of_functions = [reason for name, reason in serialised.items() if name not in found]
    shared = of_functions[0] if of_functions else ""
    return {
        name: replace(used, serialised=serialised.get(name, shared)) for name, used in found.items()
    }


def usage_of(log: Path, symbol: str) -> KernelUsage | None:
    """Return ptxas's report of the unit's kernel `symbol`; None if ptxas did not run.

    Layout transforms are template instances, whose entries have other names: if no entry has the
    symbol, the report has the worst numbers of all entries.
    """
    found = kernel_usage(log)
    used = [found[symbol]] if symbol in found else list(found.values())
    if not used:
        return None
    return KernelUsage(
        registers=max(each.registers for each in used),
        spilled_bytes=max(each.spilled_bytes for each in used),
        stack_bytes=max(each.stack_bytes for each in used),
        serialised=next((each.serialised for each in used if each.serialised), ""),
    )


def usage_lines(log: str) -> str:
    """Return the lines of a log that `kernel_usage` reads; they contain no paths."""
    kept = (line for line in log.splitlines() if line.startswith("ptxas") or _SPILLS.search(line))
    return "".join(f"{line}\n" for line in kept)
