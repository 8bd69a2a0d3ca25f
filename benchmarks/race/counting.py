"""Turn the counts of the virtual GPU and of ptxas into figures of an entry that can be compared."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.race.contestant import Compiled
from boltgen.arch import Arch
from boltgen.build.nvcc.usage import KernelUsage, kernel_usage

_WARP = 32
_SECTOR_BYTES = 32
# Instructions are given for so many multiply-adds, or elements.
_PER = 1024
# A launch in a stream follows the one before it after this: kLaunchNs of vgpu/core/timing.h.
_LAUNCH_US = 0.9
# Instructions by what they are for. The names are of the virtual GPU's counters.
CLASSES = {
    "mma": ("mma",),
    "addresses": ("integer", "compare", "move", "convert"),
    "arithmetic": ("half", "float", "float_pair", "double"),
    "memory": ("load", "store", "atomic", "async_copy", "matrix_load"),
    "other": ("warp", "barrier", "mbarrier", "control", "other"),
}


def usage_of(modules: Sequence[Compiled], arch: str) -> dict[str, KernelUsage]:
    """Assemble modules for the real target, and return registers and spills by kernel.

    Raises:
        RuntimeError: ptxas fails; the message has its output.
    """
    found: dict[str, KernelUsage] = {}
    for module in modules:
        with tempfile.TemporaryDirectory() as folder:
            source, log = Path(folder) / "kernels.ptx", Path(folder) / "log"
            source.write_text(module.ptx)
            output = str(Path(folder) / "cubin")
            command = [str(module.ptxas), f"-arch={arch}", "-v", str(source), "-o", output]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"ptxas: {done.stderr.strip()[-500:]}")
            log.write_text(done.stdout + done.stderr)
            found |= kernel_usage(log)
    return found


def modelled_us(counters: Sequence[dict[str, Any]]) -> float:
    """Add up the modelled times of launches, and the gaps between them."""
    gaps = _LAUNCH_US * (len(counters) - 1)
    return float(sum(launch["modelled"]["us"] for launch in counters) + gaps)


def figures(
    counters: Sequence[dict[str, Any]],
    usage: dict[str, KernelUsage],
    *,
    work: int,
    least_bytes: int,
    arch: Arch,
) -> dict[str, Any]:
    """Sum up an entry's launches.

    `least_bytes` counts all inputs and the result, each once. Registers, shared memory and
    occupancy are of the launch that takes the most modelled time.
    """

    def total(*path: str) -> int:
        found = 0
        for launch in counters:
            value: Any = launch
            for name in path:
                value = value[name]
            found += value
        return found

    instructions = {
        name: sum(total("instructions", each) for each in members)
        for name, members in CLASSES.items()
    }
    longest = max(counters, key=lambda launch: launch["modelled"]["us"])
    used = usage.get(longest["kernel"].removesuffix("_device"))
    threads = longest["block"][0] * longest["block"][1] * longest["block"][2]
    shared_bytes = longest["static_shared_bytes"] + longest["dynamic_shared_bytes"]
    dram_bytes = total("modelled", "dram_bytes")
    moved = total("global_load", "sectors") + total("global_store", "sectors")
    wavefronts = total("shared", "wavefronts")
    return {
        "modelled_us": round(modelled_us(counters), 3),
        "bound_by": longest["modelled"]["bound_by"],
        "launches": len(counters),
        "grid": longest["grid"],
        "threads": threads,
        "instructions": sum(instructions.values()),
        "per_1024": {name: round(_PER * n / work, 3) for name, n in instructions.items()},
        "load_sectors": total("global_load", "sectors"),
        "store_sectors": total("global_store", "sectors"),
        "tma_bytes": total("tma", "bytes"),
        "sectors_over_least": round(moved * _SECTOR_BYTES / least_bytes, 4),
        "dram_over_least": round(dram_bytes / least_bytes, 4),
        "shared_wavefronts": wavefronts,
        "bank_conflicts": total("shared", "bank_conflicts"),
        "conflict_share": round(total("shared", "bank_conflicts") / max(wavefronts, 1), 4),
        "barriers": total("barriers"),
        "registers": used.registers if used else None,
        "spilled_bytes": used.spilled_bytes if used else None,
        "shared_bytes": shared_bytes,
        "occupancy": occupancy(arch, used.registers, shared_bytes, threads) if used else None,
    }


def occupancy(arch: Arch, registers: int, shared_bytes: int, threads: int) -> float:
    """Return the resident warps of a multiprocessor over the most that it holds.

    Source: CUDA C++ Programming Guide, technical specifications; cuda_occupancy.h.
    """
    warps = -(-threads // _WARP)
    unit = arch.register_allocation_unit
    of_warp = -(-registers * _WARP // unit) * unit
    limits = [
        arch.max_ctas_per_sm,
        arch.max_threads_per_sm // (warps * _WARP),
        arch.registers_per_sm // (of_warp * warps),
        arch.shared_memory_per_sm_bytes // (shared_bytes + arch.reserved_shared_memory_bytes),
    ]
    return round(min(limits) * warps / arch.max_warps_per_sm, 4)
