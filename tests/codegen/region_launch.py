"""Regions with the kernel of a configuration that a test chooses."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.cases.kernels import move_spec
from boltgen.codegen.adapter import Choice, RegionLaunch
from boltgen.codegen.adapter_memory import call_memory
from boltgen.families.family import Config
from boltgen.families.registry import kernel_spec, launch
from boltgen.families.source import kernel_symbol
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.region import Region

ARCH = "sm_80"


def region_launch(region: Region, config: Config) -> RegionLaunch:
    """How the region is executed on sm_80."""
    asked = launch(region.workload, config)
    return RegionLaunch(
        region=region,
        choices=(
            Choice(
                cell=region.workload,
                kernel=kernel_symbol(kernel_spec(region.workload, config, ARCH)),
                launch=asked,
            ),
        ),
        memory=call_memory(
            region, asked.workspace_bytes, lambda each: kernel_symbol(move_spec(each.move, ARCH))
        ),
    )


def kernels_of(launches: Iterable[RegionLaunch], config: Config) -> list[KernelSpec]:
    """All kernels that launches of one configuration name, those of moves too."""
    specs = []
    for each in launches:
        specs.append(kernel_spec(each.region.workload, config, ARCH))
        specs += [move_spec(move.transform.move, ARCH) for move in each.memory.moves]
    return list(dict.fromkeys(specs))
