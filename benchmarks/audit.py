"""Audit the machine code of the kernels of the twelve known models, for sm_80 and sm_90a.

    python -m benchmarks.audit [--compile N] [--arch ARCH ...] [MODEL ...]

ptxas compiles the PTX of each kernel that is in the cache, which takes it a tenth of a second, and
nvdisasm (`pip install '.[bench]'`) reads the result. So kernels that were compiled to PTX alone are
audited too. Kernels that no cache has are named, and at most N of them are compiled first. Each
model is recorded before the next one starts; models that are not named keep their record.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.known_models import FOUND, LIBRARY, source_of
from benchmarks.record import earlier, keep
from benchmarks.sass import SassFacts, sass_facts, together
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
_NAME = "audit"
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
    """Reads compiled kernels with the tools of `tools` and `nvdisasm`."""

    tools: Toolchain
    cache: Cache
    nvdisasm: Path
    may_compile: int

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
            (folder / "k.log").write_text(_said(command, folder))
            usage = usage_of(folder / "k.log", kernel.symbol)
            text = _said([self.nvdisasm, "-c", "k.cubin"], folder)
        if usage is None:
            raise SystemExit(f"ptxas reports nothing of {kernel.symbol}")
        sass = together(sass_facts(text).values())
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


def _said(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def plan_of(name: str, arch: str) -> Plan:
    """Plan the kernels of a model."""
    source, options = source_of(name)
    model = import_model(source, options)
    partition(model, arch, options)
    return plan_regions(model.regions, arch)


@dataclass(slots=True)
class Record:
    """The audited kernels of each model on each architecture; `kernels` has a row for each."""

    kernels: dict[str, dict[str, Any]]
    models: dict[str, dict[str, list[str]]]

    @classmethod
    def earlier(cls) -> Record:
        """Return the record of earlier runs."""
        found = earlier(_NAME)
        return cls(kernels=found.get("kernels", {}), models=found.get("models", {}))

    def add(self, name: str, arch: str, plan: Plan, auditor: Auditor) -> None:
        """Audit a model's kernels in place of its earlier ones."""
        trials = plan.trials
        symbols = []
        for kernel in plan.kernels:
            symbols.append(kernel.symbol)
            # A symbol ends with a hash of its source, so that its machine code is the same.
            if kernel.symbol not in self.kernels:
                found = auditor.audit(kernel, trials[kernel.symbol][0])
                if found is not None:
                    self.kernels[kernel.symbol] = found.form
        self.models.setdefault(name, {})[arch] = sorted(set(symbols))

    @property
    def used(self) -> list[str]:
        """The symbols of all models' kernels."""
        return sorted(
            {each for of in self.models.values() for some in of.values() for each in some}
        )

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The audited kernels of the models."""
        return {each: self.kernels[each] for each in self.used if each in self.kernels}

    @property
    def faulty(self) -> list[str]:
        """The kernels that must not ship."""
        return [symbol for symbol, row in self.rows.items() if row["faults"]]

    @property
    def figures(self) -> dict[str, Any]:
        """The record's figures: kernels that no model has any more are left out."""
        rows = self.rows
        return {
            "summary": summary(rows),
            "faulty": self.faulty,
            "not_compiled": [each for each in self.used if each not in rows],
            "models": self.models,
            "kernels": rows,
        }


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Summarise the kernels of each family on each architecture.

    `registers_over_estimate` is the largest ratio of ptxas's registers to the estimate, and the
    shares are medians over the kernels that have a main loop or loads.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows.values():
        groups.setdefault(f"{row['family']} {row['arch']}", []).append(row)
    return {name: _summary(group) for name, group in sorted(groups.items())}


def _summary(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    shares = [row["matrix_share_of_loop"] for row in group if row["matrix_share_of_loop"]]
    wide = [row["wide_loads"] / row["loads"] for row in group if row["loads"]]
    return {
        "kernels": len(group),
        "faulty": sum(bool(row["faults"]) for row in group),
        "most_registers": max(row["registers"] for row in group),
        "registers_over_estimate": round(
            max(row["registers"] / row["estimated_registers"] for row in group), 2
        ),
        "matrix_share_of_loop": round(median(shares), 3) if shares else None,
        "wide_share_of_loads": round(median(wide), 2) if wide else None,
    }


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
    record = Record.earlier()
    for name in given.models:
        for arch in given.arch:
            record.add(name, arch, plan_of(name, arch), auditor)
            keep(_NAME, record.figures, _TARGET)
    print(table(record.rows))
    return 1 if record.faulty else 0


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
