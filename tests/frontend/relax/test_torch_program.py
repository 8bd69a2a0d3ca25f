"""PyTorch programs in every float type, with open dimensions and nested arguments, as PyTorch has
them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from boltgen.frontend.torch.program import ImportedProgram, import_program, with_shapes
from boltgen.ir.dtypes import DType

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# The relative error of one rounding in the type of a program's results.
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, time, self.heads, width // self.heads).transpose(1, 2)

        operands = map(split, (self.query(x), self.key(x), self.value(x)))
        mixed = nn.functional.scaled_dot_product_attention(*operands, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, time, width)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.up, self.head = nn.ConvTranspose2d(16, 16, 2, stride=2), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(torch.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # The module, its input's shape, and how many results are rounded one after another at most.
    "encoder": (encoder, (2, 6, 32), 8),
    "attention": (Attention, (2, 6, 32), 4),
    "convolutions": (Convolutions, (2, 8, 8, 8), 4),
    "lstm": (lambda: nn.LSTM(8, 16, batch_first=True), (2, 5, 8), 5 * 3),
    "gru": (lambda: nn.GRU(8, 16, batch_first=True), (2, 5, 8), 5 * 3),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    module, shape, _ = MODULES[name]
    return module().eval(), torch.randn(shape)


def array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().numpy()


def agree(
    model: Model,
    module: nn.Module,
    x: torch.Tensor,
    roundings: int,
    dtype: str,
    *,
    precision: DType = DType.F16,
) -> None:
    """The compiled results are those that PyTorch has in FP32, within the rounding of `dtype`.

    Products are in `precision`, so each value in between is off by its unit roundoff of the
    largest, however wide the program is; the errors add up at worst.
    """
    actual = model.run(array(x))
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(module.float()(x.float()))
    for result, exact in zip(actual, results, strict=True):
        assert str(result.dtype) == dtype
        scale = max(1.0, float(exact.abs().max()))
        bound = scale * (roundings * precision.unit_roundoff + ROUNDOFF[dtype])
        np.testing.assert_allclose(
            result.astype(np.float64), exact.numpy(), rtol=0, atol=bound, err_msg=dtype
        )


@pytest.mark.parametrize("precision", [DType.F16, DType.BF16], ids=lambda each: each.value)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODULES)
def test_a_program_agrees_with_pytorch(name: str, dtype: str, precision: DType) -> None:
    module, x = made(name)
    module, x = module.to(DTYPES[dtype]), x.to(DTYPES[dtype])
    program = torch.export.export(module, (x,))
    imported = import_model(program)
    assert [spec.dtype for spec in imported.inputs] == [dtype]
    assert {spec.dtype for spec in imported.outputs} == {dtype}
    model = Model(imported.module, normalise=True, precision=precision)
    assert model.regions
    layers = [layer for region in model.regions for layer in region.workload.layers]
    problems = [layer.problem for layer in layers]
    assert {each.in_dtype for each in problems if each.flops} == {precision}
    agree(model, module, x, MODULES[name][2], dtype, precision=precision)


def test_the_users_program_stays_as_it_was() -> None:
    module, x = made("convolutions")
    program = torch.export.export(module.bfloat16(), (x.bfloat16(),))
    before = str(program.graph)
    import_program(program)
    assert str(program.graph) == before
    assert {p.dtype for p in program.state_dict.values() if p.is_floating_point()} == {
        torch.bfloat16
    }


def test_a_bfloat16_program_says_that_it_is_widened(caplog: pytest.LogCaptureFixture) -> None:
    module, x = made("attention")
    import_program(torch.export.export(module.bfloat16(), (x.bfloat16(),)))
    assert "BF16" in caplog.text
    assert "widened to FP32" in caplog.text


def symbolic(name: str, axes: dict[int, Any]) -> tuple[ImportedProgram, nn.Module]:
    module, x = made(name)
    return import_program(torch.export.export(module, (x,), dynamic_shapes=(axes,))), module


@pytest.mark.parametrize(
    ("name", "axes", "sizes"),
    [
        ("convolutions", {0: Dim("batch", min=1, max=16)}, [(1, 8, 8, 8), (5, 8, 8, 8)]),
        ("lstm", {0: Dim("batch", min=1, max=16)}, [(1, 5, 8), (3, 5, 8)]),
        (
            "encoder",
            {0: Dim("batch", min=1, max=16), 1: Dim("time", min=2, max=64)},
            [(3, 4, 32), (1, 9, 32)],
        ),
    ],
)
def test_open_dimensions_stay_open(
    name: str, axes: dict[int, Any], sizes: list[tuple[int, ...]]
) -> None:
    imported, module = symbolic(name, axes)
    model = Model(with_shapes(imported, {}), normalise=True)
    for size in sizes:
        agree(model, module, torch.randn(size), MODULES[name][2], "float32")


class Positions(nn.Module):
    """Adds the first rows of a table, from the second on, and of what is cut from a result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time = x.shape[1]
        y = x + self.table[:, :time] + self.table[:, 1 : time + 1]
        return y[:, : time - 1] * torch.cat((x, x), 1)[:, : time - 1]


