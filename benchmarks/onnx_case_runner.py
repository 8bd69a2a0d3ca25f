"""`python -m benchmarks.onnx_case_runner relax|relay FOLDER`: import and run cases, one per line.

A line of standard output is JSON: label, and `ok`, `wrong` or `refused` with TVM's or boltgen's
first line. It runs in either environment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The cases' own tolerance, as onnx.backend.test has it; differences that are small against a result
# are noise.
RTOL, ATOL = 1e-3, 1e-5
# FP16 values that attention stores on the way to one result, each rounded by half an ulp, 2^-11 of
# it: both scaled operands, the logits (each of the three is at most 2 in the cases, so that the
# exponential makes twice as much of it), the masked ones, the exponential, quotient and result.
ATTENTION_FP16 = (3 * 2 + 4) * 2.0**-11

Arrays = Sequence[np.ndarray[Any, Any]]
Run = Callable[[Path, list[str], Arrays], Arrays]


def relax_run(path: Path, names: list[str], inputs: Arrays) -> Arrays:
    """The model's outputs, as TVM 0.27 computes them on the host."""
    import tvm
    from tvm import relax

    if BARE:
        import onnx
        from tvm.relax.frontend.onnx import from_onnx

        module = from_onnx(
            onnx.load(path),
            shape_dict=dict(zip(names, [x.shape for x in inputs], strict=True)),
            keep_params_in_input=False,
        )
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    else:
        from boltgen.frontend.relax import import_model, of_tvm_alone
        from boltgen.tvm_build.relax_link import host_machine

        machine = host_machine(of_tvm_alone(import_model(path).module))
    result = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    fields = list(result) if isinstance(result, (list, tuple, tvm.ir.Array)) else [result]
    return [field.numpy() for field in fields]


def relay_run(path: Path, names: list[str], inputs: Arrays) -> Arrays:
    """The model's outputs, as TVM 0.17 computes them on the host."""
    import boltgen.relay  # noqa: F401  loads what TVM's library needs

    import tvm  # isort: skip
    from tvm import relay  # isort: skip

    if BARE:
        import onnx

        module, params = relay.frontend.from_onnx(
            onnx.load(path),
            shape=dict(zip(names, [x.shape for x in inputs], strict=True)),
            freeze_params=True,
        )
    else:
        from boltgen.frontend.relay.importer import import_model

        module, params = import_model(path).module, {}
    run = relay.create_executor("vm", mod=module, device=tvm.cpu(), target="llvm", params=params)
    result = run.evaluate()(*inputs)
    fields = list(result) if not hasattr(result, "numpy") else [result]
    return [field.numpy() for field in fields]


def status(run: Run, folder: Path, label: str) -> tuple[str, str]:
    """The status of a case, and the reason."""
    data = np.load(folder / f"{label}.npz")
    named = {key[3:]: data[key] for key in data.files if key.startswith("in ")}
    try:
        actual = run(folder / f"{label}.onnx", list(named), list(named.values()))
    except Exception as error:
        first = (str(error).strip() or "no message").splitlines()[0]
        return "refused", f"{type(error).__name__}: {first}"[:300]
    said = []
    for kind in ("out ", "given "):
        wanted = [data[key] for key in data.files if key.startswith(kind)]
        steps = ATTENTION_FP16 if "attention" in label else 0.0
        said.append(difference(actual, wanted, steps) if wanted else "")
        if wanted and not said[-1]:
            return "ok", ""
    return "wrong", said[0]


def difference(actual: Arrays, wanted: Arrays, of_fp16: float, *, has_fp16: bool = False) -> str:
    """Describe how results differ from the wanted ones.

    `of_fp16` is the error of FP16 beside the largest.

    It is of results that are FP16, and of all where the model computes in FP16 inside.
    """
    for have, want in zip(actual, wanted, strict=False):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{have.shape} {have.dtype} instead of {want.shape} {want.dtype}"
        wide = want.astype(np.float64)
        largest = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
        is_fp16 = has_fp16 or want.dtype == np.float16
        atol = max(ATOL, of_fp16 * largest) if is_fp16 else ATOL
        far = ~np.isclose(have.astype(np.float64), wide, RTOL, atol, equal_nan=True)
        if far.any():
            return f"{int(far.sum())} of {want.size} elements"
    return ""


def main() -> None:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frontend", choices=("relax", "relay"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bare", action="store_true", help="import by TVM alone, without boltgen")
    asked = parser.parse_args()
    frontend, folder = asked.frontend, asked.folder
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the converters' prints
    run = {"relax": relax_run, "relay": relay_run}[frontend]
    for label in sys.stdin.read().splitlines():
        out.write(json.dumps({"label": label}) + "\n")
        out.flush()
        found, why = status(run, folder, label)
        out.write(json.dumps({"label": label, "status": found, "why": why}) + "\n")
        out.flush()


BARE = "--bare" in sys.argv

if __name__ == "__main__":
    main()
