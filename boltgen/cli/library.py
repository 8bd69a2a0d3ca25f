"""The commands `boltgen library ...`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from boltgen.build.cache import Cache
from boltgen.build.library.archive import export_library, import_library
from boltgen.build.library.kernels import StoredUnit, build_library, is_current, stored_units
from boltgen.build.library.shared import Export, export_shared
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import adapter_unit, fatbin_unit, object_unit
from boltgen.cli.terminal.console import err, errors_for_people, out, reporter
from boltgen.cli.terminal.flags import DEFAULT_ARCH, Arch, Debug, Jobs
from boltgen.device.asked_arch import asked_arch
from boltgen.device.gpu_names import require_arch
from boltgen.errors import CompileError, LibraryError
from boltgen.families.family import Level
from boltgen.families.registry import FAMILIES
from boltgen.intake.files import read_regular
from boltgen.intake.json_text import MOST_BYTES
from boltgen.intake.numerals import counted
from boltgen.ir.kernel import KernelSpec
from boltgen.running.artifact import SOURCES, Artifact
from boltgen.settings import settings_from

library_app = typer.Typer(
    help="Kernels compiled once, for tuning to choose from.", no_args_is_help=True
)


def parse_kinds(text: str, known: Collection[str]) -> list[str]:
    """Parse `gemm,conv2d` to kinds of kernels.

    Raises:
        LibraryError: a kind is unknown.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not set(names) <= set(known):
        raise LibraryError(f"--ops {text!r}: give some of {', '.join(known)}")
    return list(dict.fromkeys(names))


