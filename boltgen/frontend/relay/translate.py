"""Arrow: a Relay function to the neutral graph.

Every value that the function computes becomes one expression; tuples, names of values and ways to
spell one operator become none. An operator without a neutral name is opaque, and keeps its author's
expression. Shared values are visited once, and nothing here recurs on a value's operands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import ir, relay

from boltgen.frontend.relay.operators import UnknownFormError, neutral, tensor_type
from boltgen.frontend.translation import Translation
from boltgen.graph.attributes import NONE, Attributes, Convolution, Opaque
from boltgen.graph.graph import OPAQUE, Graph, Structure, leaves

_MATMULS = frozenset({"nn.dense", "nn.matmul", "nn.batch_matmul"})
PRODUCTS = _MATMULS | {"nn.conv2d"}
# The second operand is an attribute of the neutral operator, or follows from the first.
_UNARY = frozenset({"nn.pad", "variance"})
_KERNEL_ORDERS = {"HWIO": (3, 0, 1, 2), "OIHW": (0, 2, 3, 1)}  # to OHWI
REFERENCES = (relay.expr.RefCreate, relay.expr.RefRead, relay.expr.RefWrite)


def translate(function: relay.Function) -> Graph:
    """The graph of a function whose types are known; branches and functions within are opaque."""
    return _Translation(function).run()


def is_called_whole(callee: relay.Expr) -> bool:
    """Return whether a call's callee is no value: an operator, a module's function, a constructor.

    Also a function that stands in the call, whose free variables are values.
    """
    return isinstance(callee, (ir.Op, ir.GlobalVar, relay.adt.Constructor, relay.Function))


def _operands(expr: relay.Expr) -> list[relay.Expr]:
    """Return an expression's operands; functions and branches read their free variables."""
    match expr:
        case relay.Constant():
            return []
        case relay.Call():
            op = expr.op
            if isinstance(op, relay.Function):
                return [*free_variables(op), *expr.args]
            return [*expr.args] if is_called_whole(op) else [op, *expr.args]
        case relay.Tuple():
            return list(expr.fields)
        case relay.TupleGetItem():
            return [expr.tuple_value]
        case relay.If():
            return [expr.cond, *free_variables(branches(expr))]
    return fields(expr) if isinstance(expr, REFERENCES) else free_variables(expr)


def fields(reference: relay.Expr) -> list[relay.Expr]:
    """Return the operands of an expression on a reference, in the order of its constructor."""
    names = {relay.RefCreate: ("value",), relay.RefRead: ("ref",), relay.RefWrite: ("ref", "value")}
    return [getattr(reference, name) for name in names[type(reference)]]


def branches(expr: relay.If) -> relay.Tuple:
    """Both branches as one expression."""
    return relay.Tuple([expr.true_branch, expr.false_branch])


def free_variables(expr: relay.Expr) -> list[relay.Var]:
    """The variables that an expression takes from outside, each once."""
    return list(relay.analysis.free_vars(expr))