def test_slices_that_end_at_an_open_extent() -> None:
    axes = {0: Dim("batch", min=1, max=4), 1: Dim("time", min=3, max=63)}
    module = Positions()
    x = torch.randn(2, 9, 32)
    imported = import_program(torch.export.export(module, (x,), dynamic_shapes=(axes,)))
    model = Model(with_shapes(imported, {}), normalise=True)
    for size in ((1, 3, 32), (4, 63, 32)):
        given = torch.randn(size)
        (actual,) = model.run(given.numpy())
        wanted = module(given)
        # Three sums and a product, each of them rounded to FP16.
        scale = float(wanted.abs().max())
        np.testing.assert_allclose(actual, wanted.numpy(), rtol=0, atol=8 * 2**-11 * scale)


def test_given_shapes_fix_what_they_name() -> None:
    axes = {0: Dim("batch", min=1, max=16), 1: Dim("time", min=2, max=64)}
    imported, module = symbolic("attention", axes)
    (name,) = imported.inputs
    fixed = with_shapes(imported, {name: (3, 9, 32)})
    assert [int(extent) for extent in fixed["main"].params[0].ty.shape] == [3, 9, 32]
    model = Model(fixed, normalise=True)
    assert len(model.regions) == 4  # query, key, value, and attention
    agree(model, module, torch.randn(3, 9, 32), MODULES["attention"][2], "float32")
    assert sorted(imported.ranges.values()) == [(1, 16), (2, 64)]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((17, 8, 32), ["17", "1 to 16", "torch.export.Dim"]),
        ((4, 65, 32), ["65", "2 to 64"]),
        ((4, 8, 31), ["(4, 8, 31)", "does not fit"]),
        ((4, 8), ["(4, 8)", "does not fit"]),
    ],
)
def test_shapes_that_do_not_fit(shape: tuple[int, ...], words: list[str]) -> None:
    axes = {0: Dim("batch", min=1, max=16), 1: Dim("time", min=2, max=64)}
    imported, _ = symbolic("attention", axes)
    with pytest.raises(ModelImportError) as caught:
        with_shapes(imported, {imported.inputs[0]: shape})
    for word in words:
        assert word in str(caught.value)
    with pytest.raises(ModelImportError, match="names the input 'image'"):
        with_shapes(imported, {"image": shape})


def test_dimensions_that_are_computed_from_others() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x]) + y

    batch = Dim("batch", min=1, max=16)
    program = torch.export.export(
        Halves(), (torch.ones(3, 8), torch.ones(6, 8)), dynamic_shapes=({0: batch}, {0: 2 * batch})
    )
    imported = import_program(program)
    assert import_model(program, shapes={"x": (4, 8), "y": (8, 8)}).outputs[0].shape == (8, 8)
    with pytest.raises(ModelImportError, match=r"\(9, 8\) given for input 'y'.*\(8, 8\)"):
        with_shapes(imported, {"x": (4, 8), "y": (9, 8)})


