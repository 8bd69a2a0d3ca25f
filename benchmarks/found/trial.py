"""One found model through a frontend, in a process of its own: the caller reads what it prints.

    python -m benchmarks.found.trial MODEL.onnx FRONTEND HOW INPUTS.npz OUTPUTS.npz

HOW is "oracle" or "compile". With the first, the frontend runs whole, TVM compiles its part for
the CPU, and each kernel is played by the numpy oracle: no GPU and no nvcc is needed, and what is
rounded is rounded where the kernels round. With the second, the model is compiled for sm_80 and run
on the virtual GPU. Each line that begins with `RESULT` has what is known so far as JSON, and the
last one counts: when the process dies, the line before it says how far it came.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.build.progress import Silent
from boltgen.errors import BoltgenError
from boltgen.ir.region import Placement
from boltgen.pipeline import Plan, plan_regions
from boltgen.runtime.coverage import coverage
from boltgen.runtime.device import activate, provide_cuda_runtime
from boltgen.settings import settings_from

ARCH = "sm_80"
MARK = "RESULT "

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class Account:
    """What is known of the trial; it prints itself after every step."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._started = perf_counter()

    def add(self, step: str, **values: Any) -> None:
        """Note the seconds of `step`, which ends now, and `values`."""
        now = perf_counter()
        self.values |= {"reached": step, f"{step}_s": round(now - self._started, 2), **values}
        print(MARK + json.dumps(self.values), flush=True)
        self._started = perf_counter()


def main(path: str, frontend: str, how: str, inputs: str, outputs: str) -> int:
    """Try the model; the status is 1 where boltgen refuses it."""
    arrays = dict(np.load(inputs))
    account = Account()
    try:
        steps, oracle_model = _FRONTENDS[frontend]()
        account.add("load")
        annotated, names = _partitioned(steps, path, arrays, account)
        if how == "compile":
            results = _on_virtual_gpu(path, frontend, arrays, account)
        else:
            model = oracle_model(annotated)
            account.add("build")
            results = model.run(*(arrays[name] for name in names))
    except BoltgenError as error:
        said = f"{type(error).__name__}: {error}".replace(path, Path(path).name)
        account.add("refused", refusal=said)
        return 1
    np.savez(outputs, *results)
    account.add("run")
    return 0


def _relax() -> tuple[Any, Callable[[Any], Any]]:
    """The Relax frontend's steps, and what runs a module that it has annotated."""
    from boltgen.frontend import relax  # noqa: PLC0415
    from tests.frontend.oracle_kernels import Model  # noqa: PLC0415

    return relax, Model.of_annotated


def _relay() -> tuple[Any, Callable[[Any], Any]]:
    """The Relay frontend's steps, and what runs a module that it has annotated."""
    provide_cuda_runtime(settings_from(), Silent())
    from boltgen.runtime.relay_model import Model as Steps  # noqa: PLC0415
    from tests.frontend.relay_oracle_kernels import Model  # noqa: PLC0415

    return Steps.frontend, Model


_FRONTENDS = {"relax": _relax, "relay": _relay}


def _partitioned(steps: Any, path: str, arrays: Arrays, account: Account) -> tuple[Any, list[str]]:
    """The annotated module, and the names of its inputs in their order."""
    imported = steps.import_model(
        path, shapes={name: array.shape for name, array in arrays.items()}
    )
    account.add("import")
    annotated = steps.annotate(imported.module)
    found = coverage(annotated.placements)
    account.add(
        "partition",
        products=sum(placed.flops > 0 for placed in annotated.placements),
        flops=found.total_flops,
        of_flops=found.share,
        of_own_flops=coverage(each for each in annotated.placements if _is_own(each)).share,
        regions=len(annotated.regions),
        verdict=found.verdict(),
    )
    plan = plan_regions(annotated.regions, ARCH)
    left = Counter(
        f"{placed.operator}: {placed.reason}"
        for placed in annotated.placements
        if placed.region is None
    )
    account.add("plan", kernels=len(plan.kernels), launches=_launches(plan), left=dict(left))
    return annotated, [spec.name for spec in imported.inputs]


def _is_own(placed: Placement) -> bool:
    """Whether a product is of a kind that has kernels: grouped and 1D convolutions have none."""
    return not placed.operator.startswith("conv1d") and "groups=" not in placed.reason


def _launches(plan: Plan) -> int:
    """Launches of boltgen's in an inference; a region in a loop counts once."""
    return len(plan.launches) + sum(len(launch.memory.moves) for launch in plan.launches)


def _on_virtual_gpu(
    path: str, frontend: str, arrays: Arrays, account: Account
) -> list[NDArray[Any]]:
    """What the model computes, compiled as `boltgen compile` does it."""
    import boltgen  # noqa: PLC0415

    artifact = boltgen.compile(
        path,
        arch=ARCH,
        shapes={name: array.shape for name, array in arrays.items()},
        frontend=frontend,
        reuse=False,
    )
    account.add("compile", kernels=len(artifact.metadata.kernels))
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    outputs = artifact.run(arrays, device="vgpu")
    account.values["launches"] = len(vgpu.launches())  # TVM's among them
    return list(outputs.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
