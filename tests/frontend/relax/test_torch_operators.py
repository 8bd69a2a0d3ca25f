"""Operators of torch.export programs, computed as PyTorch computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model
from boltgen.frontend.torch.program import import_program

X = torch.linspace(-2, 2, 15).reshape(3, 5)
COUNTS = (torch.arange(15).reshape(3, 5) * 7) % 11 - 5
PLACES = COUNTS.abs() % 5
ROWS = torch.tensor([0, 2])
LENGTHS = torch.tensor([1, 2, 3])
MANY = torch.arange(100_000) % 2
FUNCTIONAL = nn.functional

REDUCED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "any of all": lambda x, i: (x > 1).any(),
    "any of integers": lambda x, i: i.any(1),
    "any of floats": lambda x, i: x.trunc().any(0, keepdim=True),
    "any of several dimensions": lambda x, i: (x > 1).reshape(3, 5, 1).any((0, 2)),
    "all of integers": lambda x, i: i.all(1),
    "the greatest truth": lambda x, i: (x > 1).amax(1),
    "the least and its place": lambda x, i: x.min(1),
    "the least of integers": lambda x, i: (i % 3).min(0, keepdim=True),
    "a variance and a mean": lambda x, i: torch.var_mean(x, 1),
    "a deviation and a mean": lambda x, i: torch.std_mean(x, 0, correction=0),
    "a variance with another correction": lambda x, i: x.var(1, correction=2, keepdim=True),
    "a norm in another type": lambda x, i: torch.linalg.vector_norm(
        x.half(), 2, dim=1, dtype=torch.float32
    ),
}
BOUNDED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "integers from below": lambda x, i: i.clamp(min=2),
    "integers from above": lambda x, i: i.clamp(max=2),
    "integers that no float has": lambda x, i: (i + 2**60).clamp(min=2**60 + 1),
    "integers by integers": lambda x, i: i.clamp(max=i[:1]),
    "in the wrong order": lambda x, i: x.clamp(1, -1),
    "from one side by a tensor": lambda x, i: torch.clamp_max(x, x[1:2]),
}
CHOSEN: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "floats or integers": lambda x, i: torch.where(x > 0, x, i),
    "half or a number in FP32": lambda x, i: torch.where(x > 0, x.half(), torch.tensor(1.0)),
    "a step": lambda x, i: torch.heaviside(x, x),
    "equal truths": lambda x, i: (x > 0) == (i > 0),
    "different truths": lambda x, i: (x > 0) != True,  # noqa: E712
    "bits to the left and to the right": lambda x, i: ((i << 2) >> 1) + (i >> i.abs()),
    "the rest of a number": lambda x, i: torch.remainder(7, i.abs() + 1),
    "sorted truths": lambda x, i: (x > 0).sort(1)[0],
    "sorted in order": lambda x, i: torch.sort(i % 3, stable=True, descending=True),
    "the greatest in any order": lambda x, i: x.topk(2, sorted=False),
    "between ends": lambda x, i: torch.searchsorted(torch.tensor([-1.0, 0, 1]), x.round()),
    "between ends of each row": lambda x, i: torch.searchsorted(x, x + 0.1, right=True),
}
PLACED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "rows": lambda x, i: x.index_put((ROWS,), x[:2]),
    "rows that are added": lambda x, i: x.index_put((ROWS * 0,), x[:2], accumulate=True),
    "rows by a number": lambda x, i: _put(x, ROWS, 3.0),
    "a row from the end": lambda x, i: _put(x, torch.tensor([-1]), 3.0),
    "a column between": lambda x, i: _put(
        x.reshape(3, 5, 1), (slice(None), ROWS, slice(None)), 3.0
    ),
    "an index apart": lambda x, i: _put(
        x.reshape(3, 5, 1).expand(3, 5, 4).contiguous(), (ROWS, slice(None), ROWS), x[:2]
    ),
    "where a mask is": lambda x, i: _put(x, x > 0, 0.0),
    "rows of a mask": lambda x, i: _put(x, x[:, 0] > -1, x[0]),
    "columns of a mask": lambda x, i: _put(x, (slice(None), x[0] > -1.5), 0.0),
    "one after another": lambda x, i: x.masked_scatter(x > 0, x.exp()),
    "numbers of a mask": lambda x, i: _put(x, x > 0, x.reshape(-1)[:7]),
    "sums": lambda x, i: x.scatter_add(1, i.abs() % 5, x),
    "sums of integers": lambda x, i: i.scatter_add(1, i.abs() % 5, i),
    "of a larger source": lambda x, i: x.scatter(0, i.abs()[:2, :3] % 3, x),
    "sums of a larger source": lambda x, i: x.scatter_add(0, i.abs()[:2, :3] % 3, x),
    "the greatest": lambda x, i: x.scatter_reduce(1, i.abs() % 5, x.exp(), "amax"),
    "products": lambda x, i: x.scatter_reduce(1, i.abs() % 5, x.exp(), "prod"),
    "all that are added": lambda x, i: x.index_put((i % 3, i % 5), x, accumulate=True),
    "columns that are added": lambda x, i: torch.ops.aten.index_put(
        x, [None, ROWS - 1], x[:, :2], accumulate=True
    ),
    "many at once": lambda x, i: x[0].index_put((MANY,), torch.ones(len(MANY)), accumulate=True),
    "scaled rows": lambda x, i: x.index_add(0, ROWS, x[:2], alpha=2),
}
COMPOSED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "windows": lambda x, i: x.unfold(1, 3, 1),
    "windows of windows": lambda x, i: x.unfold(1, 3, 2).unfold(0, 2, 1),
    "repeats": lambda x, i: x.repeat_interleave(LENGTHS, 0, output_size=6),
    "below the diagonal": lambda x, i: torch.tril_indices(3, 4, -1),
    "above the diagonal": lambda x, i: torch.triu_indices(3, 4, 1),
    "powers of two": lambda x, i: x.exp2(),
    "distances": lambda x, i: torch.cdist(x, x.exp()),
    "hypotenuses": lambda x, i: torch.hypot(x, x + 1),
    "sums of bags": lambda x, i: FUNCTIONAL.embedding_bag(i.abs() % 3, x, mode="sum"),
    "means of bags": lambda x, i: FUNCTIONAL.embedding_bag(
        PLACES.reshape(-1) % 3, x, torch.tensor([0, 3, 3, 9])
    ),
}
CASES = {
    f"{table}: {name}": case
    for table, cases in {
        "reduced": REDUCED,
        "bounded": BOUNDED,
        "chosen": CHOSEN,
        "placed": PLACED,
        "composed": COMPOSED,
    }.items()
    for name, case in cases.items()
}


def _put(x: Tensor, place: Any, value: Any) -> Tensor:
    made = x.clone()
    made[place] = value
    return made


class Computed(nn.Module):
    """What `function` makes of floats and of integers."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, counts: Tensor) -> Any:
        return self.function(x, counts)


