"""Compare TVM's pipeline and ours on operators that boltgen leaves to TVM: counted, not timed.

Each operator of a model, compiled for sm_80 and executed on the virtual GPU by both: threadblocks,
and instructions of all warps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.cases.relax_modules import build
from benchmarks.record import write
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.device.choose import activate
from boltgen.settings import settings_from
from boltgen.tvm_build.lowering.schedules import pipeline
from boltgen.tvm_build.relax_link import build_library, cuda_target

_ARCH = "sm_80"
_OP = relax.op
# By name: the shape of the FP16 input, and the operator.
_OPERATORS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "ResNet-50, 3x3 max pool": (
        (1, 112, 112, 64),
        lambda x: _OP.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NHWC"),
    ),
    "ResNet-50, mean over 7x7": (
        (1, 7, 7, 2048),
        lambda x: _OP.astype(_OP.mean(_OP.astype(x, "float32"), [1, 2]), "float16"),
    ),
    "Inception, 3x3 average pool": (
        (1, 28, 28, 192),
        lambda x: _OP.astype(
            _OP.nn.avg_pool2d(_OP.astype(x, "float32"), (3, 3), (1, 1), (1, 1), layout="NHWC"),
            "float16",
        ),
    ),
    "BERT-base, softmax of 40 columns": (
        (1, 12, 40, 40),
        lambda x: _OP.astype(_OP.nn.softmax(_OP.astype(x, "float32"), -1), "float16"),
    ),
    "MobileNet, first depthwise 3x3, with ReLU": (
        (1, 112, 112, 32),
        lambda x: _OP.astype(
            _OP.nn.relu(
                _OP.nn.conv2d(
                    x,
                    relax.const(np.ones((32, 3, 3, 1), np.float16)),
                    padding=1,
                    groups=32,
                    data_layout="NHWC",
                    kernel_layout="OHWI",
                    out_dtype="float32",
                )
            ),
            "float16",
        ),
    ),
}


def _counts(name: str, make: Callable[[Any], Any]) -> tuple[dict[str, int], np.ndarray[Any, Any]]:
    shape, body = _OPERATORS[name]
    settings, arch = settings_from(), arch_named(_ARCH)
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    module = build({"x": (shape, "float16")}, body)
    executable, _ = build_library(module, arch, tools, cache, pipeline=make(cuda_target(arch)))
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    argument = tvm.runtime.tensor(x, tvm.cuda(0))
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    result = machine["main"](argument).numpy()
    launches = vgpu.launches()
    counts = {
        "launches": len(launches),
        "threadblocks": sum(int(np.prod(each.grid)) for each in launches),
        "warp_instructions": sum(each.warp_instructions for each in launches),
    }
    return counts, result


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    activate("vgpu")
    figures = {}
    for name in _OPERATORS:
        theirs, wanted = _counts(name, relax.backend.cuda.get_default_pipeline)
        ours, result = _counts(name, pipeline)
        # Sums in FP32, in another order: they may be rounded to the next FP16 number.
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2**-10 * np.abs(wanted).max())
        ratio = theirs["warp_instructions"] / ours["warp_instructions"]
        figures[name] = {"tvm": theirs, "boltgen": ours, "instructions_ratio": round(ratio, 1)}
    write("tvm_rest", figures, "fewer instructions than TVM's rules")


if __name__ == "__main__":
    main()
