"""Models as ONNX Runtime's optimisers write them: its session's, and that for transformers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model

WIDTH, HEADS, PLACES, WORDS = 64, 4, 8, 50


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, places, _ = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, places, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

        query, key, value = (heads(each(x)) for each in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores if mask is None else scores + mask
        mixed = (scores.softmax(-1) @ value).permute(0, 2, 1, 3).contiguous()
        return mixed.view(batch, places, WIDTH)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = Attention(), nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.first(self.out(self.attention(x, mask)) + x)
        return self.second(self.down(nn.functional.gelu(self.up(x))) + x)


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        self.places = nn.Embedding(32, WIDTH)
        self.norm, self.layers = nn.LayerNorm(WIDTH), nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("place", torch.arange(32)[None])

    def forward(self, words: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
        lowest = torch.finfo(torch.float32).min
        added = (1.0 - mask[:, None, None, :].to(torch.float32)) * lowest
        x = self.words(words) + self.kinds(kinds) + self.places(self.place[:, : words.shape[1]])
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, added)
        return x


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.attention = nn.Conv2d(3, WIDTH, 8, 8), Attention()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.out, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        x = x + self.out(self.attention(self.first(x)))
        inner = self.up(self.second(x))
        x = x + self.down(inner * torch.sigmoid(1.702 * inner))
        return self.head(x[:, 0])


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.third = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(x) + x)
        y = nn.functional.leaky_relu(self.third(y), 0.1)
        return self.head(y.mean((2, 3)))


def _words() -> tuple[Tensor, ...]:
    words = torch.randint(0, WORDS, (2, PLACES), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, PLACES, dtype=torch.int64)
    mask[0, 6:] = 0
    return words, mask, torch.zeros_like(words)


def _image(*shape: int) -> tuple[Tensor, ...]:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)


MODELS = {
    "bert": (Bert, _words()),
    "vit": (Vision, _image(2, 3, 32, 32)),
    "cnn": (Image, _image(2, 8, 14, 14)),
}
LEVELS = onnxruntime.GraphOptimizationLevel


def exported(name: str, path: Path, *, dynamic: bool) -> np.ndarray:
    """Export a model, whose batch may be dynamic; its result."""
    torch.manual_seed(0)
    made, inputs = MODELS[name]
    module = made().eval()
    names = [f"x{place}" for place in range(len(inputs))]
    torch.onnx.export(
        module, inputs, path, input_names=names, output_names=["y"], opset_version=14,
        dynamo=False, dynamic_axes={each: {0: "batch"} for each in names} if dynamic else None,
    )  # fmt: skip
    return module(*inputs).detach().numpy()


def by_session(path: Path, level: onnxruntime.GraphOptimizationLevel) -> Path:
    """The model as a session of ONNX Runtime optimises it."""
    saved = path.with_suffix(".session.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return saved


def for_transformers(path: Path, kind: str) -> Path:
    """The model as ONNX Runtime's tool for transformers optimises it."""
    from onnxruntime.transformers import optimizer

    saved = path.with_suffix(".fused.onnx")
    fused = optimizer.optimize_model(
        str(path), model_type=kind, num_heads=HEADS, hidden_size=WIDTH, opt_level=0
    )
    fused.save_model_to_file(str(saved))
    return saved


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("name", "how", "fused", "attentions"),
    [
        ("bert", "session", {"SkipLayerNormalization", "FusedMatMul", "Gelu"}, 2),
        ("bert", "tool", {"Attention", "SkipLayerNormalization", "BiasGelu"}, 2),
        ("vit", "session", {"FusedMatMul", "QuickGelu"}, 1),
        ("vit", "tool", {"SkipLayerNormalization", "QuickGelu"}, 1),
        ("cnn", "session", {"FusedConv"}, 0),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_optimised_model_computes_what_it_did(  # noqa: PLR0917
    tmp_path: Path, name: str, how: str, fused: set[str], attentions: int, dynamic: bool
) -> None:
    path = tmp_path / "model.onnx"
    wanted = exported(name, path, dynamic=dynamic)
    is_tool = how == "tool"
    saved = (
        for_transformers(path, name) if is_tool else by_session(path, LEVELS.ORT_ENABLE_EXTENDED)
    )
    graph = onnx.load(saved).graph
    found = {each.op_type for each in graph.node if each.domain == "com.microsoft"}
    assert found & fused
    inputs = {f"x{place}": each.numpy() for place, each in enumerate(MODELS[name][1])}
    shapes = {key: ("1..4", *x.shape[1:]) for key, x in inputs.items()} if dynamic else {}
    model = Model(import_model(saved, shapes=shapes).module, normalise=True)
    (actual,) = model.run(*(inputs[each.name] for each in graph.input))
    largest = np.abs(wanted).max()
    # Operands are rounded to FP16, by 2^-11 each, in 4 products one after another, in 2 layers.
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=largest * 8 * 2**-11)
    labels = [region.label for region in model.regions]
    assert sum(each.count("matmul") == 2 and "softmax" in each for each in labels) == attentions


@pytest.mark.filterwarnings("ignore")
def test_layouts_of_one_processor_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    exported("cnn", path, dynamic=False)
    saved = by_session(path, LEVELS.ORT_ENABLE_ALL)
    if not any(each.domain == "com.microsoft.nchwc" for each in onnx.load(saved).graph.node):
        pytest.skip("ONNX Runtime has no layout of its own on this processor")
    with pytest.raises(ModelImportError, match=r"nchwc.*ORT_ENABLE_EXTENDED"):
        import_model(saved)
