"""Rules that write operators on complex numbers of a torch.export graph over pairs of real ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from boltgen.frontend.torch.types import dtype_of, overloads


class Parts(NamedTuple):
    """The real and the imaginary part of a complex value: nodes of the graph, or numbers."""

    real: Any
    imaginary: Any


# Operators that do to each part what they do to the whole; their first argument is complex.
_VIEWS = overloads(
    (
        "view reshape _unsafe_view permute unsqueeze expand clone alias t repeat flip roll",
        "default",
    ),
    ("split_with_sizes lift_fresh_copy contiguous detach tril triu diagonal neg", "default"),
    ("index_select gather constant_pad_nd cumsum embedding as_strided unfold", "default"),
    ("resolve_conj resolve_neg squeeze", "default"),
    ("sum mean", "default dim dim_IntList"),
    ("squeeze", "dim dims"),
    ("select transpose unbind", "int"),
    ("split slice index", "Tensor"),
    ("repeat_interleave", "self_int"),
)
# Sums, choices and joins; a real operand has the imaginary part 0.
_JOINS = overloads(("add sub rsub", "Tensor Scalar"), ("where", "self"), ("cat stack", "default"))
_CONJUGATES = overloads(("_conj conj _conj_physical conj_physical", "default"))
_FACTORIES = overloads(("full scalar_tensor zeros ones full_like zeros_like ones_like", "default"))
_PRODUCTS = overloads(("mm bmm matmul", "default"))


def is_complex(value: Any) -> bool:
    """Whether a node of the graph, or a number, is complex."""
    if isinstance(value, complex):
        return True
    dtype = dtype_of(value) if hasattr(value, "meta") else None
    return dtype is not None and bool(dtype.is_complex)


def _real_dtype(dtype: Any) -> Any:
    """Return the type of the parts of complex numbers; None stays None."""
    return dtype.to_real() if dtype is not None and dtype.is_complex else dtype


class PairWriter:
    """Adds operators on real values to a graph, and knows the parts of its complex values."""

    def __init__(self, graph: Any) -> None:
        import torch  # noqa: PLC0415
        from torch._guards import detect_fake_mode  # noqa: PLC0415

        self.aten = torch.ops.aten
        self.graph = graph
        self.mode = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
        self.pairs: dict[Any, Parts] = {}
        self._map = torch.fx.node.map_arg

    def emit(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Add a call of an operator on real values."""
        made = self.graph.call_function(target, args, kwargs)
        values = self._map((args, kwargs), lambda node: node.meta["val"])
        with self.mode:
            made.meta["val"] = target(*values[0], **values[1])
        return made

    def parts(self, value: Any) -> Parts:
        """Return the parts of an operand: a complex value, a real tensor, or a number."""
        if value in self.pairs:
            return self.pairs[value]
        if hasattr(value, "meta"):
            return Parts(value, self.emit(self.aten.full_like.default, value, 0))
        number = complex(value)
        return Parts(number.real, number.imag)

    def is_real(self, value: Any) -> bool:
        """Whether an operand is a real tensor or a real number."""
        return value not in self.pairs and not isinstance(value, complex)


Rule: TypeAlias = Callable[[PairWriter, Any], Any]


def _viewed(writer: PairWriter, node: Any) -> Parts:
    first, *rest = node.args
    kwargs = {key: value for key, value in node.kwargs.items() if key != "dtype"}
    return Parts(*(writer.emit(node.target, part, *rest, **kwargs) for part in writer.parts(first)))


def _joined(writer: PairWriter, node: Any) -> Any:
    """Apply an operator to the parts of all operands; a condition stays."""
    if "alpha" in node.kwargs and isinstance(node.kwargs["alpha"], complex):
        return NotImplemented
    is_choice = node.target.__name__ == "where.self"

    def part(value: Any, place: int) -> Any:
        if isinstance(value, (list, tuple)):
            return [writer.parts(each)[place] for each in value]
        return writer.parts(value)[place]

    fixed = node.args[:1] if is_choice else ()
    given = node.args[len(fixed) :]
    if node.target.__name__ in {"cat.default", "stack.default"}:
        given, rest = given[:1], given[1:]
    else:
        given, rest = given[:2], given[2:]
    return Parts(
        *(
            writer.emit(
                node.target, *fixed, *(part(each, p) for each in given), *rest, **node.kwargs
            )
            for p in (0, 1)
        )
    )


def _conjugate(writer: PairWriter, node: Any) -> Parts:
    real, imaginary = writer.parts(node.args[0])
    return Parts(real, writer.emit(writer.aten.neg.default, imaginary))


def _times(writer: PairWriter, a: Any, b: Any) -> Any:
    return writer.emit(writer.aten.mul.Tensor, a, b)


