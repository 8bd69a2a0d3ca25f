"""Tables for people, from a compiled model's metadata."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from boltgen.runtime.metadata import Metadata


def operators(metadata: Metadata) -> Table:
    """Each operator, where it runs, and with which kernel or why not in one."""
    regions = {region.symbol: region for region in metadata.regions}
    table = Table("operator", "shape", "runs in", "kernel and configuration, or why TVM")
    for placed in metadata.placements:
        region = regions.get(placed.region or "")
        where = "boltgen" if region else "TVM"
        detail = f"{region.kernel}\n{region.why}" if region else placed.reason
        shape = "x".join(map(str, placed.shape))
        table.add_row(Text(placed.operator), shape, where, Text(detail, overflow="fold"))
    return table


def kernels(metadata: Metadata) -> Table:
    """Each kernel, its configuration, and how many regions use it."""
    table = Table("kernel", "configuration", "regions")
    for kernel in metadata.kernels:
        users = sum(region.kernel == kernel.symbol for region in metadata.regions)
        table.add_row(Text(kernel.symbol, overflow="fold"), kernel.config, str(users))
    return table


def phases(metadata: Metadata) -> Table:
    """The time of each phase of the compilation."""
    table = Table("phase", "seconds")
    for phase in metadata.phases:
        table.add_row(phase.name, f"{phase.seconds:.2f}")
    return table