class Nested(nn.Module):
    """Arguments and results as users of PyTorch nest them; one argument is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 16)

    def forward(
        self, pair: tuple[torch.Tensor, torch.Tensor], *, options: dict[str, Any], twice: bool
    ) -> dict[str, Any]:
        y = self.dense(pair[0] + pair[1]) * options["scale"]
        return {"first": y, "rest": [y + 1 if twice else y, (pair[0], y)], "none": None}


def test_nested_arguments_and_results() -> None:
    torch.manual_seed(0)
    module = Nested().eval()
    a, b, scale = torch.randn(4, 8), torch.randn(4, 8), torch.randn(16)
    arguments = {"options": {"scale": scale}, "twice": True}
    imported = import_model(torch.export.export(module, ((a, b),), arguments))
    assert [spec.name for spec in imported.inputs] == ["pair_0", "pair_1", "options_scale"]
    names = [spec.name for spec in imported.outputs]
    assert len(names) == len(set(names)) == 4
    actual = Model(imported.module, normalise=True).run(array(a), array(b), array(scale))
    expected = torch.utils._pytree.tree_leaves(module((a, b), **arguments))
    for result, exact in zip(actual, [e for e in expected if e is not None], strict=True):
        bound = 4 * 2.0**-11 * max(1.0, float(exact.abs().max()))
        np.testing.assert_allclose(result, exact.detach().numpy(), rtol=0, atol=bound)


def test_a_program_that_keeps_state_is_refused() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    class Writer(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            image.add_(1)
            return image * 2

    for module, named in ((Counter(), "buffer 'count'"), (Writer(), "input 'image'")):
        program = torch.export.export(module, (torch.zeros(4),))
        with pytest.raises(ModelImportError, match=f"changes its {named} when it runs"):
            import_program(program)


def test_parameters_beyond_fp16_are_no_reason_to_refuse() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(8, 8, bias=False)
            self.dense.weight = nn.Parameter(7e4 * torch.eye(8))
            self.register_buffer("mask", torch.full((8, 8), -torch.inf).triu(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.dense(x) + self.mask, -1)

    x = torch.linspace(0, 1e-4, 64).reshape(8, 8)
    program = torch.export.export(Masked(), (x,))
    model = Model(import_program(program).module, normalise=True)
    (product,) = [each for each in model.annotated.placements if each.operator == "matmul"]
    assert product.region is None
    assert "65504" in product.reason
    (actual,) = model.run(array(x))
    # The scores are below 8, and FP16 has them and the results within 2^-11 of themselves.
    np.testing.assert_allclose(actual, Masked()(x).detach().numpy(), rtol=9 * 2.0**-11, atol=0)


def test_a_product_of_integers_is_refused() -> None:
    class Integers(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x

    program = torch.export.export(Integers(), (torch.ones(4, 4, dtype=torch.int64),))
    with pytest.raises(ModelImportError, match=r"product 'mm'.*int64.*cast its operands"):
        import_program(program)


def test_a_foreign_archive_is_refused_without_torchs_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ModelImportError, match=r"model\.pt2: not a program that torch"):
        import_model(path)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out


class Reductions(torch.nn.Module):
    """What TVM's importer has no converter for."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.logsumexp(x, (-2, -1)),
            x.amin((0, 2), keepdim=True),
            x.prod(1),
            torch.nn.functional.pad(x, (2, 1, 0, 3), mode="reflect"),
            torch.nn.functional.instance_norm(x, weight=torch.arange(1.0, 4.0)),
        )


def test_operators_that_tvms_importer_lacks() -> None:
    x = torch.randn((2, 3, 4, 5), generator=torch.Generator().manual_seed(3))
    model = Model(import_model(torch.export.export(Reductions(), (x,))).module, normalise=True)
    for actual, wanted in zip(model.run(x.numpy()), Reductions()(x), strict=True):
        # At most five values on the way, each with one rounding to FP16.
        scale = float(wanted.abs().max())
        np.testing.assert_allclose(actual, wanted.numpy(), rtol=0, atol=5 * 2**-11 * scale)


class Places(torch.nn.Module):
    """Rows and columns by their places, where several axes are indexed and others are whole."""

    def forward(self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[Any, ...]:
        square = i[:, None] + j[None, :]
        return (
            x[i, j],
            x[:, i, j],
            x[:, :, i, j],
            x[i, :, j],
            x[:, i, :, j],
            x[:, square % 3, square % 2],
            x[:, i[:, None], :, j[None, :]],
            (x > 0).cumsum(-1),
            (10 * x).to(torch.int32).cumsum(1),
            x.cumsum(0),
        )


def test_places_in_several_axes_and_running_sums() -> None:
    x = torch.arange(81.0).reshape(3, 3, 3, 3) - 40
    i, j = torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0])
    program = torch.export.export(Places(), (x, i, j))
    model = Model(import_model(program).module, normalise=True)
    results = model.run(x.numpy(), i.numpy(), j.numpy())
    for actual, wanted in zip(results, Places()(x, i, j), strict=True):
        assert (actual.shape, str(actual.dtype)) == (
            tuple(wanted.shape),
            str(wanted.dtype).removeprefix("torch."),
        )
        np.testing.assert_array_equal(actual, wanted.numpy())


class Running(torch.nn.Module):
    """Sums and products along an axis, which PyTorch widens where it has truth values."""

    def forward(self, ends: torch.Tensor, small: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            ends.cumprod(0),
            ends.prod(1),
            ends.prod(0, keepdim=True),
            small.prod(),
            small.cumsum(1, dtype=torch.float32),
        )


def test_running_products_of_truth_values_are_numbers() -> None:
    ends = torch.rand((3, 9), generator=torch.Generator().manual_seed(3)) < 0.6
    small = torch.arange(1, 7, dtype=torch.int32).reshape(2, 3)
    wanted = Running()(ends, small)
    model = Model(import_model(torch.export.export(Running(), (ends, small))).module)
    for actual, exact in zip(model.run(ends.numpy(), small.numpy()), wanted, strict=True):
        np.testing.assert_array_equal(actual, exact.numpy(), strict=True)
