"""Extents that a model gives two names: they become one, or are refused, and values stay right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax import VirtualMachine

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import ImportedModel
from boltgen.frontend.relax import import_model, with_computed_dimensions
from boltgen.frontend.relax.symbols import Symbols

Arrays = Mapping[str, np.ndarray[Any, Any]]
RNG = np.random.default_rng(0)
SCALES = {"e": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}


def model_of(text: str, constants: Arrays | None = None) -> Any:
    graph = onnx.parser.parse_graph(text)
    for name, value in (constants or {}).items():
        graph.initializer.append(numpy_helper.from_array(value, name))
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)


def run(imported: ImportedModel, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The first output, by TVM's code for the host."""
    module = with_computed_dimensions(imported.module)
    machine = VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, arrays))
    return np.asarray((result if hasattr(result, "numpy") else result[0]).numpy())


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def shapes_of(imported: ImportedModel) -> list[tuple[int | str, ...] | None]:
    return [each.shape for each in (*imported.inputs, *imported.outputs)]


Case = tuple[str, str, Arrays, list[tuple[int | str, ...]], Callable[..., Any], list[Any]]
CASES: list[Case] = [
    (
        "two names",
        "g (float[H,4] x, float[W,4] y) => (float[H,4] r) { r = Add(x, y) }",
        {},
        [("H", 4), ("H", 4), ("H", 4)],
        lambda x, y: x + y,
        [(3, 4), (3, 4)],
    ),
    (
        "joined rows",
        "g (float[H,4] x, float[W,4] y, float[P,4] z) => (float[P,4] r)"
        " { u = Concat<axis=0>(x, y) r = Mul(u, z) }",
        {},
        [("H", 4), ("W", 4), ("H + W", 4), ("H + W", 4)],
        lambda x, y, z: np.concatenate([x, y]) * z,
        [(3, 4), (2, 4), (5, 4)],
    ),
    (
        "a pyramid",
        "g (float[1,2,H,W] x, float[1,2,P,Q] z) => (float[1,2,P,Q] y)"
        ' { u = Resize<mode="nearest">(x, e, s) y = Add(u, z) }',
        SCALES,
        [(1, 2, "H", "W"), (1, 2, "2*H", "2*W"), (1, 2, "2*H", "2*W")],
        lambda x, z: x.repeat(2, 2).repeat(2, 3) + z,
        [(1, 2, 3, 5), (1, 2, 6, 10)],
    ),
    (
        "down and up",
        "g (float[1,2,H,W] x, float[1,2,P,Q] y) => (float[1,2,P,Q] r)"
        " { u = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)"
        ' v = Resize<mode="nearest">(u, e, s) r = Add(v, y) }',
        SCALES,
        [(1, 2, "H", "W"), *2 * [(1, 2, "2*(H // 2)", "2*(W // 2)")]],
        lambda x, y: (
            x[:, :, :4, :4].reshape(1, 2, 2, 2, 2, 2).max((3, 5)).repeat(2, 2).repeat(2, 3) + y
        ),
        [(1, 2, 5, 4), (1, 2, 4, 4)],
    ),
    (
        "without the first",
        "g (float[H,4] x, float[L,4] y) => (float[L,4] r) { u = Slice(x, a, b, c) r = Sub(u, y) }",
        {"a": np.array([1]), "b": np.array([2**31 - 1]), "c": np.array([0])},
        [("H", 4), *2 * [("-1 + H", 4)]],
        lambda x, y: x[1:] - y,
        [(5, 4), (4, 4)],
    ),
    (
        "inner extents",
        "g (float[B,H,K] x, float[C,L,5] y) => (float[B,H,5] r) { r = MatMul(x, y) }",
        {},
        [("B", "H", "K"), ("B", "K", 5), ("B", "H", 5)],
        lambda x, y: x @ y,
        [(2, 3, 7), (2, 7, 5)],
    ),
    (
        "other axes",
        "g (float[H,4] x, float[L,4] y) => (float[H,8] r) { r = Concat<axis=1>(x, y) }",
        {},
        [("H", 4), ("H", 4), ("H", 8)],
        lambda x, y: np.concatenate([x, y], 1),
        [(3, 4), (3, 4)],
    ),
    (
        "a chain of them",
        "g (bool[H,4] c, float[L,4] y, float[P,4] z, float[Q,4] w) => (float[H,4] r)"
        " { u = Where(c, y, z) v = Relu(u) r = Max(v, w) }",
        {},
        [("H", 4)] * 5,
        lambda c, y, z, w: np.maximum(np.where(c, y, z).clip(0), w),
        [(3, 4)] * 4,
    ),
    (
        "a constant",
        "g (float[H,4] x) => (float[H,4] r) { r = Add(x, k) }",
        {"k": np.arange(32, dtype=np.float32).reshape(8, 4)},
        [(8, 4), (8, 4)],
        lambda x: x + np.arange(32, dtype=np.float32).reshape(8, 4),
        [(8, 4)],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_extents_that_are_equal_have_one_name(case: Case) -> None:
    _, text, constants, shapes, right, given = case
    imported = import_model(model_of(text, constants))
    assert shapes_of(imported) == shapes
    arrays = [numbers(*shape) for shape in given]
    if "bool[" in text:
        arrays[0] = arrays[0] > 0
    np.testing.assert_allclose(run(imported, *arrays), right(*arrays), rtol=1e-5, atol=1e-5)


def test_what_is_never_equal_is_refused() -> None:
    model = model_of(
        "g (float[H,4] x, float[1,4] o) => (float[H,4] r)"
        " { u = Concat<axis=0>(x, o) r = Add(u, x) }"
    )
    said = r"add takes the extents .*H.* for equal, and they never are: .*dimensions H .*inputs x"
    with pytest.raises(ModelImportError, match=said):
        import_model(model)


TWICE = (
    "g (float[H,4] x, float[P,4] z) => (float[P,4] r) { u = Concat<axis=0>(x, x) r = Add(u, z) }"
)


def test_a_range_is_that_of_the_dimension_that_is_left() -> None:
    imported = import_model(model_of(TWICE), shapes={"x": ("1..64", 4), "z": ("5..20", 4)})
    assert dict(imported.dimensions) == {"H": (3, 10)}
    with pytest.raises(ModelImportError, match=r"'P' is given the range 30 to 40, .* for H \* 2"):
        import_model(model_of(TWICE), shapes={"x": ("1..4", 4), "z": ("30..40", 4)})


def test_a_fixed_size_fixes_the_other() -> None:
    imported = import_model(model_of(TWICE), shapes={"z": (8, 4)})
    assert shapes_of(imported) == [(4, 4), (8, 4), (8, 4)]


class Frames(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, 2, 4).sum(1)


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1


class Shorter(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[1:] * y


H = torch.export.Dim("h", min=1, max=16)
FREE = torch.export.Dim.AUTO
DERIVED: list[tuple[torch.nn.Module, list[int], list[Any], list[Any], tuple[int, int | None]]] = [
    (Plain(), [8], [2 * H], ["2*{}"], (1, 16)),
    (Plain(), [8], [H + 1], ["1 + {}"], (1, 16)),
    (Plain(), [9], [4 * H + 1], ["1 + 4*{}"], (1, 16)),
    (Frames(), [8], [2 * H], ["2*{}"], (1, 16)),
    (Shorter(), [8, 7], [H + 1, H], ["1 + {}", "{}"], (1, 16)),
    (Shorter(), [8, 7], [FREE, FREE], ["1 + {}", "{}"], (2, None)),
]


@pytest.mark.parametrize(("module", "rows", "dims", "texts", "ends"), DERIVED)
def test_dimensions_that_are_formulas_of_others(
    module: torch.nn.Module,
    rows: list[int],
    dims: list[Any],
    texts: list[str],
    ends: tuple[int, int | None],
) -> None:
    inputs = tuple(torch.randn(each, 4) for each in rows)
    program = torch.export.export(module, inputs, dynamic_shapes=[{0: each} for each in dims])
    imported = import_model(program)
    ((name, found),) = imported.dimensions.items()
    assert found == ends
    assert [each.shape for each in imported.inputs] == [(t.format(name), 4) for t in texts]
    for count in (ends[0], 3, 7):
        sizes = [eval(text.format(count)) for text in texts]
        given = [torch.randn(size, 4) for size in sizes]
        found_rows = run(imported, *(each.numpy() for each in given))
        np.testing.assert_allclose(found_rows, module(*given).numpy(), rtol=1e-5, atol=1e-5)


def test_a_fixed_size_of_a_formula_fixes_its_dimension() -> None:
    program = torch.export.export(Frames(), (torch.randn(8, 4),), dynamic_shapes={"x": {0: 2 * H}})
    assert shapes_of(import_model(program, shapes={"x": (6, 4)})) == [(6, 4), (3, 4)]
    with pytest.raises(ModelImportError, match="does not fit"):
        import_model(program, shapes={"x": (7, 4)})


def test_a_dimension_that_does_not_follow_from_the_inputs_is_refused() -> None:
    builder = relax.BlockBuilder()
    rows = tvm.tirx.floordiv(tvm.tirx.Var("n", "int64"), 2)
    x = relax.Var("x", relax.TensorType([rows, 4], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    with pytest.raises(ModelImportError, match=r"'x' has the extent n // 2 .* n does not follow"):
        import_model(builder.get())


def test_a_quotient_has_one_name_in_whatever_order_its_terms_are() -> None:
    s = tirx.Var("s", "int64")
    x = relax.Var("x", relax.TensorType((s, 4), "float32"))
    symbols = Symbols(relax.Function([x], x, ret_ty=x.ty))
    one, two = (tirx.IntImm("int64", number) for number in (1, 2))
    quotients = [tirx.floordiv(s - one, two), tirx.floordiv(tirx.IntImm("int64", -1) + s, two)]
    first, second = map(symbols.extent, quotients)
    assert first == second
    assert symbols.extent(tirx.floordiv(s * two, two)) == symbols.extent(s)
