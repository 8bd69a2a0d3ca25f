"""A double for kernels: each region is computed by the numpy oracle, on the CPU.

TVM's virtual machine looks an external function up in the library first and then among the global
functions; the double registers itself there. So the whole frontend runs, from the model to the
numbers, with target llvm and without nvcc.
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi

from benchmarks.harness.region_oracle import compute
from boltgen.frontend.relax import annotate, attach
from boltgen.ir.dtypes import DType
from boltgen.passes.run import Partitioned, Passes
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.region import Region
from boltgen.tvm_build.relax_link import host_machine


def register(region: Region) -> None:
    """Make the oracle compute calls of `region`."""

    def kernel(*tensors: tvm.runtime.Tensor) -> None:
        count = region.parameter_count
        results = compute(region, [tensor.numpy() for tensor in tensors[:count]])
        for output, result in zip(tensors[count:], results, strict=True):
            output.copyfrom(result.reshape(output.shape))

    tvm_ffi.register_global_func(region.symbol, kernel, override=True)


class Model:
    """A Relax module, partitioned, on the CPU: TVM's part compiled, boltgen's by the oracle."""

    def __init__(
        self,
        module: tvm.IRModule,
        *,
        normalise: bool = False,
        padding: GraphCosts | None = None,
        precision: DType = DType.F16,
    ) -> None:
        passes = Passes(normalise=normalise, padding=padding, precision=precision)
        self._build(annotate(module, passes=passes))

    @classmethod
    def of_annotated(cls, annotated: Partitioned) -> Model:
        """A module that `annotate` has partitioned."""
        model = cls.__new__(cls)
        model._build(annotated)
        return model

    def _build(self, annotated: Partitioned) -> None:
        self.annotated = annotated
        self.regions = annotated.regions
        for region in self.regions:
            register(region)
        self.machine = host_machine(attach(annotated, [], [], {}))

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The results of the function `main`."""
        results = self.machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
        if isinstance(results, tvm.runtime.Tensor):
            return [results.numpy()]
        return [result.numpy() for result in results]