class _Translation(Translation):
    """One function under translation; `_items` has the result for each Relay expression.

    Both dictionaries go by addresses: that an expression is hashed by TVM takes longer.
    """

    def __init__(self, function: relay.Function) -> None:
        super().__init__(tensor_type, ir.TupleType)
        self._function = function
        self._items: dict[int, Structure] = {}
        # Bindings are names of values, unless they say in which order references are used.
        self._has_names = not _has_references(function)
        self._bound: dict[int, relay.Expr] = {}

    def run(self) -> Graph:
        function = self._function
        for param in function.params:
            self._items[_address(param)] = self._input(param, param.checked_type)
        self._visit(function.body)
        return self._builder.graph(self._item(function.body))

    def _visit(self, root: relay.Expr) -> None:
        """Translate `root` and everything that it depends on, operands first."""
        stack: list[tuple[relay.Expr, list[relay.Expr] | None]] = [(root, None)]
        while stack:
            expr, operands = stack.pop()
            address = _address(expr)
            if address in self._items:
                continue
            if operands is not None:
                self._items[address] = self._translated(expr, operands)
            else:
                operands = self._before(expr)
                stack.append((expr, operands))
                stack += [(each, None) for each in reversed(operands)]

    def _before(self, expr: relay.Expr) -> list[relay.Expr]:
        if self._is_name(expr):
            self._bound[_address(expr.var)] = expr.value
            return [expr.body]
        return [self._bound[_address(expr)]] if isinstance(expr, relay.Var) else _operands(expr)

    def _is_name(self, expr: relay.Expr) -> bool:
        """Whether an expression only names a value; a function may name itself."""
        is_let = isinstance(expr, relay.Let) and not isinstance(expr.value, relay.Function)
        return is_let and self._has_names

    def _translated(self, expr: relay.Expr, operands: list[relay.Expr]) -> Structure:
        if isinstance(expr, relay.Var) or self._is_name(expr):
            return self._item(operands[0])
        match expr:
            case relay.Constant():
                return self._constant_of(expr, expr.data.numpy(), expr.checked_type)
            case relay.Tuple():
                return tuple(map(self._item, operands))
            case relay.TupleGetItem():
                whole = self._item(operands[0])
                assert isinstance(whole, tuple)
                return whole[int(expr.index)]
        args = tuple(leaf for operand in operands for leaf in leaves(self._item(operand)))
        return self._call(expr, args) if isinstance(expr, relay.Call) else self._opaque(expr, args)

    def _item(self, expr: relay.Expr) -> Structure:
        return self._items[_address(expr)]

    def _call(self, call: relay.Call, args: tuple[int, ...]) -> Structure:
        op = call.op
        if not isinstance(op, ir.Op):
            return self._opaque(call, args)
        written = str(op.name)
        try:
            name, attrs = neutral(written, call)
        except UnknownFormError:
            return self._kept(call, call.checked_type, f"relay.{written}", args)
        if (known := self._of_inference(call, call.checked_type, name, args, attrs)) is not None:
            return known
        if written in _MATMULS:
            return self._written(call, "matmul", self._straightened(call, args), NONE)
        if isinstance(attrs, Convolution) and attrs.kernel_layout == "HWCM":
            return self._of_several_filters(call, name, args, attrs)
        if isinstance(attrs, Convolution) and self._has_other_weight(attrs, args[1]):
            weight = self._permuted(args[1], _KERNEL_ORDERS[attrs.kernel_layout])
            straight = replace(attrs, kernel_layout="OHWI")
            return self._written(call, name, (args[0], weight), straight)
        if name in _UNARY:
            return self._written(call, name, args[:1], attrs)
        if (written, name) == ("nn.bias_add", "add"):
            return self._written(call, name, args, attrs)
        return self._kept(call, call.checked_type, name, args, attrs)

    def _written(
        self, call: relay.Call, name: str, args: tuple[int, ...], attrs: Attributes
    ) -> int:
        """Translate an operator whose name, operands and attributes describe it fully."""
        return self._builder.add(self._typed(name, args, call.checked_type, attrs))

    def _of_several_filters(
        self, call: relay.Call, name: str, args: tuple[int, ...], attrs: Convolution
    ) -> int:
        """Translate a depthwise convolution with M filters for each channel, which follow one
        another in the result.
        """
        x, weight = args
        high, wide, channels, filters = self._builder.shape(weight)
        joint = (high, wide, channels * filters, 1)
        array = self._builder[weight].array
        if array is None:
            weight = self._builder.reshape(weight, joint)
        else:
            weight = self._builder.constant(array.reshape(joint))
        return self._written(call, name, (x, weight), replace(attrs, kernel_layout="HWOI"))

    def _has_other_weight(self, attrs: Convolution, weight: int) -> bool:
        """Return whether only the weight's layout keeps a convolution from a kernel."""
        is_other = attrs.kernel_layout in _KERNEL_ORDERS and self._builder[weight].is_static
        is_nhwc = attrs.data_layout == "NHWC" and attrs.out_layout == "NHWC"
        return is_other and is_nhwc and attrs.groups == 1

    def _straightened(self, call: relay.Call, args: tuple[int, ...]) -> tuple[int, ...]:
        """A matrix product's operands as (M, K) and (K, N), whichever way it reads them."""
        a, b = args
        is_dense = call.op.name == "nn.dense"
        if not is_dense and bool(call.attrs.transpose_a):
            a = self._transposed(a)
        if is_dense or bool(call.attrs.transpose_b):
            b = self._transposed(b)
        return a, b

    def _transposed(self, index: int) -> int:
        rank = len(self._builder[index].shape or ())
        return self._builder.permute_dims(index, (*range(rank - 2), rank - 1, rank - 2))

    def _permuted(self, index: int, axes: tuple[int, ...]) -> int:
        array = self._builder[index].array
        if array is None:
            return self._builder.permute_dims(index, axes)
        return self._builder.constant(np.ascontiguousarray(array.transpose(axes)))

    def _opaque(self, expr: relay.Expr, args: tuple[int, ...]) -> Structure:
        """An expression that passes through."""
        called = expr.op if isinstance(expr, relay.Call) else expr
        callee = str(getattr(called, "name_hint", type(called).__name__.lower()))
        return self._kept(expr, expr.checked_type, OPAQUE, args, Opaque(callee, _inside(expr)))


def _inside(expr: relay.Expr) -> Graph | None:
    """Return the graph of an opaque expression's functions or arms."""
    if isinstance(expr, relay.If):
        return translate(relay.Function(free_variables(expr), branches(expr)))
    return translate(expr) if isinstance(expr, relay.Function) else None


def _has_references(function: relay.Function) -> bool:
    found: list[bool] = []
    relay.analysis.post_order_visit(
        function.body, lambda expr: found.append(isinstance(expr, REFERENCES))
    )
    return any(found)


def _address(expr: relay.Expr) -> int:
    """Return a key for an expression: its address, since the function outlives its translation."""
    return int(expr.handle.value)
