"""The models of section models as PyTorch's users write them, with the parameters of `models/`.

Imported only where PyTorch is: by section models, and by its tests on the CPU. Batch norms are
folded into the convolutions before them, in FP32, as they are on our side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.parameters import FloatArray

# As in models/bert.py and models/onnx_graph.py.
_HEADS, _LAYER_NORM_EPSILON, _BATCH_NORM_EPSILON = 12, 1e-12, 1e-5


class _Parameters:
    """Parameters by name, as tensors in FP32."""

    def __init__(self, arrays: Mapping[str, FloatArray]) -> None:
        self._arrays = arrays

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self._arrays[name]).float()

    def convolution(
        self, name: str, *, stride: int = 1, padding: int = 0, norm: str = ""
    ) -> nn.Conv2d:
        """A convolution; `norm` is the batch norm that is folded into it."""
        weight = self[f"{name}.weight"]
        if norm:
            scale = self[f"{norm}.weight"] * torch.rsqrt(
                self[f"{norm}.running_var"] + _BATCH_NORM_EPSILON
            )
            weight = weight * scale[:, None, None, None]
            bias = self[f"{norm}.bias"] - self[f"{norm}.running_mean"] * scale
        else:
            bias = self[f"{name}.bias"]
        channels, inputs, kernel, _ = weight.shape
        layer = nn.Conv2d(inputs, channels, kernel, stride=stride, padding=padding)
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
        return layer

    def dense(self, name: str, *, transposed: bool = False) -> nn.Linear:
        """A dense layer; `transposed`: its weight is (K, N)."""
        weight = self[f"{name}.weight"]
        weight = weight.t().contiguous() if transposed else weight
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(self[f"{name}.bias"])
        return layer

    def layer_norm(self, name: str) -> nn.LayerNorm:
        """A normalisation of the last dimension."""
        weight = self[f"{name}.weight"]
        layer = nn.LayerNorm(len(weight), eps=_LAYER_NORM_EPSILON)
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(self[f"{name}.bias"])
        return layer


class _Bottleneck(nn.Module):
    """relu(branch(x) + shortcut(x))."""

    def __init__(self, p: _Parameters, name: str, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            p.convolution(f"{name}.conv1", norm=f"{name}.bn1"),
            nn.ReLU(),
            p.convolution(f"{name}.conv2", stride=stride, padding=1, norm=f"{name}.bn2"),
            nn.ReLU(),
            p.convolution(f"{name}.conv3", norm=f"{name}.bn3"),
        )
        shortcut, norm = f"{name}.downsample.0", f"{name}.downsample.1"
        has_own = f"{shortcut}.weight" in p
        self.shortcut = p.convolution(shortcut, stride=stride, norm=norm) if has_own else None

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x) if self.shortcut is not None else x
        return functional.relu(self.branch(x) + shortcut)


def _resnet50(p: _Parameters) -> nn.Module:
    stem = p.convolution("conv1", stride=2, padding=3, norm="bn1")
    layers: list[nn.Module] = [stem, nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    for stage in range(1, 5):
        for name in _numbered(p, f"layer{stage}.{{}}", "conv1.weight"):
            stride = 2 if stage > 1 and name.endswith(".0") else 1
            layers.append(_Bottleneck(p, name, stride))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), p.dense("fc"))


def _vgg16(p: _Parameters) -> nn.Module:
    layers: list[nn.Module] = []
    for stage in range(1, 6):
        for name in _numbered(p, f"conv{stage}_{{}}", "weight", first=1):
            layers += [p.convolution(name, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), p.dense("fc6"), nn.ReLU(), p.dense("fc7"), nn.ReLU(), p.dense("fc8")]
    return nn.Sequential(*layers)


def _repvgg(p: _Parameters) -> nn.Module:
    layers: list[nn.Module] = []
    for stage in range(5):
        for name in _numbered(p, f"stage{stage}.{{}}", "conv.weight"):
            stride = 2 if name.endswith(".0") else 1
            layers += [p.convolution(f"{name}.conv", stride=stride, padding=1), nn.ReLU()]
            if f"{name}.pointwise.conv.weight" in p:
                layers += [p.convolution(f"{name}.pointwise.conv"), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), p.dense("linear"))


class _EncoderLayer(nn.Module):
    """A layer of BERT's: attention and feed-forward, each with its residual and layer norm."""

    def __init__(self, p: _Parameters, name: str) -> None:
        super().__init__()
        attention = f"{name}.attention"
        self.query, self.key, self.value = (
            p.dense(f"{attention}.self.{role}", transposed=True)
            for role in ("query", "key", "value")
        )
        self.projection = p.dense(f"{attention}.output.dense", transposed=True)
        self.attention_norm = p.layer_norm(f"{attention}.output.LayerNorm")
        self.widen = p.dense(f"{name}.intermediate.dense", transposed=True)
        self.narrow = p.dense(f"{name}.output.dense", transposed=True)
        self.output_norm = p.layer_norm(f"{name}.output.LayerNorm")

    def forward(self, x: Tensor) -> Tensor:
        heads = (
            role(x).unflatten(-1, (_HEADS, -1)).transpose(1, 2)
            for role in (self.query, self.key, self.value)
        )
        context = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = self.attention_norm(self.projection(context) + x)
        return self.output_norm(self.narrow(functional.gelu(self.widen(x))) + x)


def _bert_base(p: _Parameters) -> nn.Module:
    names = _numbered(p, "encoder.layer.{}", "intermediate.dense.weight")
    return nn.Sequential(*(_EncoderLayer(p, name) for name in names))


def _numbered(p: _Parameters, form: str, tensor: str, first: int = 0) -> list[str]:
    """`form` with each number from `first` on for which there is that tensor."""
    names: list[str] = []
    while f"{(name := form.format(first + len(names)))}.{tensor}" in p:
        names.append(name)
    return names


_BUILDERS: Mapping[str, Callable[[_Parameters], nn.Module]] = {
    "resnet50": _resnet50,
    "vgg16": _vgg16,
    "repvgg_a0": _repvgg,
    "repvggaug_a0": _repvgg,
    "bert_base": _bert_base,
}


def torch_model(name: str, parameters: Mapping[str, FloatArray]) -> nn.Module:
    """The model `name` of `models.MODELS` in FP32, for inference, on the CPU.

    Images are (N, C, H, W), in whatever memory format; BERT's input is (batch, sequence, 768).
    """
    model = _BUILDERS[name](_Parameters(parameters)).eval()
    return model.requires_grad_(requires_grad=False)