def _multiplied(writer: PairWriter, node: Any) -> Parts:
    return _product(writer, node.args[0], node.args[1], writer.aten.mul.Tensor)


def _product(writer: PairWriter, x: Any, y: Any, target: Any) -> Parts:
    """A product that is linear in both operands; one with a real operand is two products."""

    def times(a: Any, b: Any) -> Any:
        if not hasattr(a, "meta"):
            a, b = b, a
        return writer.emit(target, a, b)

    if writer.is_real(y):
        return Parts(*(times(part, y) for part in writer.parts(x)))
    if writer.is_real(x):
        return Parts(*(times(x, part) for part in writer.parts(y)))
    (a, b), (c, d) = writer.parts(x), writer.parts(y)
    add, sub = writer.aten.add.Tensor, writer.aten.sub.Tensor
    return Parts(
        writer.emit(sub, times(a, c), times(b, d)), writer.emit(add, times(a, d), times(b, c))
    )


def _matrices(writer: PairWriter, node: Any) -> Parts:
    return _product(writer, node.args[0], node.args[1], node.target)


def _added_product(writer: PairWriter, node: Any) -> Any:
    """`addmm` and `baddbmm`: (addend, x, y)."""
    if node.kwargs:
        return NotImplemented
    addend, x, y = node.args
    target = writer.aten.mm if node.target.__name__ == "addmm.default" else writer.aten.bmm
    product = _product(writer, x, y, target.default)
    pairs = zip(product, writer.parts(addend), strict=True)
    return Parts(*(writer.emit(writer.aten.add.Tensor, part, own) for part, own in pairs))


def _square(writer: PairWriter, real: Any, imaginary: Any) -> Any:
    """The square of the absolute value."""
    squares = _times(writer, real, real), _times(writer, imaginary, imaginary)
    return writer.emit(writer.aten.add.Tensor, *squares)


def _inverse(writer: PairWriter, value: Any) -> Parts:
    real, imaginary = writer.parts(value)
    square = _square(writer, real, imaginary)
    div, neg = writer.aten.div.Tensor, writer.aten.neg.default
    return Parts(
        writer.emit(div, real, square), writer.emit(neg, writer.emit(div, imaginary, square))
    )


def _divided(writer: PairWriter, node: Any) -> Any:
    x, y = node.args
    if node.kwargs:
        return NotImplemented
    if isinstance(y, complex):
        number = 1 / y
        return _scaled(writer, writer.parts(x), Parts(number.real, number.imag))
    if writer.is_real(y):
        return Parts(*(writer.emit(node.target, part, y) for part in writer.parts(x)))
    inverse = _inverse(writer, y)
    if writer.is_real(x):
        return Parts(*(writer.emit(writer.aten.mul.Tensor, part, x) for part in inverse))
    return _scaled(writer, writer.parts(x), inverse)


def _scaled(writer: PairWriter, x: Parts, y: Parts) -> Parts:
    """Return the product of two complex values by their parts; the parts of x are nodes."""
    (a, b), (c, d) = x, y
    sub, add = writer.aten.sub.Tensor, writer.aten.add.Tensor
    return Parts(
        writer.emit(sub, _times(writer, a, c), _times(writer, b, d)),
        writer.emit(add, _times(writer, a, d), _times(writer, b, c)),
    )


def _raised(writer: PairWriter, node: Any) -> Any:
    """Powers by whole numbers from 1 to 4, as products."""
    x, exponent = node.args
    if exponent not in {1, 2, 3, 4}:
        return NotImplemented
    base = made = writer.parts(x)
    for _ in range(int(exponent) - 1):
        made = _scaled(writer, made, base)
    return made


def _from_parts(writer: PairWriter, node: Any) -> Parts:
    """`complex`: (real part, imaginary part), which broadcast."""
    expand = writer.aten.expand.default
    wanted = node.meta["val"].shape
    return Parts(
        *(
            part if part.meta["val"].shape == wanted else writer.emit(expand, part, list(wanted))
            for part in node.args
        )
    )


def _polar(writer: PairWriter, node: Any) -> Parts:
    """`polar`: (absolute value, angle)."""
    size, angle = node.args
    aten = writer.aten
    turns = (writer.emit(each, angle) for each in (aten.cos.default, aten.sin.default))
    return Parts(*(writer.emit(aten.mul.Tensor, size, each) for each in turns))


def _paired(writer: PairWriter, node: Any) -> Parts:
    """`view_as_complex`: the last axis has the parts."""
    (x,) = node.args
    axis = x.meta["val"].dim() - 1
    return Parts(*(writer.emit(writer.aten.select.int, x, axis, place) for place in (0, 1)))


