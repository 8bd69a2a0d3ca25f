"""One found model through a frontend, in a process of its own: the caller reads what it prints.

    python -m benchmarks.found.trial MODEL.onnx FRONTEND HOW INPUTS.npz OUTPUTS.npz

HOW is "oracle" or "compile". With the first, the frontend runs whole, TVM compiles its part for
the CPU, and each kernel is played by the numpy oracle: no GPU and no nvcc is needed, and what is
rounded is rounded where the kernels round. With the second, the model is compiled for sm_80 and run
on the virtual GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.trials.account import Account
from boltgen.build.progress import Silent
from boltgen.device.choose import activate, provide_cuda_runtime
from boltgen.errors import BoltgenError
from boltgen.settings import settings_from

ARCH = "sm_80"

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


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
    from benchmarks.harness.oracle_kernels import Model  # noqa: PLC0415
    from boltgen.frontend import relax  # noqa: PLC0415

    return relax, Model.of_annotated


def _relay() -> tuple[Any, Callable[[Any], Any]]:
    """The Relay frontend's steps, and what runs a module that it has annotated."""
    provide_cuda_runtime(settings_from(), Silent())
    from benchmarks.harness.relay_oracle_kernels import Model  # noqa: PLC0415
    from boltgen.tvm_build.relay_model import Model as Steps  # noqa: PLC0415

    return Steps.frontend, Model


_FRONTENDS = {"relax": _relax, "relay": _relay}


def _partitioned(steps: Any, path: str, arrays: Arrays, account: Account) -> tuple[Any, list[str]]:
    """The annotated module, and the names of its inputs in their order."""
    imported = steps.import_model(
        path, shapes={name: array.shape for name, array in arrays.items()}
    )
    account.add("import")
    annotated = steps.annotate(imported.module)
    account.add_partition(annotated)
    account.add_plan(annotated, ARCH)
    return annotated, [spec.name for spec in imported.inputs]


def _on_virtual_gpu(
    path: str, frontend: str, arrays: Arrays, account: Account
) -> list[NDArray[Any]]:
    """Return the model's outputs, compiled as `boltgen compile` does it."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    for each in ("path", "frontend", "how", "inputs", "outputs"):
        parser.add_argument(each)
    sys.exit(main(**vars(parser.parse_args())))
