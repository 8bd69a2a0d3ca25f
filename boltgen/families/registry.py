"""The registry of kernel families, and functions over all of them.

A package beside this module that has a `FAMILY` is a family. The other packages and modules are
parts that families share.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from boltgen import families
from boltgen.arch import Arch
from boltgen.errors import BoltgenError, NoLegalConfigError
from boltgen.families.constants import ModelConstants
from boltgen.families.family import Config, KernelFamily, Prediction
from boltgen.families.space import Space, Violation
from boltgen.ir.kernel import KernelSpec, Launch
from boltgen.problems.workload import Workload

# Fewer than the rows of a tile that a warp has at once.
_CHECKED_ROWS = 5
# Fewer configurations are predicted faster one by one. A choice.
_MANY = 8


class Registry:
    """The families by name, in the order of registration."""

    def __init__(self, found: Iterable[KernelFamily[Any]]) -> None:
        self._families: dict[str, KernelFamily[Any]] = {}
        for family in found:
            self.register(family)

    def register(self, family: KernelFamily[Any]) -> None:
        """Add a family.

        Raises:
            BoltgenError: the object is no `KernelFamily`, its configurations do not name it, or the
                name is in use.
        """
        if not isinstance(family, KernelFamily):
            raise BoltgenError(
                f"a {type(family).__name__} is no kernel family; register a KernelFamily of "
                "boltgen/families/family.py"
            )
        if not isinstance(getattr(family.config_type, "family", None), str):
            raise BoltgenError(
                f"{family.config_type.__name__} names no kernel family; give the class of "
                "configurations a text `family`"
            )
        if family.name in self._families:
            raise BoltgenError(
                f"there are two kernel families of the name {family.name!r}; rename one"
            )
        self._families[family.name] = family

    def remove(self, name: str) -> None:
        """Remove a family."""
        del self._families[name]

    def __iter__(self) -> Iterator[KernelFamily[Any]]:
        return iter(tuple(self._families.values()))

    def named(self, name: str) -> KernelFamily[Any]:
        """Return the family called `name`.

        Raises:
            BoltgenError: no family has the name; the message lists the known ones.
        """
        if name not in self._families:
            known = ", ".join(self._families)
            raise BoltgenError(f"unknown kernel family {name!r}; the families are {known}")
        return self._families[name]

    def of(self, config: Config) -> KernelFamily[Any]:
        """Return the family of a configuration."""
        return self.named(config.family)

    @property
    def config_types(self) -> tuple[type[Any], ...]:
        """The classes of configurations."""
        return tuple(family.config_type for family in self)


def _found() -> Iterator[KernelFamily[Any]]:
    for module in pkgutil.iter_modules(families.__path__):
        if module.ispkg:
            package = importlib.import_module(f"{families.__name__}.{module.name}")
            if (family := getattr(package, "FAMILY", None)) is not None:
                yield family


FAMILIES = Registry(_found())


def kernel_spec(workload: Workload, config: Config, arch: str) -> KernelSpec:
    """Return the kernel that computes `workload` in `config` on `arch` ("sm_80")."""
    family = FAMILIES.of(config)
    return KernelSpec(
        family=family.name,
        arch=arch,
        traits=family.traits(workload),
        config=family.compiled(config),
    )


def compiled(config: Config) -> Any:
    """Return the compiled part of a configuration; the rest are launch arguments."""
    return FAMILIES.of(config).compiled(config)


def launch(workload: Workload, config: Config) -> Launch:
    """Return the arguments with which the kernel of `config` computes `workload`."""
    return FAMILIES.of(config).launch(workload, config)


def boundaries(workload: Workload, config: Config, arch: Arch) -> tuple[Workload, ...]:
    """Return the small workloads on which the kernel of `workload` in `config` is checked.

    Their slices have few rows, so that a tile, and even a thread's part of it, spans several
    slices.
    """
    found = FAMILIES.of(config).boundaries(workload, config, arch)
    return tuple(dict.fromkeys(each.sliced(_CHECKED_ROWS) for each in found))


def violations(workload: Workload, config: Config, arch: Arch) -> tuple[Violation, ...]:
    """Return why a configuration cannot compute a workload; empty if it can."""
    family = FAMILIES.of(config)
    rejected = family.rejects(workload, arch)
    if rejected is not None:
        return (Violation(name="family", message=rejected, reason=f"the family {family.name}"),)
    return family.violations(workload, config, arch)


def spaces(workload: Workload, arch: Arch) -> tuple[Space[Any], ...]:
    """Return the spaces of the families that have a legal configuration for a workload.

    Raises:
        NoLegalConfigError: none has; the message says why of each family that computes such
            workloads, or of every family if none does.
    """
    found = []
    rejected, failed = [], []
    for family in FAMILIES:
        reason = family.rejects(workload, arch)
        if reason is not None:
            rejected.append(f"{family.name}: {reason}")
        elif (space := family.space(workload, arch)).candidates:
            found.append(space)
        else:
            failed.append(f"{family.name}: {space.explain()}")
    if not found:
        reasons = failed or rejected
        raise NoLegalConfigError(
            f"no legal configuration of any kernel family for {workload.describe()} on "
            f"{arch.name}; {'; '.join(reasons)}"
        )
    return tuple(found)


def candidates(workload: Workload, arch: Arch) -> tuple[Any, ...]:
    """Return the legal configurations of all families worth considering, family by family.

    Raises:
        NoLegalConfigError: there is none; the message gives each family's reason.
    """
    return tuple(config for space in spaces(workload, arch) for config in space.candidates)


def predict(
    workload: Workload, config: Config, arch: Arch, constants: ModelConstants | None = None
) -> Prediction:
    """Return the prediction of the configuration's family for a launch."""
    return FAMILIES.of(config).predict(workload, config, arch, constants)


def predicted_us(
    workload: Workload,
    configs: Sequence[Config],
    arch: Arch,
    constants: ModelConstants | None = None,
) -> list[float]:
    """Return the predicted times of legal configurations by their families, in microseconds."""
    found = [0.0] * len(configs)
    by_family: dict[str, list[int]] = defaultdict(list)
    for number, config in enumerate(configs):
        by_family[config.family].append(number)
    for name, numbers in by_family.items():
        family, own = FAMILIES.named(name), [configs[number] for number in numbers]
        if family.times_us is not None and len(own) >= _MANY:
            times_us = family.times_us(workload, own, arch, constants).tolist()
        else:
            times_us = [family.predict(workload, each, arch, constants).time_us for each in own]
        for number, time_us in zip(numbers, times_us, strict=True):
            found[number] = time_us
    return found


def order(config: Config) -> tuple[str, Any]:
    """Return a key that sorts configurations of several families."""
    return config.family, config