def _compare(actual: list[np.ndarray], wanted: Any, ulps: int = 4) -> None:
    """Results are PyTorch's, but for some units in the last place of the greatest of each."""
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    for own, tensor in zip(actual, expected, strict=True):
        torchs = tensor.numpy()
        assert own.dtype == torchs.dtype
        assert own.shape == torchs.shape
        is_float = torchs.dtype.kind == "f"
        unit = ulps * float(np.finfo(torchs.dtype).eps) if is_float else 0.0
        most = float(np.abs(torchs[np.isfinite(torchs)]).max(initial=1)) if is_float else 0.0
        np.testing.assert_allclose(own, torchs, rtol=unit, atol=unit * most)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_pytorchs(name: str) -> None:
    module = Computed(CASES[name])
    model = Model(import_model(torch.export.export(module, (X, COUNTS))).module)
    _compare(model.run(X.numpy(), COUNTS.numpy()), module(X, COUNTS))


def test_assertions_of_elements_are_dropped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    module = Computed(lambda x, i: FUNCTIONAL.one_hot(i.abs() % 5, 5))
    imported = import_program(torch.export.export(module, (X, COUNTS))).module
    assert "assert_op" not in imported.script()
    assert "one_hot: Class values must be non-negative." in caplog.text
    _compare(Model(imported).run(X.numpy(), COUNTS.numpy()), module(X, COUNTS))


