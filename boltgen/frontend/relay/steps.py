"""The Relay frontend's two steps: partition a module's functions, then attach their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import ir, relay

from boltgen.errors import ModelImportError
from boltgen.frontend.relay import codegen
from boltgen.frontend.relay.bind import Parameters, bind
from boltgen.frontend.relay.branches import with_lifted_branches
from boltgen.frontend.relay.codegen import Linked
from boltgen.frontend.relay.emit import emit, emit_region
from boltgen.frontend.relay.translate import translate
from boltgen.frontend.relay.versions import function_attribute
from boltgen.graph.graph import Graph
from boltgen.ir.dtypes import DType
from boltgen.passes.partition import partition_graphs
from boltgen.passes.precision.observe_ranges import Watched, watch
from boltgen.passes.regions.products import Rejects
from boltgen.passes.run import DEFAULT_PASSES, Partitioned, Passes
from boltgen.problems.workload import Workload


def is_model(function: object) -> bool:
    """Return whether a function was written by the module's author, and is no part of another."""
    if not isinstance(function, relay.Function):
        return False
    return all(
        function_attribute(function, name) is None
        for name in ("Compiler", "Composite", "Primitive")
    )


def annotate(
    module: tvm.IRModule,
    params: Parameters | None = None,
    passes: Passes = DEFAULT_PASSES,
) -> Partitioned:
    """Return the functions of `module`, with each region that boltgen computes outlined by
    `passes`.

    `params` become constants. A module that is FP16 and NHWC already keeps its form.

    Raises:
        ModelImportError: the module has no types or no function `main`, `params` are not its
            parameters, a weight is NaN or infinite and the passes do not allow it, or they ask for
            BF16.
    """
    if passes.precision is not DType.F16:
        raise ModelImportError(
            f"precision {passes.precision.value}: products of Relay's models multiply float16; "
            "bfloat16 needs the frontend relax"
        )
    typed = with_lifted_branches(bind(module, params or {}, allow_nonfinite=passes.allow_nonfinite))

    def write(partitioned: Partitioned, workspaces: Mapping[str, int]) -> tvm.IRModule:
        regions = {symbol: ir.GlobalVar(symbol) for symbol in partitioned.carved}
        functions = {
            gvar: emit(partitioned.graphs[gvar.name_hint], function, regions, workspaces)
            if gvar.name_hint in partitioned.graphs
            else function
            for gvar, function in typed.functions.items()
        }
        for symbol, carved in partitioned.carved.items():
            functions[regions[symbol]] = emit_region(carved, workspaces.get(symbol))
        return relay.transform.InferType()(tvm.IRModule(functions, typed.type_definitions))

    return partition_graphs(
        {
            gvar.name_hint: translate(function)
            for gvar, function in typed.functions.items()
            if is_model(function)
        },
        _symbols(typed),
        replace(passes, rejects=_of_float16(passes.rejects)),
        write,
        writes_volumes=False,
    )


def _of_float16(rejects: Rejects) -> Rejects:
    """Wrap `rejects` to reject every anchor that multiplies another type than FP16."""

    def reason(workload: Workload) -> str | None:
        operand = workload.first.problem.in_dtype
        if operand is DType.F16 or not workload.first.problem.has_b:
            return rejects(workload)
        return f"its operands are {operand.value}; kernels of Relay's models multiply float16"

    return reason


def watched(module: tvm.IRModule) -> tuple[tvm.IRModule, Graph, Watched]:
    """Return `module` with a `main` that returns its tensors' ranges, and its imported graph."""
    typed = with_lifted_branches(bind(module, {}))
    main = typed["main"]
    graph = translate(main)
    found = watch(graph)
    untyped = relay.Function(main.params, main.body, None, main.type_params, main.attrs)
    functions = dict(typed.functions.items())
    functions[typed.get_global_var("main")] = emit(found.graph, untyped, {}, {})
    made = tvm.IRModule(functions, typed.type_definitions)
    return relay.transform.InferType()(made), graph, found


def _symbols(module: tvm.IRModule) -> set[str]:
    """The names of a module's functions, in TVM and in what is linked."""
    symbols = (function_attribute(each, "global_symbol") for each in module.functions.values())
    return {gvar.name_hint for gvar in module.get_global_vars()} | set(filter(None, symbols))


def attach(
    partitioned: Partitioned, linked: Mapping[str, Linked], workspaces: Mapping[str, int]
) -> tvm.IRModule:
    """The module of a partition, with kernels that were built for its regions before.

    `linked` has by a region's symbol what it is linked from, `workspaces` the bytes that its call
    wants.
    """
    codegen.register()
    module = partitioned.module(workspaces)
    for symbol in partitioned.carved:
        marked = codegen.marked(module[symbol], linked[symbol])
        module.update_func(module.get_global_var(symbol), marked)
    return module
