"""Audit the machine code of the kernels of the twelve known models, for sm_80 and sm_90a.

    python -m benchmarks.audit [--compile N] [--arch ARCH ...] [MODEL ...]

ptxas compiles the PTX of each kernel that is in the cache, which takes it a tenth of a second, and
nvdisasm (`pip install '.[bench]'`) reads the result. So kernels that were compiled to PTX alone are
audited too. Kernels that no cache has are named, and at most N of them are compiled first.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.known_models import FOUND, LIBRARY, source_of
from benchmarks.record import write
from benchmarks.sass import SassFacts, sass_facts
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.nvcc.usage import KernelUsage, usage_of
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import CompileFailure, kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.registry import FAMILIES
from boltgen.families.source import KernelSource
from boltgen.families.trial import Trial
from boltgen.pipeline import Plan, plan_regions
from boltgen.settings import settings_from
from boltgen.tvm_build.model import import_model, partition

ARCHES = ("sm_80", "sm_90a")
_TARGET = "no kernel spills, has local memory or serialised wgmma"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A kernel's facts: by ptxas, by its SASS, and the registers that we estimated."""

    kernel: KernelSource
    usage: KernelUsage
    sass: SassFacts
    estimated: int

    @property
    def form(self) -> dict[str, Any]:
        """Return the kernel's row of the record."""
        share = self.sass.matrix / self.sass.loop if self.sass.loop else None
        return {
            "arch": self.kernel.arch,
            "family": self.kernel.spec.family,
            "registers": self.usage.registers,
            "estimated_registers": self.estimated,
            "matrix_share_of_loop": None if share is None else round(share, 3),
            **asdict(self.sass),
            "faults": list(self.usage.faults),
        }


@dataclass(slots=True)
class Auditor:
    """Reads compiled kernels with the tools of `tools` and `nvdisasm`; counts the time it takes."""

    tools: Toolchain
    cache: Cache
    nvdisasm: Path
    may_compile: int
    seconds: dict[str, float] = field(default_factory=lambda: {"ptxas": 0.0, "nvdisasm": 0.0})

    def audit(self, kernel: KernelSource, trial: Trial) -> Audited | None:
        """Audit a kernel; None if it is not compiled and must not be."""
        compiled = self._compiled(kernel)
        if compiled is None:
            return None
        (ptx,) = embedded_ptx(compiled.read_bytes())
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "k.ptx").write_text(ptx)
            ptxas = self.tools.nvcc.path.with_name("ptxas")
            command: list[str | Path] = [
                ptxas,
                f"-arch={kernel.arch}",
                "-v",
                "k.ptx",
                "-o",
                "k.cubin",
            ]
            (folder / "k.log").write_text(self._said(command, folder, "ptxas"))
            usage = usage_of(folder / "k.log", kernel.symbol)
            text = self._said([self.nvdisasm, "-c", "k.cubin"], folder, "nvdisasm")
        if usage is None:
            raise SystemExit(f"ptxas reports nothing of {kernel.symbol}")
        (sass,) = sass_facts(text).values()
        estimated = FAMILIES.of(trial.config).footprint(trial.workload, trial.config).registers
        return Audited(kernel=kernel, usage=usage, sass=sass, estimated=estimated)

    def _compiled(self, kernel: KernelSource) -> Path | None:
        units = [kernel_unit(kernel, self.tools, code) for code in DeviceCode]
        for unit in units:
            if folder := self.cache.find(unit.kind, unit.key, [unit.output]):
                return folder / unit.output
        if not self.may_compile:
            return None
        self.may_compile -= 1
        outcome = compile_unit(units[-1], self.cache)  # PTX alone is enough
        if isinstance(outcome, CompileFailure):
            raise SystemExit(outcome.message)
        return outcome.path

    def _said(self, command: Sequence[str | Path], folder: Path, tool: str) -> str:
        began = perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        self.seconds[tool] += perf_counter() - began
        return done.stdout + done.stderr


def plans(models: Sequence[str], arches: Sequence[str]) -> Iterator[Plan]:
    """Plan the kernels of models, for each architecture."""
    for name in models:
        for arch in arches:
            source, options = source_of(name)
            model = import_model(source, options)
            partition(model, arch, options)
            yield plan_regions(model.regions, arch)


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the rows for people: a line for each kernel."""
    lines = []
    for symbol, row in rows.items():
        share = row["matrix_share_of_loop"]
        lines.append(
            f"{symbol:64} {row['registers']:3} ({row['estimated_registers']:3}) "
            f"{'    -' if share is None else f'{share:5.0%}'} "
            f"{row['wide_loads']:3}/{row['loads']:3} {'; '.join(row['faults']) or 'sound'}"
        )
    head = f"{'kernel':64} registers (estimated), matrix share of main loop, 16-byte loads, audit"
    return "\n".join([head, *lines])


def main() -> int:
    """Audit, print the table and record it; the status is 1 if a kernel must not ship."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*FOUND, *LIBRARY], metavar="MODEL")
    parser.add_argument("--arch", nargs="+", default=ARCHES, help="default: sm_80 sm_90a")
    parser.add_argument("--compile", type=int, default=0, help="most kernels to compile")
    given = parser.parse_args()
    settings = settings_from()
    auditor = Auditor(
        tools=find_toolchain(settings),
        cache=Cache(settings.cache_dir),
        nvdisasm=find_nvdisasm(),
        may_compile=given.compile,
    )
    rows: dict[str, dict[str, Any]] = {}
    missing: set[str] = set()
    for plan in plans(given.models, given.arch):
        trials = plan.trials
        for kernel in plan.kernels:
            if kernel.symbol in rows:
                continue
            found = auditor.audit(kernel, trials[kernel.symbol][0])
            if found is None:
                missing.add(kernel.symbol)
            else:
                rows[kernel.symbol] = found.form
    print(table(rows))
    faulty = [symbol for symbol, row in rows.items() if row["faults"]]
    each = {tool: total / max(len(rows), 1) for tool, total in auditor.seconds.items()}
    figures = {
        "kernels": dict(sorted(rows.items())),
        "faulty": faulty,
        "not_compiled": sorted(missing),
        "seconds_of_a_kernel": each,
    }
    write("audit", figures, _TARGET)
    return 1 if faulty else 0


def find_nvdisasm() -> Path:
    """Return the program of the package nvidia-cuda-nvdisasm.

    Raises:
        SystemExit: the package is not installed.
    """
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if found := next(Path(folder).glob("*/bin/nvdisasm"), None):
            return found
    raise SystemExit("nvdisasm is missing: pip install '.[bench]'")


if __name__ == "__main__":
    raise SystemExit(main())
