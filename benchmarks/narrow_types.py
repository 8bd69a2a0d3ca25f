"""Predicted times of matmuls of 8-bit operands against FP16's, by the analytical model.

    python -m benchmarks.narrow_types

Nothing is compiled or executed. Each type has the fastest of all legal configurations. INT8 and FP8
have a scale for each column, and INT8 is requantised to INT8; FP8 and FP16 store FP16.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.registry import candidates, predict
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload

_TARGET = "INT8 and FP8 at 4096x4096x4096: 1.7 times as fast as FP16"
ARCHES = ("sm_80", "sm_89", "sm_90a")
# M, N and K: the target's, and a layer of a transformer with few and with many tokens.
SIZES = ((4096, 4096, 4096), (512, 3072, 768), (8192, 11008, 4096))
# A and B, their sums, and D.
TYPES = {
    "FP16": (DType.F16, DType.F32, DType.F16),
    "INT8": (DType.I8, DType.I32, DType.I8),
    "FP8": (DType.E4M3, DType.F32, DType.F16),
}


def workload(name: str, size: tuple[int, int, int]) -> Workload:
    """Return the matmul of a type with a ReLU, and with scales if it is of 8 bits."""
    operand, sums, result = TYPES[name]
    builder = ElementwiseBuilder(whole=sums.is_whole)
    x = builder.cast(0, DType.F32) if sums.is_whole else 0
    if operand.size_bytes == 1:
        x = builder.binary(BinaryOp.MULTIPLY, x, builder.load(LoadKind.ROW, DType.F32))
    x = builder.unary(UnaryOp.RELU, x)
    if result.is_whole:
        builder.unary(UnaryOp.CLIP, builder.unary(UnaryOp.ROUND, x), -128.0, 127.0)
    m, n, k = size
    types: dict[str, Any] = {"in_dtype": operand, "acc_dtype": sums, "out_dtype": result}
    return Workload.of(Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, **types), builder.build())


def fastest(work: Workload, arch: Arch) -> dict[str, Any] | str:
    """Return the fastest configuration and its time; text if no kernel computes it."""
    try:
        found = candidates(work, arch)
    except NoLegalConfigError:
        return "no kernel"
    time_us, config, family = min(
        (predict(work, each, arch).time_us, str(each), each.family) for each in found
    )
    return {"us": round(time_us, 2), "config": config, "family": family}


def main() -> None:
    """Predict all, and record the times."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    figures: list[dict[str, Any]] = []
    for name in ARCHES:
        for size in SIZES:
            times = {each: fastest(workload(each, size), arch_named(name)) for each in TYPES}
            floats = times["FP16"]
            assert isinstance(floats, dict)
            faster = {
                each: round(floats["us"] / found["us"], 2)
                for each, found in times.items()
                if isinstance(found, dict) and each != "FP16"
            }
            shown = "x".join(map(str, size))
            figures.append({"arch": name, "size": shown, "faster": faster, "times": times})
    write("narrow_types", {"predictions": figures}, _TARGET)


if __name__ == "__main__":
    main()
