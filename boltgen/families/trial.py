"""A trial: a launch of a kernel, to be compiled, timed or checked."""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.families.family import Config
from boltgen.families.registry import kernel_spec
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A launch to be timed: `workload` in `config`, which includes the launch arguments."""

    workload: Workload
    config: Config

    def spec(self, arch: str) -> KernelSpec:
        """Return the launched kernel, for `arch` ("sm_80")."""
        return kernel_spec(self.workload, self.config, arch)
