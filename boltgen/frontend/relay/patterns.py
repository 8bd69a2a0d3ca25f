"""Carves regions out of a Relay module: one function per region, as `relay.build` expects.

This takes the place of MergeComposite, AnnotateTarget and PartitionGraph: a region's operators move
into a function with the attribute "Compiler". What is left behind is one call per region.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import ir, relay

from boltgen.frontend.anchor import CONV2D, Anchor
from boltgen.frontend.carving import (
    CODEGEN,
    NO_GRAPH,
    NOTE,
    Found,
    Symbols,
    find_regions,
    in_order,
    offloaded,
    stays,
)
from boltgen.frontend.graph import Graph
from boltgen.frontend.products import Product
from boltgen.frontend.relay.lower import lower
from boltgen.frontend.relay.translate import (
    Leaf,
    Translation,
    Transposed,
    expressions,
    is_dataflow,
    is_product,
    static_shape,
    translate,
    transposes,
)
from boltgen.frontend.relay.versions import function_attribute
from boltgen.ir.chain import Cutter, separate
from boltgen.ir.region import AnyRegion, Placement


def is_region(function: object) -> bool:
    """Whether a module's function is a region of ours."""
    return function_attribute(function, "Compiler") == CODEGEN


def is_model(function: object) -> bool:
    """Whether a module's function is one that its author wrote, and no part of another."""
    if not isinstance(function, relay.Function):
        return False
    return all(
        function_attribute(function, name) is None
        for name in ("Compiler", "Composite", "Primitive")
    )


class _Carver:
    """Builds the new module; one region at a time."""

    def __init__(self, module: tvm.IRModule, cut: Cutter) -> None:
        self._cut = cut
        self._symbols = Symbols(gvar.name_hint for gvar in module.get_global_vars())
        self.functions: dict[ir.GlobalVar, relay.Function] = {}

    def carve(self, function: relay.Function) -> relay.Function:
        """`function` with a call in the place of each region."""
        if not is_dataflow(function):
            return function
        translation = translate(function)
        graph = translation.graph
        regions = {
            translation.leaves[found.output]: found for found in find_regions(graph, self._cut)
        }
        if not regions:
            return function
        renewed: dict[Any, relay.Expr] = {}
        for expr in expressions(function):
            if expr in regions:
                renewed[expr] = self._call(translation, graph, regions[expr], renewed)
            else:
                renewed[expr] = with_parts(expr, renewed)
        return relay.Function(
            function.params,
            renewed[function.body],
            function.ret_type,
            function.type_params,
            function.attrs,
        )

    def _call(
        self, translation: Translation, graph: Graph, found: Found, renewed: dict[Any, relay.Expr]
    ) -> relay.Call:
        """Adds the region's function; returns the call of it, on the caller's new expressions."""
        body = _RegionBody(translation, graph, found)
        symbol = self._symbols.fresh(graph, found)
        function = body.function(symbol)
        gvar = ir.GlobalVar(symbol)
        self.functions[gvar] = function
        return relay.Call(gvar, [_outside(translation, leaf, renewed) for leaf in body.arguments])


def _outside(translation: Translation, leaf: Leaf, renewed: dict[Any, relay.Expr]) -> relay.Expr:
    """What the caller passes for `leaf`; a transposed weight is a new constant where it can be."""
    if not isinstance(leaf, Transposed):
        return renewed.get(leaf, leaf)
    source = translation.leaves[leaf.source]
    if isinstance(source, relay.Constant):
        array = np.ascontiguousarray(source.data.numpy().transpose(leaf.axes))
        return relay.const(array, str(array.dtype))
    return relay.transpose(_outside(translation, source, renewed), leaf.axes)


