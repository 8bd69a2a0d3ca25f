"""The Relax frontend's two steps: partition a module's functions, then attach their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
from tvm import ir, relax

from boltgen.errors import ModelImportError
from boltgen.frontend.relax.branches import with_lifted_branches
from boltgen.frontend.relax.derived_extents import with_computed_dimensions
from boltgen.frontend.relax.emit import emit
from boltgen.frontend.relax.region_calls import SYMBOL, with_host_functions
from boltgen.frontend.relax.translate import translate
from boltgen.graph.graph import RECURRENT, Graph
from boltgen.passes.partition import partition_graphs
from boltgen.passes.precision.observe_ranges import Watched, watch
from boltgen.passes.run import DEFAULT_PASSES, Partitioned, Passes

# The attribute of a module that has the libraries which TVM links with it.
_LIBRARIES = "external_mods"


def is_model(function: object) -> bool:
    """Return whether a function was written by the module's author, and is no part of another."""
    if not isinstance(function, relax.Function):
        return False
    return not {"Codegen", "Composite", "Primitive"} & set(function.attrs.keys())


# Operators that compute nothing themselves: calls, and what shapes and memory are made with.
_NO_OPERATORS = ("relax.call", "relax.invoke", "relax.shape", "relax.memory", "relax.vm")


def require_operators(module: tvm.IRModule) -> None:
    """Check that a module still has operators of Relax: kernels are made from them.

    Raises:
        ModelImportError: it has calls of TIR functions instead; the message has their names.
    """
    operators = 0
    called: set[ir.GlobalVar] = set()

    def visit(expr: ir.Expr) -> None:
        nonlocal operators
        if not isinstance(expr, ir.Call):
            return
        if isinstance(expr.op, ir.Op) and not str(expr.op.name).startswith(_NO_OPERATORS):
            operators += 1
        callees = (expr.op, *expr.args[:1])
        called.update(each for each in callees if isinstance(each, ir.GlobalVar))

    for function in module.functions.values():
        if is_model(function):
            relax.analysis.post_order_visit(function.body, visit)
    attributes = {each.name_hint: dict((module[each].attrs or {}).items()) for each in called}
    of_tvm = sorted(
        name
        for name, attrs in attributes.items()
        if SYMBOL not in attrs and not is_model(module[name]) and "Codegen" not in attrs
    )
    if of_tvm and not operators and len(of_tvm) == len(attributes):
        shown = ", ".join(of_tvm[:8]) + (", ..." if len(of_tvm) > 8 else "")
        raise ModelImportError(
            f"the module has no operators of Relax, but calls of TVM's functions ({shown}): it "
            "went through LegalizeOps or FuseOps. Call boltgen.relax.partition before these passes"
        )


def annotate(
    module: tvm.IRModule,
    passes: Passes = DEFAULT_PASSES,
) -> Partitioned:
    """Return the functions of `module`, with each region that boltgen computes outlined by
    `passes`.

    A module that is FP16 and NHWC already keeps its form.

    Raises:
        ModelImportError: a weight is NaN or infinite, and the passes do not allow it.
    """
    normal, functions = _models(module)

    def write(partitioned: Partitioned, workspaces: Mapping[str, int]) -> tvm.IRModule:
        return _written(normal, functions, partitioned.graphs, workspaces)

    return partition_graphs(
        {name: translate(function) for name, function in functions.items()},
        _symbols(normal),
        passes,
        write,
        packs_weights=True,
    )


def _models(module: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, relax.Function]]:
    """Return `module` in normal form, and its functions that are translated, by name."""
    normal = with_lifted_branches(relax.transform.Normalize()(module))
    functions = {
        gvar.name_hint: function
        for gvar, function in normal.functions.items()
        if is_model(function)
    }
    return normal, functions


def _written(
    normal: tvm.IRModule,
    functions: Mapping[str, relax.Function],
    graphs: Mapping[str, Graph],
    workspaces: Mapping[str, int],
) -> tvm.IRModule:
    """Return `normal` with each of `functions` that has a graph emitted anew."""
    made = {
        gvar: emit(graphs[gvar.name_hint], gvar.name_hint, functions[gvar.name_hint], workspaces)
        if gvar.name_hint in graphs
        else function
        for gvar, function in normal.functions.items()
    }
    written = tvm.IRModule(made, normal.attrs, global_infos=normal.global_infos)
    # TVM fuses operators within blocks of this kind only.
    return relax.transform.ConvertToDataflow(min_size=1)(written)


def of_tvm_alone(module: tvm.IRModule) -> tvm.IRModule:
    """Return an imported module as TVM alone runs it: recurrent layers are written out."""
    normal, functions = _models(module)
    graphs = {name: translate(function) for name, function in functions.items()}
    kept = {name: graph for name, graph in graphs.items() if RECURRENT in graph.operators}
    return _written(normal, functions, kept, {}) if kept else module


def watched(module: tvm.IRModule) -> tuple[tvm.IRModule, Graph, Watched]:
    """Return `module` with a `main` that returns its tensors' ranges, and its imported graph."""
    normal, functions = _models(module)
    graph = translate(functions["main"])
    found = watch(graph)
    written = _written(normal, functions, {"main": found.graph}, {})
    return with_computed_dimensions(written), graph, found


def _symbols(module: tvm.IRModule) -> set[str]:
    """Return the names of a module's functions, its external functions and its regions."""
    found = {gvar.name_hint for gvar in module.get_global_vars()}

    def visit(expr: ir.Expr) -> None:
        if isinstance(expr, relax.ExternFunc):
            found.add(str(expr.global_symbol))

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, visit)
        elif function.attrs and SYMBOL in function.attrs:
            found.add(str(function.attrs[SYMBOL]))
    return found


def attach(
    partitioned: Partitioned,
    objects: Sequence[Path],
    symbols: Sequence[str],
    workspaces: Mapping[str, int],
) -> tvm.IRModule:
    """The module of a partition, with kernels that were built before.

    `objects` are what was built of the regions, which have `symbols`; `workspaces` are the bytes
    that their calls want. A region without a symbol stays the call of an
    external function.
    """
    module = with_host_functions(partitioned.module(workspaces), symbols)
    attrs = dict(module.attrs.items()) if module.attrs else {}
    libraries = [*attrs.get(_LIBRARIES, ()), *_libraries(objects, symbols)]
    return module.with_attr(_LIBRARIES, libraries) if libraries else module


def _libraries(objects: Sequence[Path], symbols: Sequence[str]) -> list[tvm.runtime.Module]:
    """Modules that TVM links into the library it exports; the first one carries all symbols."""
    return [
        tvm.runtime.load_static_library(str(path), list(symbols) if not position else [])
        for position, path in enumerate(objects)
    ]
