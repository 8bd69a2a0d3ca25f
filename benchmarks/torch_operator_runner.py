"""`python -m benchmarks.torch_operator_runner OPERATOR...`: operators for sm_80, in one process.

A line of standard output is JSON: name, status (`ok`, `wrong`, `refused` by name, `failed`), why.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import torch

from benchmarks.onnx_case_runner import Arrays, difference
from benchmarks.torch_operator_cases import CASES
from boltgen.device.choose import provide_cuda_runtime
from boltgen.settings import settings_from

provide_cuda_runtime(settings_from())

from benchmarks.vgpu_batch import Ran, results, said  # noqa: E402  loads TVM

# Operands, sums and results that are FP16 inside a model of FP32, each rounded by half an ulp.
_FP16 = 8 * 2.0**-11


class _Model(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _arrays(result: Any) -> Arrays:
    fields = [result] if isinstance(result, torch.Tensor) else list(result)
    return [field.numpy() for field in fields]


def main() -> None:
    """Run the operators that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="+")
    operators = parser.parse_args().operators
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the converters' prints

    def tell(name: str, status: str, why: str) -> None:
        out.write(json.dumps({"name": name, "status": status, "why": why}) + "\n")
        out.flush()

    models, wanted = {}, {}
    for name in operators:
        function, inputs = CASES[name]
        wanted[name] = _arrays(function(*inputs))
        program = torch.export.export(_Model(function), inputs)
        models[name] = (program, [each.numpy() for each in inputs])
    for name, outcome in results(models).items():
        if isinstance(outcome, Ran):
            why = difference(outcome.outputs, wanted[name], _FP16, has_fp16=outcome.has_fp16)
            tell(name, "wrong" if why else "ok", why)
        else:
            tell(name, *said(outcome))


if __name__ == "__main__":
    main()
