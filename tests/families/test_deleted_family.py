"""A family that is deleted leaves the others working: they share parts that are of no family."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import boltgen
from boltgen import families
from boltgen.families.registry import FAMILIES
from tests.families.test_registry import SM80, SM90A, WORKLOADS

_PACKAGE = families.__name__
_ON_SM90A = ("cutlass3", "b2b_sm90", "attention_sm90")


def forget() -> dict[str, ModuleType]:
    """Take all modules of the families out of `sys.modules`."""
    names = [name for name in sys.modules if f"{name}.".startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which `boltgen.families` is imported anew, and which is empty as yet."""
    known = forget()
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(tmp_path)]
    sys.modules[_PACKAGE] = package
    monkeypatch.setattr(boltgen, "families", package)
    yield tmp_path
    forget()
    sys.modules.update(known)


@pytest.mark.parametrize("deleted", sorted(WORKLOADS))
def test_the_other_families_still_import_and_enumerate(deleted: str, folder: Path) -> None:
    for entry in Path(families.__path__[0]).iterdir():
        if entry.name not in (deleted, "__pycache__"):
            (folder / entry.name).symlink_to(entry)
    registry = importlib.import_module(f"{_PACKAGE}.registry")
    left = WORKLOADS.keys() - {deleted}
    assert {family.name for family in registry.FAMILIES} == left
    with pytest.raises(ImportError, match=deleted):
        importlib.import_module(f"{_PACKAGE}.{deleted}")
    for name in left:
        workload, arch = WORKLOADS[name][0], SM90A if name in _ON_SM90A else SM80
        family = registry.FAMILIES.named(name)
        assert family is not FAMILIES.named(name)
        config = next(iter(family.space(workload, arch).listed()))
        assert registry.violations(workload, config, arch) == ()
        assert registry.predict(workload, config, arch).time_us > 0
