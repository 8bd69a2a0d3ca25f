"""The protocol of a check's worker and its client: one JSON object per line.

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
    """The library to check, the virtual GPU's folder, the device to imitate, and the checks."""

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
    """A launch of the kernel `symbol` with random operands, and its workload.

    A worker need not know the kernel's family. `is_sliced`: the operands of the epilogue differ
    between the products of a batch.
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
    """The result of a launch: `wrong` says what is wrong with it, and is empty if nothing is.

    `worst_error` is the largest error of an element relative to its bound, None without an output
    to compare; `findings` come from the virtual GPU's checks.
    """

    wrong: str
    worst_error: float | None
    findings: tuple[str, ...] = ()
    seconds: float

    @property
    def passed(self) -> bool:
        """Return whether the kernel may ship, as far as this launch shows."""
        return not self.wrong and not self.findings and self.worst_error is not None
