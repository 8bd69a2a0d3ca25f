"""Arrow: a partition's calls of external functions to calls of functions of the module.

TVM's machine code (`exec_mode="compiled"`) looks external functions up in imported modules, and a
region's kernel is linked into the library itself. So each region has a function on the host, which
passes its tensors on by the linker's symbol, with nothing checked or computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

# The attribute of such a function: the symbol of the region that it calls.
SYMBOL = "boltgen.region"
# The attribute by which TVM's rules for schedules leave a function alone.
SCHEDULED = "tirx.is_scheduled"

# tvm-ffi puts this before the name of each function that a library exports.
_EXPORT_PREFIX = "__tvm_ffi_"
# FuseOps fuses nothing with a function of this pattern (OpPatternKind::kOpaque).
_OPAQUE = 8
# The field of `tvm_struct_get` that is the tensor's own address (TVMStructFieldKind::kArrAddr).
# TVM passes it on as a tensor, where a plain handle would be passed on as an untyped pointer.
_TENSOR = 0


@mutator
class _Calls(PyExprMutator):  # type: ignore[misc]
    """Calls the regions with `symbols` by functions that it adds to the module."""

    def __init__(self, module: tvm.IRModule, symbols: Sequence[str]) -> None:
        super().__init__(module)
        self._symbols = frozenset(symbols)
        self._made: dict[str, ir.GlobalVar] = {}

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        """Return the call; a region's call becomes a call of its function on the host."""
        if not isinstance(call.op, ir.Op) or call.op.name != "relax.call_dps_packed":
            return super().visit_call_(call)
        callee, args = call.args
        symbol = str(callee.global_symbol) if isinstance(callee, relax.ExternFunc) else ""
        if symbol not in self._symbols:
            return super().visit_call_(call)
        (out_type,) = call.ty_args
        outputs = len(out_type.fields) if isinstance(out_type, relax.TupleType) else 1
        if symbol not in self._made:
            function = host_function(symbol, len(args.fields), outputs)
            self._made[symbol] = self.builder_.add_func(function, f"call_{symbol}")
        operands = ir.Tuple([*args.fields, tirx.IntImm("int64", 0)])
        call_tir = ir.Op.get("relax.call_tir")
        return ir.Call(call_tir, [self._made[symbol], operands], call.attrs, [out_type])


def host_function(symbol: str, inputs: int, outputs: int) -> tirx.PrimFunc:
    """The function that calls `symbol` with so many tensors.

    It takes a number between inputs and outputs, and ignores it: where all of a call's arguments
    are constant tensors, FoldConstant would call the kernel while TVM compiles, when it is not
    linked yet.
    """
    tensors = [tirx.Var(f"t{index}", "handle") for index in range(inputs + outputs)]
    passed = [tirx.op.tvm_struct_get(tensor, 0, _TENSOR, "handle") for tensor in tensors]
    body = tirx.Evaluate(tirx.call_cpacked(f"{_EXPORT_PREFIX}{symbol}", *passed))
    params = [*tensors[:inputs], tirx.Var("ignored", "int64"), *tensors[inputs:]]
    attrs = {SYMBOL: symbol, "op_pattern": _OPAQUE, SCHEDULED: True}
    return tirx.PrimFunc(params, body).with_attrs(attrs)


def with_host_functions(module: tvm.IRModule, symbols: Sequence[str]) -> tvm.IRModule:
    """`module`, whose regions with these symbols are called by functions of its own."""
    calls = _Calls(module, symbols)
    for gvar, function in module.functions.items():
        if isinstance(function, relax.Function):
            calls.builder_.update_func(gvar, calls.visit_expr(function))
    return calls.builder_.get()