TINY = torch.tensor(
    [0.0, 1e-30, -1e-12, 3e-8, -2e-5, 0.3, -0.45, -0.7, -1.0, 0.9, 5.0, 90.0, torch.inf]
)
SMALL: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "log1p": lambda x, i: torch.log1p(x),
    "expm1": lambda x, i: torch.expm1(x),
    "hypot": lambda x, i: torch.hypot(x, x * 0.75),
    "hypot of large numbers": lambda x, i: torch.hypot(x * 1e30, x * 2e30),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_results_are_right_to_a_relative_bound(name: str) -> None:
    module = Computed(SMALL[name])
    model = Model(import_model(torch.export.export(module, (TINY, COUNTS))).module)
    (actual,) = model.run(TINY.numpy(), COUNTS.numpy())
    np.testing.assert_allclose(actual, module(TINY, COUNTS).numpy(), rtol=1e-6, atol=0)


def test_a_softplus_by_log1p_keeps_its_spelling() -> None:
    module = Computed(lambda x, i: torch.log1p(torch.exp(x)))
    model = Model(import_model(torch.export.export(module, (X, COUNTS))).module)
    _compare(model.run(X.numpy(), COUNTS.numpy()), module(X, COUNTS))
    imported = import_program(torch.export.export(module, (X, COUNTS))).module
    assert "R.where" not in imported.script()


OPEN: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a variance": lambda x, i: x.var(0),
    "a deviation of all": lambda x, i: x.std(),
    "times an extent": lambda x, i: x * x.shape[0],
    "over an extent": lambda x, i: i / i.shape[0],
    "more than an extent": lambda x, i: i > i.shape[0],
    "of an extent and a part of it": lambda x, i: x + x.numel() // 3,
    "a first row that is put": lambda x, i: _put(x, slice(0, 1), 5.0),
    "a last row that is put": lambda x, i: _put(x, slice(-1, None), x[:1]),
    "windows": lambda x, i: x.unfold(1, 2, 1),
    "from the second of an extended one": lambda x, i: FUNCTIONAL.pad(x, (0, 0, 1, 1))[1:],
    "every second of an extended one": lambda x, i: FUNCTIONAL.pad(x, (0, 0, 1, 1))[::2],
    "all but the last, at their places": lambda x, i: (
        x[:-1] + torch.arange(x.shape[0] - 1)[:, None]
    ),
    "the last of an extended one": lambda x, i: FUNCTIONAL.pad(x, (0, 0, 1, 1))[-2:],
    "bounded by an extent": lambda x, i: i.clamp(max=i.shape[0] - 2),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_operator_of_open_extents(name: str) -> None:
    module = Computed(OPEN[name])
    rows = {0: Dim("rows", min=3, max=64)}
    program = torch.export.export(module, (X, COUNTS), dynamic_shapes=(rows, rows))
    model = Model(import_program(program).module)
    for x, counts in ((X, COUNTS), (X.repeat(3, 1).exp(), COUNTS.repeat(3, 1))):
        _compare(model.run(x.numpy(), counts.numpy()), module(x, counts), ulps=8)


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "a mean of what is scattered": (
        lambda x, i: x.scatter_reduce(1, i.abs() % 5, x, "mean"),
        "divide sums by counts",
    ),
    "a sum without its own": (
        lambda x, i: x.scatter_reduce(1, i.abs() % 5, x, "sum", include_self=False),
        "include_self=False",
    ),
    "a view of what is not in order": (
        lambda x, i: x.t().as_strided((3, 5), (5, 1)),
        "contiguous",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    program = torch.export.export(Computed(function), (X, COUNTS))
    with pytest.raises(ModelImportError, match=message):
        import_program(program)