def parse_alignments(text: str) -> list[int]:
    """Parse `8,4` to numbers of elements.

    Raises:
        LibraryError: no kernel can have one of the alignments.
    """
    known = {"8": 8, "4": 4, "2": 2, "1": 1}
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not known.keys() >= set(names):
        raise LibraryError(f"--alignments {text!r}: give some of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


@library_app.command("build")
def build_command(  # noqa: PLR0917 (typer's options are arguments)
    arch: Arch = DEFAULT_ARCH,
    ops: Annotated[
        str, typer.Option(metavar="OPS", help="Kinds of kernels, with commas between.")
    ] = "gemm,conv2d",
    level: Annotated[
        Level,
        typer.Option(
            metavar="LEVEL",
            help="quick, standard or full: about 12 configurations of each, about 40, or all.",
        ),
    ] = Level.STANDARD,
    alignments: Annotated[
        str, typer.Option(metavar="N,...", help="Elements per vector access: 8, 4, 2, 1.")
    ] = "8",
    jobs: Jobs = None,
    debug: Debug = False,
) -> None:
    """Compile kernels for `boltgen tune` to choose from.

    Tuning then need not compile them while a GPU waits.

    After an interruption the same command continues. A larger level adds to a smaller one.

    \b
    Examples:
      boltgen library build --arch sm_80
      boltgen library build --arch sm_86 --ops gemm --level full --jobs 16
    """
    with errors_for_people(debug, interrupted="what was compiled is kept; build again to go on"):
        vectors = parse_alignments(alignments)
        settings = settings_from()
        row = asked_arch(arch)
        by_kind: dict[str, list[tuple[KernelSpec, ...]]] = {}
        for family in FAMILIES:
            by_kind |= family.library(row, level, vectors)
        groups = [group for kind in parse_kinds(ops, by_kind) for group in by_kind[kind]]
        done = build_library(
            groups,
            find_toolchain(settings),
            Cache(settings.cache_dir),
            jobs=jobs or settings.jobs,
            reporter=reporter(),
        )
        for failed in done.failures:
            err.print(Text(failed.message), soft_wrap=True)
        count = sum(map(len, groups)) - len(done.failures)
        out.print(
            f"{counted(count, 'kernel')} for {row.name}: {counted(done.made, 'unit')} compiled, "
            f"{done.found} were there"
        )
        if done.failures:
            raise CompileError(
                f"{counted(len(done.failures), 'kernel')} did not compile; see above"
            )


@library_app.command("list")
def list_command(debug: Debug = False) -> None:
    """Show the kernels by architecture and toolchain.

    \b
    Example:
      boltgen library list
    """
    with errors_for_people(debug):
        settings = settings_from()
        units = stored_units(Cache(settings.cache_dir))
        tools = find_toolchain(settings)
    table = Table("arch", "family", "kernels", "faulty", "units", "MB", "made with", "")
    groups: dict[tuple[str, str, str], list[StoredUnit]] = {}
    for unit in units:
        families = ", ".join(unit.about.families)
        groups.setdefault((unit.about.arch, families, unit.about.toolchain), []).append(unit)
    for (arch, families, toolchain), members in sorted(groups.items()):
        table.add_row(
            arch,
            families,
            str(len({kernel.key for unit in members for kernel in unit.about.kernels})),
            str(sum(bool(used.faults) for unit in members for used in unit.usage.values())),
            str(len(members)),
            f"{sum(unit.size_bytes for unit in members) / 1e6:.1f}",
            Text(toolchain),
            "in use" if is_current(members[0], tools) else "of another toolchain: kept, not used",
        )
    out.print(table)


@library_app.command("export")
def export_command(
    target: Annotated[
        Path, typer.Argument(metavar="PATH", help="The file to write; with --artifact, the folder.")
    ],
    arch: Annotated[
        str | None, typer.Option(metavar="GPU", help="Only kernels of this architecture.")
    ] = None,
    artifacts: Annotated[
        list[Path] | None,
        typer.Option(
            "--artifact",
            metavar="DIR",
            help="A compiled model whose objects to add. May be given several times.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write kernels to a file or a folder for other machines.

    By default, the kernels that `build` made are written to one file, for `import`. With
    --artifact, the objects of compiled models are added to a folder, from which `boltgen compile
    --library` takes them.

    \b
    Examples:
      boltgen library export sm80.boltgen-library --arch sm_80
      boltgen library export /mnt/kernels --artifact resnet50 --artifact bert
    """
    with errors_for_people(debug):
        settings = settings_from()
        cache = Cache(settings.cache_dir)
        if artifacts:
            if arch is not None:
                raise LibraryError("--arch and --artifact: a compiled model has one architecture")
            tools = find_toolchain(settings)
            done = [_export_artifact(target, each, tools, cache) for each in artifacts]
            added = sum(each.added for each in done)
            present = sum(each.present for each in done)
            said = f"{target}: {counted(added, 'object')} added, {present} were there"
        else:
            wanted = None if arch is None else require_arch(arch)
            units = [
                unit for unit in stored_units(cache) if wanted is None or unit.about.arch == wanted
            ]
            export_library(units, target)
            kernels = counted(sum(len(unit.about.kernels) for unit in units), "kernel")
            said = f"{kernels} in {target} ({target.stat().st_size / 1e6:.1f} MB)"
    out.print(Text(said), soft_wrap=True)


def _source(path: Path) -> str:
    return read_regular(path, MOST_BYTES).decode()


def _export_artifact(target: Path, folder: Path, tools: Toolchain, cache: Cache) -> Export:
    """Add the objects that a compiled model was linked of to the library `target`."""
    metadata = Artifact.load(folder).metadata
    try:
        units = [
            object_unit(each.symbol, _source(folder / each.source), metadata.arch, tools)
            for each in metadata.kernels
        ]
        units += [
            fatbin_unit("tvm_kernels", _source(path), metadata.arch, tools)
            for path in sorted((folder / SOURCES).glob("tvm_kernels*.cu"))
        ]
        if metadata.frontend == "relax":  # Relay's regions have an adapter each
            adapter = _source(folder / SOURCES / "regions.cc")
            units.append(adapter_unit("regions", adapter, tools))
    except OSError as error:
        raise LibraryError(
            f"the sources of {folder} cannot be read ({error}): compile the model again"
        ) from error
    return export_shared(target, units, metadata.arch, tools, cache)


@library_app.command("import")
def import_command(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `export`.")],
    debug: Debug = False,
) -> None:
    """Import the kernels in a file from another machine.

    Nothing in the file is run now, but tuning runs its kernels: import only files that you trust.
    Kernels of another CUTLASS, nvcc or boltgen are stored but not used.

    \b
    Example:
      boltgen library import sm80.boltgen-library
    """
    with errors_for_people(debug):
        done = import_library(archive, Cache(settings_from().cache_dir))
    new = counted(len(done.added), "unit is new", "units are new")
    out.print(f"{new}, {len(done.present)} were there")
