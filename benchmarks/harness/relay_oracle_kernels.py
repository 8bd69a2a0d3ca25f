"""The double of `oracle_kernels` for Relay: each region is computed by the numpy oracle.

`relay.build` wants a module for each region. It gets a C function that passes its arguments on to
the global function of the region's name, which is Python's. So the host's compiler is needed, and
nvcc is not.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from benchmarks.harness.region_oracle import compute
from boltgen.passes.run import Partitioned
from boltgen.problems.region import Region

_PREFIX = "boltgen.oracle."
# The calling convention of TVM up to 0.19, in terms of the types that C has.
_STUB = """
#ifdef __cplusplus
extern "C" {{
#endif
int TVMFuncGetGlobal(const char* name, void** out);
int TVMFuncCall(void* f, void* values, int* codes, int count, void* result, int* result_code);
int {symbol}(void* values, int* codes, int count, void* result, int* result_code) {{
  static void* f = 0;
  if (!f && (TVMFuncGetGlobal("{prefix}{symbol}", &f) || !f)) return -1;
  return TVMFuncCall(f, values, codes, count, result, result_code);
}}
#ifdef __cplusplus
}}
#endif
"""


def _stub(function: relay.Function) -> tvm.runtime.Module:
    symbol = str(function.attrs["global_symbol"])
    code = _STUB.format(symbol=symbol, prefix=_PREFIX)
    return tvm.get_global_func("runtime.CSourceModuleCreate")(code, "cc", [symbol], [])


def _register(region: Region) -> None:
    def kernel(*tensors: tvm.nd.NDArray) -> None:
        count = region.parameter_count
        results = compute(region, [tensor.numpy() for tensor in tensors[:count]])
        for output, result in zip(tensors[count:], results, strict=True):
            output.copyfrom(np.ascontiguousarray(result.reshape(output.shape)))

    tvm.register_func(_PREFIX + region.symbol, kernel, override=True)


class Model:
    """An annotated Relay module on the CPU: TVM's part compiled, boltgen's by the oracle."""

    def __init__(self, annotated: Partitioned) -> None:
        for region in annotated.regions:
            _register(region)
        module = annotated.module()
        tvm.register_func("relay.ext.boltgen", _stub, override=True)
        tvm.register_func(
            "relay.ext.boltgen.constant_updater", lambda function, symbol: {}, override=True
        )
        self._names = [param.name_hint for param in module["main"].params]
        with tvm.transform.PassContext(opt_level=3):
            built = relay.build(module, target="llvm")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "include").mkdir()
        os.environ["TVM_HOME"] = str(folder)  # TVM looks there for headers, which no stub wants
        library = folder / "model.so"
        built.export_library(str(library))
        loaded = tvm.runtime.load_module(str(library))
        self._executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The results of the function `main`."""
        for name, array in zip(self._names, inputs, strict=True):
            self._executor.set_input(name, array)
        self._executor.run()
        count = self._executor.get_num_outputs()
        return [self._executor.get_output(place).numpy() for place in range(count)]
