"""One found model through a frontend, in a process of its own: the caller reads what it prints.

    python -m benchmarks.found.trial MODEL.onnx FRONTEND INPUTS.npz OUTPUTS.npz

The frontend runs whole, for target llvm; each kernel is played by the numpy oracle. So no GPU
and no nvcc is needed, and what is rounded is rounded where the kernels round. Each line that begins
with `RESULT` has what is known so far as JSON, and the last one counts: when the process dies, the
line before it says how far it came.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.found.share import share_of_flops
from boltgen.build.progress import Silent
from boltgen.errors import BoltgenError
from boltgen.pipeline import Plan, plan_regions
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.settings import settings_from

ARCH = "sm_80"
MARK = "RESULT "


class Account:
    """What is known of the trial; it prints itself after every step."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._started = perf_counter()

    def add(self, step: str, **values: Any) -> None:
        """Note the seconds of `step`, which ends now, and `values`."""
        now = perf_counter()
        self.values |= {"reached": step, f"{step}_s": round(now - self._started, 2), **values}
        self._started = now
        print(MARK + json.dumps(self.values), flush=True)


def main(path: str, frontend: str, inputs: str, outputs: str) -> int:
    """Try the model; the status is 1 where boltgen refuses it."""
    arrays = dict(np.load(inputs))
    account = Account()
    try:
        results = _FRONTENDS[frontend](path, arrays, account)
    except BoltgenError as error:
        account.add("refused", refusal=f"{type(error).__name__}: {error}")
        return 1
    np.savez(outputs, **{str(place): array for place, array in enumerate(results)})
    account.add("run")
    return 0


def _relax(path: str, arrays: dict[str, Any], account: Account) -> list[Any]:
    from boltgen.frontend import relax  # noqa: PLC0415
    from tests.frontend.oracle_kernels import Model  # noqa: PLC0415

    account.add("load")
    return _through(relax, Model.of_annotated, path, arrays, account)


def _relay(path: str, arrays: dict[str, Any], account: Account) -> list[Any]:
    provide_cuda_runtime(settings_from(), Silent())
    from boltgen.runtime.relay_model import Model as Steps  # noqa: PLC0415
    from tests.frontend.relay_oracle_kernels import Model  # noqa: PLC0415

    account.add("load")
    return _through(Steps.frontend, Model, path, arrays, account)


_FRONTENDS = {"relax": _relax, "relay": _relay}


def _through(
    frontend: Any, build: Callable[[Any], Any], path: str, arrays: dict[str, Any], account: Account
) -> list[Any]:
    """What the model computes, its kernels played by the oracle."""
    imported = frontend.import_model(
        path, shapes={name: array.shape for name, array in arrays.items()}
    )
    account.add("import")
    annotated = frontend.annotate(imported.module)
    regions = frontend.regions(annotated)
    share, flops, products = share_of_flops(imported.module, regions)
    account.add("partition", share=share, flops=flops, products=products, regions=len(regions))
    left = Counter(
        f"{placed.operator}: {placed.reason}"
        for placed in frontend.placements(annotated)
        if placed.region is None
    )
    plan = plan_regions(regions, ARCH)
    account.add("plan", kernels=len(plan.kernels), launches=_launches(plan), left=dict(left))
    model = build(annotated)
    account.add("build")
    results: list[Any] = model.run(*(arrays[spec.name] for spec in imported.inputs))
    return results


def _launches(plan: Plan) -> int:
    """Launches of boltgen's in an inference; a region in a loop counts once."""
    return len(plan.launches) + sum(len(launch.memory.moves) for launch in plan.launches)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