def _stacked(writer: PairWriter, node: Any) -> Any:
    """`view_as_real`: the parts along a new last axis; taking a part from it returns that part."""
    parts = writer.parts(node.args[0])
    axis = parts.real.meta["val"].dim()
    for user in list(node.users):
        if user.target is writer.aten.select.int and user.args[1] in {axis, -1}:
            user.replace_all_uses_with(parts[user.args[2]])
    return writer.emit(writer.aten.stack.default, list(parts), axis)


def _size(writer: PairWriter, node: Any) -> Any:
    square = _square(writer, *writer.parts(node.args[0]))
    return writer.emit(writer.aten.sqrt.default, square)


def _angle(writer: PairWriter, node: Any) -> Any:
    real, imaginary = writer.parts(node.args[0])
    return writer.emit(writer.aten.atan2.default, imaginary, real)


def _exponential(writer: PairWriter, node: Any) -> Parts:
    aten = writer.aten
    real, imaginary = writer.parts(node.args[0])
    size = writer.emit(aten.exp.default, real)
    turns = (writer.emit(each, imaginary) for each in (aten.cos.default, aten.sin.default))
    return Parts(*(writer.emit(aten.mul.Tensor, size, each) for each in turns))


def _logarithm(writer: PairWriter, node: Any) -> Parts:
    size = writer.emit(writer.aten.log.default, _size(writer, node))
    return Parts(size, _angle(writer, node))


def _filled(writer: PairWriter, node: Any) -> Any:
    """Constants of one number; `full_like` and the like may be given a real tensor."""
    name = node.target.__name__.partition(".")[0]
    places = {"full": 1, "full_like": 1, "scalar_tensor": 0}
    value = node.args[places[name]] if name in places else float(name.startswith("ones"))
    kwargs = {**node.kwargs, "dtype": _real_dtype(dtype_of(node))}
    kwargs.pop("memory_format", None)
    parts = []
    for number in writer.parts(value) if is_complex(node) else (value,):
        if name == "scalar_tensor":
            parts.append(writer.emit(node.target, number, **kwargs))
            continue
        is_like = name.endswith("_like")
        target = writer.aten.full_like.default if is_like else writer.aten.full.default
        first = writer.parts(node.args[0]).real if is_like else node.args[0]
        parts.append(writer.emit(target, first, number, **kwargs))
    return Parts(*parts) if len(parts) > 1 else parts[0]


def _cast(writer: PairWriter, node: Any) -> Any:
    """`_to_copy`; complex numbers as real ones lose their imaginary part, as in PyTorch."""
    dtype = node.kwargs.get("dtype", dtype_of(node))
    (x,), kwargs = node.args, {**node.kwargs, "dtype": _real_dtype(dtype)}
    parts = writer.parts(x)
    if not dtype.is_complex:
        return writer.emit(node.target, parts.real, **kwargs)
    return Parts(*(writer.emit(node.target, part, **kwargs) for part in parts))


def _compared(writer: PairWriter, node: Any) -> Any:
    """Equal if both parts are; different if one is."""
    aten = writer.aten
    is_equal = node.target.__name__.startswith("eq")
    pairs = list(zip(*map(writer.parts, node.args), strict=True))
    both = [writer.emit(node.target, left, right) for left, right in pairs]
    joint = aten.logical_and.default if is_equal else aten.logical_or.default
    return writer.emit(joint, *both)


def _element(writer: PairWriter, node: Any) -> Parts:
    """One result of an operator with several."""
    parts, place = writer.parts(node.args[0]), node.args[1]
    return Parts(*(writer.emit(operator.getitem, part, place) for part in parts))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_VIEWS, _viewed),
    **dict.fromkeys(_JOINS, _joined),
    **dict.fromkeys(_CONJUGATES, _conjugate),
    **dict.fromkeys(_FACTORIES, _filled),
    **dict.fromkeys(_PRODUCTS, _matrices),
    **dict.fromkeys(("addmm.default", "baddbmm.default"), _added_product),
    **dict.fromkeys(overloads(("eq ne", "Tensor Scalar")), _compared),
    **dict.fromkeys(overloads(("mul", "Tensor Scalar")), _multiplied),
    "_to_copy.default": _cast,
    "abs.default": _size,
    "angle.default": _angle,
    "complex.default": _from_parts,
    "div.Tensor": _divided,
    "exp.default": _exponential,
    "getitem": _element,
    "log.default": _logarithm,
    "polar.default": _polar,
    "pow.Tensor_Scalar": _raised,
    "reciprocal.default": lambda writer, node: _inverse(writer, node.args[0]),
    "sym_size.int": lambda writer, node: writer.emit(
        node.target, writer.parts(node.args[0]).real, node.args[1]
    ),
    "view_as_complex.default": _paired,
    "view_as_real.default": _stacked,
}
