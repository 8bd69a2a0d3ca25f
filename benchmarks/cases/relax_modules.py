"""Small Relax modules, from a function over Relax expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

from boltgen.passes.run import Partitioned

Parameter = tuple[tuple[int, ...], str]


def build(parameters: Mapping[str, Parameter], body: Callable[..., relax.Expr]) -> tvm.IRModule:
    """A module whose `main` takes `parameters`, by name, and computes `body` of them.

    `body` may return a tuple. Nested calls become bindings in the order in which they are written.
    """
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, (shape, dtype) in parameters.items()
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = body(*variables)
            if isinstance(result, tuple):
                result = tvm.ir.Tuple([builder.emit(part) for part in result])
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def operators(module: tvm.IRModule | Partitioned, name: str = "main") -> list[str]:
    """Names of the Relax operators that `main` still calls, in order, regions left out."""
    found = []
    module = module.module() if isinstance(module, Partitioned) else module
    for block in module[name].body.blocks:
        for binding in block.bindings:
            op = getattr(binding.value, "op", None)
            if isinstance(op, tvm.ir.Op) and op.name != "relax.call_dps_packed":
                found.append(op.name.removeprefix("relax.").removeprefix("nn."))
    return found
