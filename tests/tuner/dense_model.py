"""A model of three products, and its regions."""

from __future__ import annotations

import boltgen
from boltgen.problems.region import Region


def model() -> object:
    """Two equal dense layers and another one, as a Relax module.

    What lies between, of which no kernel knows the last, keeps them from becoming one.
    """
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(
        x: R.Tensor((64, 128), "float16"),
        v: R.Tensor((128, 128), "float16"),
        w: R.Tensor((128, 128), "float16"),
        u: R.Tensor((128, 64), "float16"),
    ) -> R.Tensor((64, 64), "float16"):
        with R.dataflow():
            first = R.nn.relu(R.matmul(x, v))
            second = R.nn.relu(R.matmul(R.abs(R.nn.softmax(first, axis=0)), w))
            out = R.matmul(R.abs(R.nn.softmax(second, axis=0)), u)
            R.output(out)
        return out

    return tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))


def regions_of_model() -> tuple[Region, ...]:
    from boltgen.frontend.relax import annotate

    return annotate(model()).regions
