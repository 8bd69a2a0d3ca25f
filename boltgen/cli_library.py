"""The commands `boltgen library ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.library import StoredUnit, build_library, stored_units, toolchain_text
from boltgen.build.library_archive import export_library, import_library
from boltgen.build.progress import reporter_for
from boltgen.build.toolchain import find_toolchain
from boltgen.cli_console import Debug, Jobs, err, errors_for_people, out
from boltgen.errors import LibraryError
from boltgen.settings import settings_from
from boltgen.space.kernel import Family
from boltgen.space.library import ALIGNMENTS, LIBRARY_FAMILIES, Level, library_specs

library_app = typer.Typer(
    help="Kernels compiled once, for tuning to choose from.", no_args_is_help=True
)


def parse_families(text: str) -> list[Family]:
    """`gemm,conv2d` as families.

    Raises:
        typer.BadParameter: one is not known.
    """
    known = {family.value: family for family in LIBRARY_FAMILIES}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise typer.BadParameter(f"--ops {text!r}: give some of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def parse_alignments(text: str) -> list[int]:
    """`8,4` as numbers of elements.

    Raises:
        typer.BadParameter: one is none that a kernel can have.
    """
    known = {"8": 8, "4": 4, "2": 2, "1": 1}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not known.keys() >= set(names):
        raise typer.BadParameter(f"--alignments {text!r}: give some of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


@library_app.command("build")
def build_command(  # noqa: PLR0917 (typer's options are arguments)
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_80",
    ops: Annotated[str, typer.Option(help="Families of kernels, with commas between.")] = (
        "gemm,conv2d"
    ),
    level: Annotated[
        Level, typer.Option(help="About 12 configurations of each, about 40, or all.")
    ] = Level.STANDARD,
    alignments: Annotated[
        str, typer.Option(help="Elements per vector access, with commas between: 8, 4, 2, 1.")
    ] = ",".join(map(str, ALIGNMENTS)),
    jobs: Jobs = None,
    debug: Debug = False,
) -> None:
    """Compile kernels for `boltgen tune`, which then need not be compiled while a GPU waits.

    A build that was interrupted or killed goes on where it was; a larger level adds to a smaller.

    Examples:

        boltgen library build --arch sm_80

        boltgen library build --arch sm_86 --ops gemm --level full --jobs 16
    """
    families, vectors = parse_families(ops), parse_alignments(alignments)
    with errors_for_people(debug, interrupted="what was compiled is kept; build again to go on"):
        settings = settings_from()
        groups = library_specs(arch_named(arch), families, level, vectors)
        done = build_library(
            groups,
            find_toolchain(settings),
            Cache(settings.cache_dir),
            jobs=jobs or settings.jobs,
            reporter=reporter_for(err),
        )
        for failed in done.failures:
            err.print(Text(failed.message), soft_wrap=True)
        count = sum(map(len, groups)) - len(done.failures)
        out.print(
            f"{count} kernels for {arch}: {done.made} units compiled, {done.found} were there"
        )
        if done.failures:
            raise LibraryError(f"{len(done.failures)} kernels did not compile; see above")


@library_app.command("list")
def list_command(debug: Debug = False) -> None:
    """Show which kernels there are, by architecture and what they were made with."""
    with errors_for_people(debug):
        settings = settings_from()
        units = stored_units(Cache(settings.cache_dir))
        tools = find_toolchain(settings)
    table = Table("arch", "family", "kernels", "spill", "units", "MB", "made with", "")
    ours = {family.value: toolchain_text(tools, [family]) for family in LIBRARY_FAMILIES}
    groups: dict[tuple[str, str, str], list[StoredUnit]] = {}
    for unit in units:
        families = ", ".join(unit.about.families)
        groups.setdefault((unit.about.arch, families, unit.about.toolchain), []).append(unit)
    for (arch, families, toolchain), members in sorted(groups.items()):
        table.add_row(
            arch,
            families,
            str(len({kernel.key for unit in members for kernel in unit.about.kernels})),
            str(sum(used.spilled_bytes > 0 for unit in members for used in unit.usage.values())),
            str(len(members)),
            f"{sum(unit.size_bytes for unit in members) / 1e6:.1f}",
            Text(toolchain),
            "in use" if toolchain == ours.get(families) else "of another toolchain: kept, not used",
        )
    out.print(table)


@library_app.command("export")
def export_command(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")],
    arch: Annotated[str | None, typer.Option(help="Only kernels of this architecture.")] = None,
    debug: Debug = False,
) -> None:
    """Write the kernels to one file, for another machine.

    Example:

        boltgen library export sm80.boltgen-library --arch sm_80
    """
    with errors_for_people(debug):
        units = [
            unit
            for unit in stored_units(Cache(settings_from().cache_dir))
            if arch is None or unit.about.arch == arch
        ]
        export_library(units, archive)
        size = archive.stat().st_size
    kernels = sum(len(unit.about.kernels) for unit in units)
    out.print(Text(f"{kernels} kernels in {archive} ({size / 1e6:.1f} MB)"), soft_wrap=True)


@library_app.command("import")
def import_command(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote.")],
    debug: Debug = False,
) -> None:
    """Take over the kernels in a file that another machine wrote.

    Nothing in it is run now; but tuning will run its kernels: import what you trust. Kernels of
    another CUTLASS, nvcc or boltgen are kept apart and not used.

    Example:

        boltgen library import sm80.boltgen-library
    """
    with errors_for_people(debug):
        done = import_library(archive, Cache(settings_from().cache_dir))
    out.print(f"{len(done.added)} units are new, {len(done.present)} were there")
