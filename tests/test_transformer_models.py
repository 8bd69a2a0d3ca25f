"""Layers of transformers out of PyTorch, compiled and executed on the virtual GPU, checks on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import boltgen
from boltgen.device.vgpu import Vgpu
from tests.test_end_to_end import fp16_tolerance

BATCH, LENGTH, HEADS, HEAD = 2, 45, 4, 16
GROUPS = 2
WIDTH = HEADS * HEAD

Attend = Callable[..., torch.Tensor]


class Layer(nn.Module):
    """Attention with projections and a residual; K and V have `heads` heads, of `memory` if any."""

    def __init__(self, *, heads: int = HEADS, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.dense = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key, self.value = (nn.Linear(WIDTH, heads * HEAD) for _ in range(2))

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, memory: torch.Tensor | None = None
    ) -> torch.Tensor:
        source = x if memory is None else memory

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.view(y.shape[0], y.shape[1], heads, HEAD).transpose(1, 2)

        mixed = nn.functional.scaled_dot_product_attention(
            split(self.query(x), HEADS),
            split(self.key(source), self.heads),
            split(self.value(source), self.heads),
            attn_mask=mask,
            is_causal=self.causal,
            enable_gqa=self.heads != HEADS,
        )
        joined = mixed.transpose(1, 2).reshape(x.shape)
        return x + self.dense(joined)


class Local(nn.Module):
    """Attention to the last `window` keys, as transformers' Mistral makes its mask."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.layer, self.window = Layer(), window

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = torch.arange(x.shape[1])
        query = key[:, None]
        seen = (key <= query) & (key > query - self.window)
        return self.layer(x, seen[None, None])


class Lengths(nn.Module):
    """Attention to the keys that each sequence has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        seen = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        return self.layer(x, seen[:, None, None, :])


class Filled(nn.Module):
    """Attention whose author fills the scores of later keys, and of padding, with -inf."""

    def __init__(self) -> None:
        super().__init__()
        self.joint, self.dense = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("later", torch.ones(LENGTH, LENGTH).triu(1).bool())

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.shape[0], LENGTH, HEADS, HEAD).transpose(1, 2)

        query, key, value = map(split, self.joint(x).split(WIDTH, dim=-1))
        scores = query @ key.transpose(-2, -1) / HEAD**0.5
        scores = scores.masked_fill(self.later, -torch.inf).masked_fill(padding, -torch.inf)
        mixed = scores.softmax(-1) @ value
        return x + self.dense(mixed.transpose(1, 2).reshape(x.shape))


def _padding(keys: int = LENGTH) -> torch.Tensor:
    """Which keys each sequence has."""
    lengths = torch.tensor([keys, keys // 2])
    return (torch.arange(keys) < lengths[:, None])[:, None, None]


class Encoder(nn.Module):
    """A layer as of BERT: norms behind the residuals, padding as a boolean mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Layer()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.attention(x, mask))
        return self.norms[1](x + self.down(nn.functional.gelu(self.up(x))))


