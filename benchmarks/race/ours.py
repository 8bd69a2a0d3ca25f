"""boltgen's kernel for a problem: the configuration that `boltgen compile` chooses first."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import boltgen
from benchmarks.race.contestant import CannotRunError, Compiled
from benchmarks.race.machine import Machine
from benchmarks.race.problems import Problem
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.link import link_shared
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.pool import compile_all, objects_or_raise
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import kernel_unit
from boltgen.codegen.nvcc import DeviceCode
from boltgen.errors import CompileError, NoLegalConfigError
from boltgen.families.family import Config
from boltgen.families.registry import kernel_spec, launch
from boltgen.families.source import kernel_symbol, render_kernel
from boltgen.measure.abi import arguments, structs
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from boltgen.tuning.choice.select import ModelCosts, Task, select


@dataclass
class BoltgenEntry:
    """A kernel of boltgen's."""

    workload: Workload
    config: Config
    arch: str

    @property
    def label(self) -> str:
        """Family and configuration."""
        return f"{self.config.family} {self.config}"

    @cached_property
    def _library(self) -> tuple[str, Path]:
        spec = kernel_spec(self.workload, self.config, self.arch)
        settings = settings_from()
        tools = find_toolchain(settings)
        unit = kernel_unit(render_kernel(spec), tools, DeviceCode.PTX)
        try:
            (built,) = objects_or_raise(compile_all([unit], Cache(settings.cache_dir), jobs=1))
        except CompileError as error:
            raise CannotRunError(f"it does not compile: {error}") from error
        folder = Path(tempfile.mkdtemp(prefix="boltgen-race-"))
        return kernel_symbol(spec), link_shared([built.path], folder / "kernel.so", tools)

    def launch(self, machine: Machine, addresses: dict[str, int], output: int) -> None:
        """Call the kernel's C entry."""
        symbol, path = self._library
        asked = launch(self.workload, self.config)
        values = {**asked.sizes, "d": output}
        left = list(addresses.values())
        values["a"] = left.pop(0)
        for index, layer in enumerate(self.workload.layers):
            where = asked.of_layer(index)
            if layer.problem.has_b:
                values[f"{where}b"] = left.pop(0)
            for number, _ in enumerate(layer.loads):
                values[f"{where}operands[{number}].pointer"] = left.pop(0)
        if asked.workspace_bytes:
            values["workspace"] = machine.allocate(asked.workspace_bytes)
            values["workspace_bytes"] = asked.workspace_bytes
        given = arguments(asked.struct, values)
        status = structs()["boltgen_status"]()
        if ctypes.CDLL(str(path))[symbol](ctypes.byref(given), ctypes.byref(status)):
            raise CannotRunError(f"its entry refuses: {status.message.decode()}")

    def compiled(self) -> Sequence[Compiled]:
        """List the PTX in the kernel's library."""
        _, path = self._library
        ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
        return [Compiled(ptx=ptx, ptxas=ptxas) for ptx in embedded_ptx(path.read_bytes())]


class Boltgen:
    """boltgen's choice by its analytical model, without measurements."""

    name = "boltgen"
    version = boltgen.__version__

    def entries(self, problem: Problem, arch: str) -> Sequence[BoltgenEntry]:
        """Return the first choice alone."""
        row = arch_named(arch)
        try:
            (decision,) = select([Task(workload=problem.workload)], row, ModelCosts(row))
        except NoLegalConfigError as error:
            raise CannotRunError(f"no kernel: {error}") from error
        entry = BoltgenEntry(workload=problem.workload, config=decision.config, arch=arch)
        return [entry]
