"""Arrow: a compiler's log to ptxas's report of each kernel in it, and the audit of these facts.

The log is kept with the compiled kernel in the cache, so a kernel from the cache is audited too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

# Names the kernel, then its stack and spills, then its registers, each on a line of its own.
_KERNEL = re.compile(r"Compiling entry function '(\w+)' for ")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
# With the functions that the kernel calls.
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SERIALISED = re.compile(
    r"wgmma\.mma_async instructions are serialized due to (.+?) (?:in|for) the function '(\w+)'"
)
_DEVICE = "_device"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUsage:
    """The report of ptxas about a kernel.

    `registers` and `stack_bytes` are of a thread. `spilled_bytes` are bytes that it spills to local
    memory and loads from it. `serialised` is the reason for which ptxas serialises the kernel's
    wgmma, or empty.
    """

    registers: int
    spilled_bytes: int
    stack_bytes: int = 0
    serialised: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """Return why the kernel must not ship, each for people; empty if it may.

        No kernel of boltgen needs local memory: an array in it is one that a loop, which ptxas did
        not unroll, indexes.
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
    """Parse ptxas's report of the kernels in a log, by their symbols.

    Empty where ptxas did not run, as for PTX alone, and where the log is not there.
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
    # A function that is no kernel is called by a kernel of the log: which one is not said.
    of_functions = [reason for name, reason in serialised.items() if name not in found]
    shared = of_functions[0] if of_functions else ""
    return {
        name: replace(used, serialised=serialised.get(name, shared)) for name, used in found.items()
    }


def usage_of(log: Path, symbol: str) -> KernelUsage | None:
    """Return ptxas's report of the unit's kernel `symbol`; None if it did not run.

    Layout transforms are instances of templates, whose entries have names of their own: if no entry
    has the symbol, the report is the worst of all entries in the log.
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
    """Return the lines of a log that `kernel_usage` reads, without paths of the machine."""
    kept = (line for line in log.splitlines() if line.startswith("ptxas") or _SPILLS.search(line))
    return "".join(f"{line}\n" for line in kept)
