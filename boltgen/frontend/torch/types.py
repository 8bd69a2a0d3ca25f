"""Insert casts into torch.export programs for PyTorch's implicit type promotion.

If integers, booleans or other floats meet floats, PyTorch computes in a common type. TVM 0.27's
importer makes a number the type of the tensor beside it, so that arange(8) * 0.5 is 0, and divides
integers as integers. Source: PyTorch, Tensor Attributes, type promotion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from boltgen.errors import ModelImportError

_log = logging.getLogger(__name__)

Converter: TypeAlias = Callable[[Any, Any], Any]


def overloads(*groups: tuple[str, str]) -> frozenset[str]:
    """Return the names of operators: in each group all names have all overloads."""
    return frozenset(
        f"{name}.{overload}"
        for names, of in groups
        for name in names.split()
        for overload in of.split()
    )


# Elementwise operators that compute in the type of their result. Their tensors are the positional
# arguments, and the elements of lists.
_COMPUTED = overloads(
    ("add sub mul div rsub remainder fmod", "Tensor Scalar"),
    ("div floor_divide", "Tensor_mode default"),
    ("pow", "Tensor_Tensor Tensor_Scalar Scalar"),
    ("maximum minimum atan2 cat stack lerp", "default"),
    ("clamp clamp_min clamp_max", "default Tensor"),
    (
        "acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log10 log1p "
        "log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh",
        "default",
    ),
)
_COMPARED = overloads(("eq ge gt le lt ne", "Tensor Scalar"))
# Each of these sums many numbers in FP16: PyTorch computes the sum in FP32, and TVM in FP16.
_SUMMED = overloads(
    ("sum mean cumsum prod", "default dim dim_IntList dim_int"),
    ("linalg_vector_norm avg_pool1d avg_pool2d avg_pool3d", "default"),
    ("_adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d", "default"),
    ("adaptive_avg_pool1d _softmax _log_softmax", "default"),
    ("var std", "correction"),
)
_SCALED = frozenset(("add.Tensor", "sub.Tensor", "rsub.Scalar", "rsub.Tensor"))


_ASSERTIONS = overloads(("_assert_async", "default msg"))
# Products that TVM's importer gives results in FP32, and which argument is added to the product.
_ADDENDS: Mapping[str, int | None] = {
    "mm.default": None,
    "bmm.default": None,
    "matmul.default": None,
    "addmm.default": 0,
    "linear.default": 2,
    "convolution.default": 2,
    "conv1d.default": 2,
    "conv2d.default": 2,
    "conv3d.default": 2,
    "conv_transpose1d.default": 2,
    "conv_transpose2d.input": 2,
    "conv_transpose3d.input": 2,
}


def dtype_of(node: Any) -> Any:
    """The dtype that PyTorch gives a node's value; a value that is no tensor has None."""
    return getattr(node.meta.get("val"), "dtype", None)


def tensors_of(program: Any) -> dict[str, Any]:
    """Return the program's tensors, by the names of their nodes."""
    signature = program.graph_signature
    named = {**program.state_dict, **program.constants}
    inputs = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {node: named[name] for node, name in inputs.items() if name in named}


def cast(graph: Any, value: Any, dtype: Any) -> Any:
    """Return a node that casts another node's value; it is put at `graph`'s insertion point."""
    import torch  # noqa: PLC0415

    made = graph.call_function(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})
    if "val" in value.meta:
        made.meta["val"] = value.meta["val"].to(dtype)
    return made


def _number(graph: Any, value: Any, dtype: Any) -> Any:
    """Return a node that turns an integer, computed from dynamic extents, into a tensor."""
    import torch  # noqa: PLC0415

    number = value.meta.get("val")
    if not isinstance(number, torch.SymInt):
        return value
    made = graph.call_function(torch.ops.aten.scalar_tensor.default, (value,), {"dtype": dtype})
    made.meta["val"] = torch.empty((), dtype=dtype, device="meta")
    return made


def promote(graph: Any) -> None:
    """Make elementwise operators of `graph` compute in the type that PyTorch computes in.

    Their factor `alpha` becomes a multiplication of its own. Sums and products of booleans become
    disjunctions and conjunctions.
    """
    import torch  # noqa: PLC0415

    aten = torch.ops.aten
    disjunction, conjunction = aten.logical_or.default, aten.logical_and.default
    logical = {
        **dict.fromkeys(("add.Tensor", "maximum.default"), disjunction),
        **dict.fromkeys(("mul.Tensor", "minimum.default"), conjunction),
    }
    for node in list(graph.nodes):
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name in _SCALED:
            _scale(graph, node)
        if name in logical and dtype_of(node) is torch.bool:
            node.target = logical[name]
        elif name in _COMPUTED:
            _cast_to(graph, node, dtype_of(node))
        elif name in _COMPARED:
            common = torch.result_type(*map(_value, node.args))
            # Truth values are compared as numbers: LLVM has no comparison of them.
            _cast_to(graph, node, torch.uint8 if common is torch.bool else common)
        elif name == "linalg_vector_norm.default" and dtype_of(node) is not torch.float16:
            _cast_to(graph, node, dtype_of(node))
        elif name in _SUMMED and dtype_of(node) is torch.float16 and not _is_row_wise(node):
            _sum_wide(graph, node)
        elif name == "where.self":
            _cast_to(graph, node, dtype_of(node), first=1)


