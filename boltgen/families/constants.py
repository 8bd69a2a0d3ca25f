"""The cost model's constants that no document states, with their meanings and origins.

Their values are in `constants.json` beside this module, written by `benchmarks.fit_cost_model`: one
value for all architectures, and further values for measured ones. Figures of the hardware are in
`boltgen.arch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

from boltgen.arch import Arch
from boltgen.errors import RecordError
from boltgen.intake.json_text import read_json

FORMAT = "boltgen-model-constants-2"
PATH = Path(__file__).with_name("constants.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant: its value in `unit`, the bounds of a fit, and its meaning.

    `origin` is "source: ..." or "fitted: ..." or "estimate, not yet fitted".
    """

    value: float
    unit: str
    low: float
    high: float
    meaning: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConstants:
    """The constants' values by name; `described` has their units, bounds and origins."""

    launch_us: float
    dram_fraction: float
    l2_kept_fraction: float
    vector_clocks: float
    half_issue_warps: float
    step_clocks: float
    exposed_fraction: float
    optimized_conv_factor: float
    analytic_conv_factor: float
    special_instructions: float
    handover_us: float
    drift_per_step: float
    pipeline_us: float
    sustained_fraction: float
    tma_factor: float
    attention_step_clocks: float
    chain_fraction: float
    unhidden_fraction: float

    def copy_us(self, bytes_moved: float, arch: Arch) -> float:
        """Return the time to move bytes at the DRAM bandwidth of a copy, in microseconds."""
        return bytes_moved / (arch.dram_gb_per_s * 1e3 * self.dram_fraction)


NAMES = tuple(field.name for field in fields(ModelConstants))


def described(arch: str = "", path: Path = PATH) -> dict[str, Constant]:
    """Return every constant, in the order of `ModelConstants`, with the values for `arch` if given.

    Raises:
        RecordError: the file cannot be read, a constant is missing or unknown, or a value is out of
            its bounds.
    """
    try:
        form = read_json(path)
        if form["format"] != FORMAT:
            raise RecordError(f"{path}: format {form['format']!r}, expected {FORMAT!r}")
        found = {name: Constant(**constant) for name, constant in form["constants"].items()}
        own = {
            name: replace(found[name], value=other["value"], origin=other["origin"])
            for name, other in form["arches"].get(arch, {}).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} has no model constants: {error}") from error
    if found.keys() != set(NAMES):
        wrong = sorted(found.keys() ^ set(NAMES))
        raise RecordError(f"{path}: missing or unknown constants: {', '.join(wrong)}")
    for name, constant in (found | own).items():
        if not constant.low <= constant.value <= constant.high:
            raise RecordError(
                f"{path}: {name} = {constant.value} is not in {constant.low} to {constant.high}"
            )
    return {name: own.get(name, found[name]) for name in NAMES}


def values_of(constants: Mapping[str, Constant]) -> ModelConstants:
    """Return only the values, as the model takes them."""
    return ModelConstants(**{name: constants[name].value for name in NAMES})


@lru_cache(maxsize=32)
def _of_arch(arch: str) -> ModelConstants:
    return values_of(described(arch))


def shared_constants() -> ModelConstants:
    """Return the values for architectures that were not measured.

    Raises:
        RecordError: the installation is damaged.
    """
    return _of_arch("")


def model_constants(arch: Arch) -> ModelConstants:
    """Return the values that boltgen is shipped with for `arch`.

    Raises:
        RecordError: the installation is damaged.
    """
    return _of_arch(arch.name)