class Llama(nn.Module):
    """A layer as of Llama: RMS norms, rotary positions, grouped queries, a gated product.

    The keys and values so far are inputs; those with the new ones are outputs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(  # noqa: PLR0917
        self,
        x: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        mask: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.norms[0](x)
        q = _rotated(self.q(y).unflatten(-1, (HEADS, HEAD)).transpose(1, 2), cosine, sine)
        k = _rotated(self.k(y).unflatten(-1, (GROUPS, HEAD)).transpose(1, 2), cosine, sine)
        v = self.v(y).unflatten(-1, (GROUPS, HEAD)).transpose(1, 2)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        mixed = nn.functional.scaled_dot_product_attention(
            q, _repeated(keys), _repeated(values), attn_mask=mask
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        gated = nn.functional.silu(self.gate(y)) * self.up(y)
        return x + self.down(gated), keys, values


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat((-high, low), -1) * sine


def _repeated(x: torch.Tensor) -> torch.Tensor:
    """As Hugging Face's `repeat_kv`."""
    batch, groups, rows, columns = x.shape
    apart = x[:, :, None].expand(batch, groups, HEADS // GROUPS, rows, columns)
    return apart.reshape(batch, HEADS, rows, columns)


def _judged(
    module: nn.Module,
    inputs: dict[str, torch.Tensor],
    checking: Vgpu,
    layers: int = 4,
    kernel: str = "attention",
) -> None:
    """One kernel has all of the attention, and its result is PyTorch's.

    A module with nothing else is of four layers: the projections, scores, their product with V, and
    the last projection.
    """
    module.eval()
    artifact = boltgen.compile(module, inputs, arch="sm_80")
    given = {name: value.numpy() for name, value in inputs.items()}
    outputs = artifact.run(given, device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    with torch.no_grad():
        found = module(**inputs)
    for output, wide in zip(outputs, found if isinstance(found, tuple) else [found], strict=True):
        expected = wide.numpy()
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers)
    assert sum(name.startswith(f"boltgen_{kernel}_sm80") for name in kernels) == 1, kernels
    assert not any("softmax" in name for name in kernels)


def _hidden(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(BATCH, length, WIDTH)


@pytest.mark.parametrize(
    "kind", ["padding", "lengths", "causal", "local", "additive", "cross", "grouped"]
)
def test_attention_of_pytorch_is_one_kernel(kind: str, checking: Vgpu) -> None:
    torch.manual_seed(0)
    match kind:
        case "padding":
            _judged(Layer(), {"x": _hidden(), "mask": _padding()}, checking)
        case "causal":
            _judged(Layer(causal=True), {"x": _hidden()}, checking, kernel="causal_attention")
        case "lengths":
            _judged(Lengths(), {"x": _hidden(), "lengths": torch.tensor([LENGTH, 9])}, checking)
        case "local":
            _judged(Local(8), {"x": _hidden()}, checking, kernel="local8_attention")
        case "additive":
            mask = torch.randn(1, HEADS, LENGTH, LENGTH)
            mask[..., LENGTH - 7 :] = -torch.inf
            _judged(Layer(), {"x": _hidden(), "mask": mask}, checking)
        case "cross":
            inputs = {"x": _hidden(), "mask": _padding(30), "memory": _hidden(30)}
            _judged(Layer(), inputs, checking)
        case "grouped":
            module = Layer(heads=2, causal=True)
            _judged(module, {"x": _hidden()}, checking, kernel="causal_attention")


def test_scores_that_are_filled_with_infinity_are_masked_in_the_kernel(checking: Vgpu) -> None:
    torch.manual_seed(0)
    inputs = {"x": _hidden(), "padding": ~_padding()}
    _judged(Filled(), inputs, checking, kernel="causal_attention")


def test_a_causal_sequence_of_any_length_has_no_mask(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Layer(causal=True).eval()
    lengths = torch.export.Dim("length", min=1, max=64)
    program = torch.export.export(module, (_hidden(),), dynamic_shapes={"x": {1: lengths}})
    artifact = boltgen.compile(program, arch="sm_80")
    for length in (2, 17, 45, 64):
        checking.clear_launches()
        x = _hidden(length)
        (output,) = artifact.run({"x": x.numpy()}, device="vgpu").values()
        with torch.no_grad():
            expected = module(x).numpy()
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers=4)
        kernels = [launch.kernel for launch in checking.launches()]
        assert sum("causal_attention" in kernel for kernel in kernels) == 1
        assert not any("arange" in kernel or "where" in kernel for kernel in kernels), kernels
    assert [finding.message for finding in checking.findings()] == []


def test_attention_in_bf16(checking: Vgpu) -> None:
    """Roundings to BF16 are eight times those to FP16."""
    torch.manual_seed(0)
    module, x = Layer(causal=True).eval(), _hidden()
    artifact = boltgen.compile(module, {"x": x}, arch="sm_80", precision="bf16")
    (output,) = artifact.run({"x": x.numpy()}, device="vgpu").values()
    with torch.no_grad():
        expected = module(x).numpy()
    error = float(np.sqrt(np.mean(np.square(output - expected))))
    assert error <= 8 * fp16_tolerance(expected, layers=4)
    (fused,) = [r for r in artifact.metadata.regions if "causal_attention" in r.kernel]
    assert "in_dtype=bfloat16" in fused.problem
    assert [finding.message for finding in checking.findings()] == []


def test_rows_without_keys_are_zero_as_pytorch_has_them(checking: Vgpu) -> None:
    torch.manual_seed(0)
    mask = _padding().expand(BATCH, 1, LENGTH, LENGTH).clone()
    mask[1, :, 7] = False
    _judged(Layer(), {"x": _hidden(), "mask": mask}, checking)


def test_an_encoder_with_padding(checking: Vgpu) -> None:
    torch.manual_seed(0)
    _judged(Encoder(), {"x": _hidden(), "mask": _padding()}, checking, layers=8)


@pytest.mark.parametrize(("new", "before"), [(LENGTH, 8), (1, 40)], ids=["prefill", "decode"])
def test_a_decoder_with_a_cache(new: int, before: int, checking: Vgpu) -> None:
    torch.manual_seed(0)
    frequencies = 1e4 ** -torch.linspace(0, 1, HEAD // 2)
    angles = torch.outer(torch.arange(before, before + new), frequencies)
    both = torch.cat((angles, angles), -1)
    inputs = {
        "x": _hidden(new),
        "cosine": both.cos(),
        "sine": both.sin(),
        "mask": torch.full((new, before + new), -1e4).triu(before + 1),
        "keys": torch.randn(BATCH, GROUPS, before, HEAD),
        "values": torch.randn(BATCH, GROUPS, before, HEAD),
    }
    _judged(Llama(), inputs, checking, layers=8)


def test_heads_of_a_group_read_the_same_keys_and_values(checking: Vgpu) -> None:
    torch.manual_seed(0)
    module = Layer(heads=GROUPS)
    artifact = boltgen.compile(module.eval(), {"x": _hidden()}, arch="sm_80")
    operators = [placed.operator for placed in artifact.metadata.placements if not placed.region]
    assert "broadcast_to" not in operators


class Step(nn.Module):
    """A step of decoding: one query for each head, and a cache."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value)


def test_a_cache_of_any_length_is_shared_by_threadblocks_where_it_is_long(checking: Vgpu) -> None:
    """One library, whose workspace is that of the greatest length."""
    torch.manual_seed(0)

    def inputs(length: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(BATCH, HEADS, rows, 64) for rows in (1, length, length))

    lengths = torch.export.Dim("length", min=16, max=4096)
    cached = {2: lengths}
    program = torch.export.export(
        Step(), inputs(64), dynamic_shapes={"query": None, "key": cached, "value": cached}
    )
    artifact = boltgen.compile(program, arch="sm_80")
    for length, is_split in ((16, False), (1000, True), (4096, True)):
        checking.clear_launches()
        given = dict(zip(("query", "key", "value"), inputs(length), strict=True))
        (output,) = artifact.run(
            {name: each.numpy() for name, each in given.items()}, device="vgpu"
        ).values()
        expected = Step()(**given).numpy()
        error = float(np.sqrt(np.mean(np.square(output - expected))))
        assert error <= fp16_tolerance(expected, layers=2)
        kernels = [launch.kernel for launch in checking.launches()]
        (name,) = (each for each in kernels if each.startswith("boltgen_attention_sm80"))
        assert ("_split" in name) == is_split
    assert [finding.message for finding in checking.findings()] == []