def _is_row_wise(node: Any) -> bool:
    """Whether a node is a softmax of rows: boltgen's kernels sum these in FP32 anyway."""
    axis = node.args[1] if node.target.__name__ == "_softmax.default" else None
    return axis is not None and axis % node.meta["val"].dim() == node.meta["val"].dim() - 1


def _sum_wide(graph: Any, node: Any) -> None:
    """Compute in FP32 a node that sums in FP16, and round its result."""
    import torch  # noqa: PLC0415

    _cast_to(graph, node, torch.float32)
    if "dtype" in node.kwargs:
        node.update_kwarg("dtype", torch.float32)
    own = node.meta["val"]
    node.meta["val"] = own.float()
    with graph.inserting_after(node):
        result = cast(graph, node, torch.float16)
    node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)


def _value(argument: Any) -> Any:
    return argument.meta["val"] if hasattr(argument, "meta") else argument


def _cast_to(graph: Any, node: Any, dtype: Any, first: int = 0) -> None:
    """Cast a node's operands, from its `first` argument on, to `dtype`.

    Extents that the program leaves open become tensors, too.
    """
    import torch  # noqa: PLC0415

    def casted(argument: Any) -> Any:
        own = dtype_of(argument)
        if own is dtype:
            return argument
        with graph.inserting_before(node):
            if own is None:
                return _number(graph, argument, dtype)
            return cast(graph, argument, dtype)

    if dtype is not None:
        casts = cache(casted)
        node.args = (*node.args[:first], *torch.fx.node.map_arg(node.args[first:], casts))


def _scale(graph: Any, node: Any) -> None:
    """Multiply the added or subtracted operand by a node's `alpha`, which TVM would drop."""
    import torch  # noqa: PLC0415

    # The arguments are (x, y, alpha). add and sub scale y, and rsub is y - alpha * x.
    alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
    place = 0 if "rsub" in node.target.__name__ else 1
    scaled = node.args[place]
    node.args, node.kwargs = node.args[:2], {}
    if alpha == 1:
        return
    if not hasattr(scaled, "meta"):
        node.update_arg(place, scaled * alpha)
        return
    dtype = dtype_of(node)
    with graph.inserting_before(node):
        wide = scaled if dtype_of(scaled) is dtype else cast(graph, scaled, dtype)
        made = graph.call_function(torch.ops.aten.mul.Tensor, (wide, alpha))
        made.meta["val"] = wide.meta["val"] * alpha
    node.update_arg(place, made)


def type_products(graph: Any) -> None:
    """Give each product the type that PyTorch gives it, in a form that TVM's importer takes."""
    import torch  # noqa: PLC0415

    for node in list(graph.nodes):
        name = getattr(node.target, "__name__", "")
        if node.op != "call_function" or name not in _ADDENDS or dtype_of(node) is torch.float32:
            continue
        dtype = dtype_of(node)
        if dtype is None or not dtype.is_floating_point:
            raise ModelImportError(
                f"the product {node.name!r} ({name}) of the torch.export program is {dtype}; "
                "products are computed in floating point: cast its operands"
            )
        addend = _ADDENDS[name]
        if addend is not None and addend < len(node.args) and node.args[addend] is not None:
            with graph.inserting_before(node):
                wide = cast(graph, node.args[addend], torch.float32)
            node.update_arg(addend, wide)
        with graph.inserting_after(node):
            result = cast(graph, node, dtype)
        node.replace_all_uses_with(result, delete_user_cb=lambda user, r=result: user is not r)


def drop_assertions(graph: Any) -> None:
    """Drop what asserts something of a tensor's elements, and say so.

    An assertion reads the device back at each run, and TVM has it for Python alone.
    """
    asserting = [
        node for node in graph.nodes if getattr(node.target, "__name__", "") in _ASSERTIONS
    ]
    for node in asserting:
        message = node.args[1] if len(node.args) > 1 else node.name
        _log.warning("the compiled model does not check this of its inputs: %s", message)
        graph.erase_node(node)
    if asserting:
        graph.eliminate_dead_code()
