"""The protocol between the client and a worker of a check: one JSON object per line.

client -> worker   Setup                  once
worker -> client   Ready                  once the library is loaded
client -> worker   Job                    then, again and again:
worker -> client   Verdict
"""

from __future__ import annotations

from dataclasses import dataclass

from boltgen.ir.kernel import Launch
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The library to check, the virtual GPU's folder, the architecture, and the checks."""

    library: str
    vgpu: str
    arch: str
    checks: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has loaded the library."""


# Arguments of a launch that are not worth a word where they have this value, and not 1.
_PLAIN = {"raster": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A launch of the kernel `symbol` with random operands, and the workload that it computes.

    The worker does not need the kernel's family. If `is_sliced`, the operands of the epilogue
    differ between the matmuls of a batch.
    """

    symbol: str
    workload: Workload
    launch: Launch
    is_sliced: bool = False

    def __str__(self) -> str:
        known = self.workload.first.problem.sizes
        chosen = (
            f", {name}={value}"
            for name, value in self.launch.sizes.items()
            if name not in known and value != _PLAIN.get(name, 1) and "[" not in name
        )
        more = ", operands for each product" if self.is_sliced else ""
        return f"{self.workload.describe()}{''.join(chosen)}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a launch; `wrong` describes the failure, and is empty if there is none.

    `worst_error` is the largest error of an element as a fraction of its bound, or None if no
    output was compared. `findings` come from the virtual GPU's checks.
    """

    wrong: str
    worst_error: float | None
    findings: tuple[str, ...] = ()
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether this launch shows no reason against shipping the kernel."""
        return not self.wrong and not self.findings and self.worst_error is not None
