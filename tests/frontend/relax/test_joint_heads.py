"""Rotary embeddings of Q and K that lie side by side are one, which attention reads by strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from benchmarks.harness.oracle_kernels import Model
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition
from tests.test_end_to_end import fp16_tolerance

BATCH, LENGTH, WIDTH, HEAD, HEADS = 2, 20, 64, 16, 4
# Heads of Q, K and V, and the tables of cosines and sines, of Q and of K.
Tables = tuple[Tensor, Tensor]


def _tables(length: int | Tensor, base: float = 100.0) -> Tables:
    steps = base ** (-torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.arange(length)[:, None] * steps
    wide = torch.cat([angles, angles], -1)
    return wide.cos(), wide.sin()


def _halves(x: Tensor, tables: Tables) -> Tensor:
    """(B, H, S, D), as transformers turns it."""
    cos, sin = tables
    first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * cos + torch.cat((-second, first), -1) * sin


def _parts(x: Tensor, tables: Tables) -> Tensor:
    """Only the first half of each head is turned, as in GPT-NeoX."""
    cos, sin = (table[..., : HEAD // 2] for table in tables)
    turned, rest = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    first, second = turned[..., : HEAD // 4], turned[..., HEAD // 4 :]
    return torch.cat((turned * cos + torch.cat((-second, first), -1) * sin, rest), -1)


class Rotary(nn.Module):
    """Self-attention whose Q and K are turned by `turn`, of one product or of three."""

    def __init__(
        self, turn: Callable[[Tensor, Tables], Tensor], *, groups: int = 1, packed: bool = False
    ) -> None:
        super().__init__()
        self.turn, self.groups, self.packed = turn, groups, packed
        kept = WIDTH // groups
        self.q, self.k, self.v = (nn.Linear(WIDTH, each) for each in (WIDTH, kept, kept))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, length = x.shape[:2]
        if self.packed:
            return self.qkv(x).view(batch, length, 3, HEADS, HEAD).transpose(3, 1).unbind(2)
        return tuple(
            part(x).view(batch, length, -1, HEAD).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )

    def attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (each.repeat_interleave(self.groups, 1) for each in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        tables = _tables(x.shape[1])
        return self.attended(self.turn(q, tables), self.turn(k, tables), v)


class OtherTables(Rotary):
    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        one, other = _tables(x.shape[1]), _tables(x.shape[1], 50.0)
        return self.attended(self.turn(q, one), self.turn(k, other), v)


class QAlone(Rotary):
    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        return self.attended(self.turn(q, _tables(x.shape[1])), k, v)


class KeyFirst(Rotary):
    """The heads of Q are before those of K, and turned after them, by tables of their own."""

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        turned = self.turn(k, _tables(x.shape[1]))
        return self.attended(self.turn(q, _tables(x.shape[1])), turned, v)


class PlainKeyToo(Rotary):
    """K is also read as it is, by a second attention."""

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        tables = _tables(x.shape[1])
        turned = self.attended(self.turn(q, tables), self.turn(k, tables), v)
        return turned + self.attended(q, k, v)


class KeyAsResult(Rotary):
    """K goes out as it is turned: a slice of both would be copied."""

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.heads(x)
        tables = _tables(x.shape[1])
        turned = self.turn(k, tables)
        return self.attended(self.turn(q, tables), turned, v), turned


JOINED: dict[str, Callable[[], nn.Module]] = {
    "halves": lambda: Rotary(_halves),
    "grouped": lambda: Rotary(_halves, groups=2),
    "packed": lambda: Rotary(_halves, packed=True),
    "parts": lambda: Rotary(_parts),
    "K first": lambda: KeyFirst(_halves),
}
APART: dict[str, Callable[[], nn.Module]] = {
    "other tables": lambda: OtherTables(_halves),
    # Its one head has no dimension of its own.
    "one head of keys": lambda: Rotary(_halves, groups=4),
    "K as it is, too": lambda: PlainKeyToo(_halves),
    "K as a result": lambda: KeyAsResult(_halves),
}


def _partitioned(program: Any) -> Model:
    """A program in regions, where times decide what is joined, as for a library."""
    imported = import_model(program, PipelineOptions())
    partition(imported, "sm_80", PipelineOptions())
    return Model.of_annotated(imported.partitioned)


def _judged(module: nn.Module, model: Model, x: Tensor) -> None:
    with torch.no_grad():
        expected = module(x)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for actual, each in zip(model.run(x.numpy()), wanted, strict=True):
        wide = each.numpy()
        error = float(np.sqrt(np.mean(np.square(actual - wide))))
        assert error <= fp16_tolerance(wide, 4)


def _rotations(model: Model) -> int:
    """How many joins of turned halves TVM's part has."""
    (function,) = (f for f in model.annotated.graphs.values())
    halves = [e for e in function.exprs if e.op == "negative"]
    return len(halves)


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", JOINED)
def test_heads_of_both_are_turned_at_once(name: str, *, is_open: bool) -> None:
    torch.manual_seed(0)
    module = JOINED[name]().eval()
    sizes = {0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=64)}
    program = torch.export.export(
        module, (torch.randn(BATCH, LENGTH, WIDTH),), dynamic_shapes=(sizes,) if is_open else None
    )
    model = _partitioned(program)
    assert _rotations(model) == 1
    assert len(model.regions) == 3, "Q, K and V; attention; and what follows"
    for size in ((3, 7), (1, 64)) if is_open else ((BATCH, LENGTH),):
        _judged(module, model, torch.randn(*size, WIDTH))


@pytest.mark.parametrize("name", APART)
def test_what_is_turned_otherwise_or_read_dense_is_apart(name: str) -> None:
    torch.manual_seed(0)
    module = APART[name]().eval()
    program = torch.export.export(module, (torch.randn(BATCH, LENGTH, WIDTH),))
    model = _partitioned(program)
    assert _rotations(model) == 2
    _judged(module, model, torch.randn(BATCH, LENGTH, WIDTH))


def test_q_alone_is_turned_alone() -> None:
    torch.manual_seed(0)
    module = QAlone(_halves).eval()
    program = torch.export.export(module, (torch.randn(BATCH, LENGTH, WIDTH),))
    model = _partitioned(program)
    assert _rotations(model) == 1
    _judged(module, model, torch.randn(BATCH, LENGTH, WIDTH))
