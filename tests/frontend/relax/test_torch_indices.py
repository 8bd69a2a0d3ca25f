"""Indices that count from the end, one by one and together, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import import_model
from boltgen.frontend.torch.program import import_program

X = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
ROWS, COLUMNS = torch.tensor([0, 2, -1]), torch.tensor([3, -2, 1])

CASES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "the last": lambda x, i, j: x[:, -1],
    "the last column": lambda x, i, j: x[..., -1],
    "a list": lambda x, i, j: x[:, [-1, 0]],
    "an input": lambda x, i, j: x[:, i],
    "a row of an input": lambda x, i, j: x[0, :, i],
    "all together": lambda x, i, j: x[i % 2, i, j, j],
    "the first two": lambda x, i, j: x[i % 2, i],
    "behind a whole dimension": lambda x, i, j: x[:, i, j],
    "the last two": lambda x, i, j: x[:, :, i, j],
    "with a whole dimension between": lambda x, i, j: x[:, i, :, j],
    "rows by columns": lambda x, i, j: x[:, i[:, None], j],
    "columns by rows": lambda x, i, j: x[:, i, j[:, None]],
    "three dimensions of them": lambda x, i, j: x[:, i[:, None, None], j],
    "narrow": lambda x, i, j: x[:, i.int()],
    "the end of each": lambda x, i, j: x[torch.arange(2), :, i[:2].abs()],
}


class Taken(nn.Module):
    def __init__(self, take: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.take = take

    def forward(self, x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.take(x, i, j)


@pytest.mark.parametrize("name", CASES)
def test_an_index_counts_from_the_end_where_it_is_negative(name: str) -> None:
    module = Taken(CASES[name])
    model = Model(import_model(torch.export.export(module, (X, ROWS, COLUMNS))).module)
    (actual,) = model.run(X.numpy(), ROWS.numpy(), COLUMNS.numpy())
    np.testing.assert_array_equal(actual, module(X, ROWS, COLUMNS).numpy(), strict=True)


@pytest.mark.parametrize("number", [1, -1])
def test_a_number_that_is_given_counts_from_the_end_where_it_is_negative(number: int) -> None:
    module = Taken(lambda x, i, j: x[0, i])
    place = torch.tensor(number)
    model = Model(import_model(torch.export.export(module, (X, place, COLUMNS))).module)
    (actual,) = model.run(X.numpy(), place.numpy(), COLUMNS.numpy())
    np.testing.assert_array_equal(actual, module(X, place, COLUMNS).numpy(), strict=True)


def test_the_last_of_an_open_extent() -> None:
    module = Taken(lambda x, i, j: x[:, -1] + x[:, -3] + x[:, i][:, 2])
    axes = ({1: Dim("time", min=3, max=64)}, None, None)
    program = torch.export.export(module, (X[..., 0], ROWS, COLUMNS), dynamic_shapes=axes)
    model = Model(import_program(program).module)
    for time in (3, 8):
        x = torch.arange(2 * time * 4.0).reshape(2, time, 4)
        wanted = module(x, ROWS, COLUMNS).numpy()
        np.testing.assert_array_equal(
            model.run(x.numpy(), ROWS.numpy(), COLUMNS.numpy())[0], wanted
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("an input", ["less", "take"]),
        ("the last", ["take"]),
        ("places that are counted", ["take"]),
    ],
)
def test_what_counts_from_the_beginning_is_left_as_it_is(name: str, expected: list[str]) -> None:
    cases: dict[str, Any] = {
        **CASES,
        "places that are counted": lambda x, i, j: x[:, (torch.arange(3)[None] + 0).reshape(-1)],
    }
    program = torch.export.export(Taken(cases[name]), (X, ROWS, COLUMNS))
    text = import_program(program).module.script()
    assert [each for each in ("less", "take") if f"R.{each}(" in text] == expected
