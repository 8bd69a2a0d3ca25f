"""Measure the saving of shared headers: seconds of nvcc for a kernel in a library, and for one
alone.

Two figures: processor seconds of all compilers, which other work on the machine hardly disturbs,
and wall seconds with two compilers at once. The library is a sample of sm_80's: a unit each of
products with a column-major and a row-major B, and of convolutions. The sweep is why a unit has
`KERNELS_PER_UNIT` kernels: beyond it little is saved, and a unit takes longer.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.record import summary, write
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import KERNELS_PER_UNIT, chunks, unit_of
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import TranslationUnit
from boltgen.families.cutlass2.levels import library_specs
from boltgen.families.family import Level
from boltgen.ir.kernel import KernelSpec
from boltgen.settings import settings_from

ALIGNMENTS = (8,)
JOBS = 2
SIZES = (1, 2, 4, 8, 16)


def compile_seconds(units: Sequence[TranslationUnit], jobs: int) -> tuple[float, float]:
    """Processor and wall seconds of compiling `units` anew."""
    with tempfile.TemporaryDirectory() as name:
        cache = Cache(Path(name) / "cache")
        before, started = _children_seconds(), perf_counter()
        objects_or_raise(compile_all(units, cache, jobs=jobs))
        return _children_seconds() - before, perf_counter() - started


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", type=int, default=3, help="kernels that are compiled alone")
    options = parser.parse_args()
    tools = find_toolchain(settings_from())
    by_kind = library_specs(arch_named("sm_80"), Level.STANDARD, ALIGNMENTS)
    groups = [group for kind in by_kind.values() for group in kind]
    quick = groups[::2]  # the first level of each family and layout
    units = [chunks(group, KERNELS_PER_UNIT)[-1] for group in quick]
    kernels = sum(map(len, units))

    alone = [group[len(group) // 2] for group in quick][: options.alone]
    compile_seconds([unit_of(alone[:1], tools)], 1)  # nvcc's and CUTLASS's files into memory
    singles = [compile_seconds([unit_of([spec], tools)], 1) for spec in alone]
    cpu, wall = compile_seconds([unit_of(part, tools) for part in units], JOBS)
    sweep = {size: _sweep(groups, size, tools) for size in SIZES}
    alone_cpu, alone_wall = zip(*singles, strict=True)
    write(
        "library",
        {
            "arch": "sm_80",
            "kernels_per_unit": KERNELS_PER_UNIT,
            "kernels_in_sample": kernels,
            "jobs": JOBS,
            "alone_cpu_seconds": summary(alone_cpu),
            "alone_wall_seconds": summary(alone_wall),
            "library_cpu_seconds_per_kernel": cpu / kernels,
            "library_wall_seconds_per_kernel": wall / kernels,
            "ratio_cpu": cpu / kernels / statistics.median(alone_cpu),
            "ratio_wall": wall / kernels / statistics.median(alone_wall),
            "by_kernels_per_unit": sweep,
        },
        target="0.5x of one kernel alone",
    )


def _sweep(groups: Sequence[Sequence[KernelSpec]], size: int, tools: Toolchain) -> dict[str, float]:
    """One unit of `size` kernels, spread over the standard level of products."""
    pool = [spec for group in groups[:2] for spec in group]
    picked = pool[:: max(1, len(pool) // size)][:size]
    cpu, wall = compile_seconds([unit_of(picked, tools)], 1)
    return {"cpu_seconds_per_kernel": cpu / size, "unit_wall_seconds": wall}


if __name__ == "__main__":
    main()