def with_parts(expr: relay.Expr, renewed: dict[Any, relay.Expr]) -> relay.Expr:
    """`expr` on the renewed forms of what it reads; itself where nothing has changed."""
    if isinstance(expr, relay.Call):
        parts = list(expr.args)
    elif isinstance(expr, relay.Tuple):
        parts = list(expr.fields)
    elif isinstance(expr, relay.TupleGetItem):
        parts = [expr.tuple_value]
    else:
        return expr
    new = [renewed[part] for part in parts]
    if all(before.same_as(after) for before, after in zip(parts, new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, new, expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new, expr.span)
    return relay.TupleGetItem(new[0], expr.index)


class _RegionBody:
    """A region's operators, over parameters of their own."""

    def __init__(self, translation: Translation, graph: Graph, found: Found) -> None:
        self._translation = translation
        self._graph = graph
        self._found = found
        self._inside: dict[Any, relay.Expr] = {}
        self._params: list[relay.Var] = []
        self.arguments: list[Leaf] = []
        for product in found.products:
            for member in product.operators:
                self._inside[translation.leaves[member]] = self._operator(product, member)

    def function(self, symbol: str) -> relay.Function:
        """The region as a function with the attributes that `relay.build` looks for."""
        output = self._translation.leaves[self._found.output]
        made = relay.Function(self._params, self._inside[output], output.checked_type)
        for name, value in (
            ("Primitive", tvm.tir.IntImm("int32", 1)),
            ("Inline", tvm.tir.IntImm("int32", 1)),
            ("Compiler", CODEGEN),
            ("global_symbol", tvm.runtime.String(symbol)),
            (NOTE, tvm.runtime.String(self._found.reason)),
        ):
            made = made.with_attr(name, value)
        return made

    def _operator(self, product: Product, member: int) -> relay.Call:
        call = self._translation.leaves[member]
        args = self._graph[member].args
        if member != product.anchor.index:
            new = [self._local(arg) for arg in args]
            return relay.Call(call.op, new, call.attrs, call.type_args)
        if is_product(call):
            return self._product(call, product.anchor)
        x, weight = (self._local(arg) for arg in args)
        if self._graph[member].op == CONV2D and str(call.attrs.kernel_layout) != "OHWI":
            return _conv2d_ohwi(call, x, weight)
        return relay.Call(call.op, [x, weight], call.attrs, call.type_args)

    def _product(self, call: relay.Call, anchor: Anchor) -> relay.Call:
        """The product on A as it is stored, and B transposed or not, as the anchor reads it."""
        absorbs = bool(anchor.absorbed)
        a, b = self._local(anchor.a), self._local(anchor.b)
        if transposes(call) == (False, absorbs):
            return relay.Call(call.op, [a, b], call.attrs, call.type_args)
        out_dtype = self._graph[anchor.index].dtype
        if call.op.name == "nn.batch_matmul":
            return relay.nn.batch_matmul(a, b, out_dtype, False, absorbs)
        return relay.nn.matmul(a, b, None, out_dtype, False, absorbs)

    def _local(self, index: int) -> relay.Expr:
        """The region's own name of a value."""
        leaf = self._translation.leaves[index]
        if leaf in self._inside:
            return self._inside[leaf]
        expr = self._graph[index]
        if expr.scalar is not None:
            return leaf  # a constant that the kernel is generated with
        type_ = relay.TensorType(expr.static_shape, expr.dtype)
        param = relay.var(f"p{len(self._params)}", type_annotation=type_)
        self._params.append(param)
        self.arguments.append(leaf)
        self._inside[leaf] = param
        return param


def _conv2d_ohwi(call: relay.Call, x: relay.Expr, weight: relay.Expr) -> relay.Call:
    attrs = call.attrs
    return relay.nn.conv2d(
        x,
        weight,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
        channels=attrs.channels,
        kernel_size=attrs.kernel_size,
        data_layout="NHWC",
        kernel_layout="OHWI",
        out_layout=attrs.out_layout,
        out_dtype=attrs.out_dtype,
    )


def annotate(module: tvm.IRModule, cut: Cutter = separate) -> tvm.IRModule:
    """`module` with every region that boltgen can compute in a function of its own.

    `cut` says which products become one kernel.
    """
    module = relay.transform.InferType()(module)
    carver = _Carver(module, cut)
    functions = {
        gvar: carver.carve(function) if is_model(function) else function
        for gvar, function in module.functions.items()
    }
    annotated = tvm.IRModule({**functions, **carver.functions}, module.type_definitions)
    return relay.transform.InferType()(annotated)


def regions(module: tvm.IRModule) -> tuple[AnyRegion, ...]:
    """The regions of an annotated module, in the order of their symbols' numbers.

    Raises:
        InvalidProblemError: a region that boltgen did not make itself cannot be lowered.
    """
    return lower_all(function for function in module.functions.values() if is_region(function))


def lower_all(functions: Iterable[relay.Function]) -> tuple[AnyRegion, ...]:
    """The regions that `functions` compute.

    Raises:
        InvalidProblemError: one cannot be lowered; the message has its operators and the reason.
    """
    return in_order((str(f.attrs["global_symbol"]), lower(f)) for f in functions)


def placements(module: tvm.IRModule) -> tuple[Placement, ...]:
    """Where each operator of an annotated module runs, in the order in which they run."""
    by_symbol = {region.symbol: region for region in regions(module)}
    placed: list[Placement] = []
    for function in module.functions.values():
        if is_model(function):
            placed.extend(_placements(function, by_symbol))
    return tuple(placed)


def _placements(function: relay.Function, by_symbol: dict[str, AnyRegion]) -> list[Placement]:
    if not is_dataflow(function):
        return [Placement(operator="function", shape=(), region=None, reason=NO_GRAPH)]
    translation = translate(function)
    graph = translation.graph
    placed = []
    for index, leaf in enumerate(translation.leaves):
        if not isinstance(leaf, relay.Call):
            continue
        shape = static_shape(leaf.checked_type)
        callee = leaf.op.name_hint if isinstance(leaf.op, ir.GlobalVar) else ""
        if callee in by_symbol:
            placed.append(offloaded(by_symbol[callee], shape))
        else:
            placed.append(stays(graph, index, shape, callee or "call"))
    return placed
