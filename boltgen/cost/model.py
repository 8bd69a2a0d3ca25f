"""The interface of cost models, which predict the times of configurations, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from boltgen.arch import Arch
from boltgen.cost import learned
from boltgen.errors import BoltgenError
from boltgen.families.family import Config
from boltgen.families.registry import predicted_us
from boltgen.problems.workload import Workload


class CostModel(Protocol):
    """A model that predicts the times of launches."""

    @property
    def name(self) -> str:
        """The name by which a user chooses it."""
        ...

    def rejects(self, arch: Arch) -> str | None:
        """Return why it cannot predict an architecture, or None if it can."""
        ...

    def predict_us(
        self, workload: Workload, configs: Sequence[Config], arch: Arch
    ) -> Sequence[float]:
        """Return the time of each of `configs`, which are legal for `workload`, in microseconds."""
        ...


class Analytical:
    """The analytical model: each family predicts its configurations from hardware figures."""

    name = "analytical"

    def rejects(self, arch: Arch) -> str | None:
        """Return None: the table of architectures has the figures for each row."""
        del arch
        return None

    def predict_us(
        self, workload: Workload, configs: Sequence[Config], arch: Arch
    ) -> Sequence[float]:
        """Return the families' predictions, in microseconds."""
        return predicted_us(workload, configs, arch)


ANALYTICAL = Analytical()
COST_MODELS: dict[str, CostModel] = {ANALYTICAL.name: ANALYTICAL}
# Trained models that come with boltgen, by name.
TRAINED: dict[str, Path] = {
    path.stem: path
    for path in sorted((Path(__file__).parent / "models").glob(f"*{learned.SUFFIX}"))
}


def serving(model: CostModel, arch: Arch, warn: Callable[[str], None]) -> CostModel:
    """Return `model`, or the analytical model with a warning if `model` rejects `arch`."""
    reason = model.rejects(arch)
    if reason is None:
        return model
    warn(f"{reason}; the analytical model serves")
    return ANALYTICAL


def cost_model_named(name: str) -> CostModel:
    """Return the cost model called `name`, or read the trained model in the file `name`.

    Raises:
        BoltgenError: no model has the name (the message lists all names), or the file has no model.
    """
    if name.endswith(learned.SUFFIX):
        return learned.load(Path(name))
    if name in TRAINED:
        return learned.load(TRAINED[name])
    if name not in COST_MODELS:
        raise BoltgenError(
            f"unknown cost model {name!r}; there are {', '.join((*COST_MODELS, *TRAINED))}, and "
            f"the files FILE{learned.SUFFIX} that `boltgen db train` writes"
        )
    return COST_MODELS[name]
