"""Models that every kind of convolution and recurrent layer occurs in.

Some are timm's and torchvision's. The others have the layers of a known architecture in few
channels, written here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.libraries.samples import BATCH, LibraryModel, Sample

_SIDE, _REAL_SIDE = 64, 224
_REAL_BATCH = 8
_WORDS, _REAL_WORDS = 96, 10_000


def _of_images(name: str, library: str, make: Callable[[], Any]) -> LibraryModel:
    return _at(name, library, make, (3, _SIDE, _SIDE), (3, _REAL_SIDE, _REAL_SIDE))


def _at(
    name: str,
    library: str,
    make: Callable[[], Any],
    small: Sequence[int],
    real: Sequence[int],
) -> LibraryModel:
    """A model of one input, by its shape without the batch: as executed, and as predicted."""

    def built(batch: int, shape: Sequence[int]) -> Sample:
        return Sample(make().eval(), (torch.randn(batch, *shape),))

    return LibraryModel(
        name, library, lambda: built(BATCH, small), lambda: built(_REAL_BATCH, real)
    )


def _of_timm(name: str, architecture: str) -> LibraryModel:
    def make() -> Any:
        return importlib.import_module("timm").create_model(architecture, pretrained=False)

    return _of_images(name, "timm", make)


def _shufflenet() -> Any:
    return importlib.import_module("torchvision.models").shufflenet_v2_x0_5()


def _normed(convolution: Any, norm: Any, activation: Any) -> nn.Sequential:
    return nn.Sequential(convolution, norm(convolution.out_channels), activation())


class UNet(nn.Module):
    """A U-Net of two levels with transposed convolutions, of images or of volumes."""

    def __init__(self, axes: int, channels: int, classes: int) -> None:
        super().__init__()
        of = {2: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.MaxPool2d)}
        of[3] = (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d, nn.MaxPool3d)
        convolution, transposed, norm, pool = of[axes]
        c = channels

        def twice(given: int, made: int) -> nn.Sequential:
            layers = [(given, made), (made, made)]
            parts = [
                _normed(convolution(a, b, 3, padding=1, bias=False), norm, nn.ReLU)
                for a, b in layers
            ]
            return nn.Sequential(*parts)

        self.first, self.second = twice(3 if axes == 2 else 1, c), twice(c, 2 * c)
        self.lowest, self.pool = twice(2 * c, 4 * c), pool(2)
        self.raise_second = transposed(4 * c, 2 * c, 2, 2)
        self.raise_first = transposed(2 * c, c, 2, 2)
        self.up_second, self.up_first = twice(4 * c, 2 * c), twice(2 * c, c)
        self.head = convolution(c, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of each pixel."""
        first = self.first(x)
        second = self.second(self.pool(first))
        x = self.raise_second(self.lowest(self.pool(second)))
        x = self.raise_first(self.up_second(torch.cat([x, second], 1)))
        made: Tensor = self.head(self.up_first(torch.cat([x, first], 1)))
        return made


def _silu(given: int, made: int, taps: int = 1, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(given, made, taps, stride, taps // 2, bias=False)
    return _normed(convolution, nn.BatchNorm2d, nn.SiLU)


class Split(nn.Module):
    """YOLOv8's block: half of the channels goes through bottlenecks, and all halves are joined."""

    def __init__(self, given: int, made: int, *, adds: bool) -> None:
        super().__init__()
        half = made // 2
        self.first, self.last = _silu(given, made), _silu(3 * half, made)
        self.bottleneck = nn.Sequential(_silu(half, half, 3), _silu(half, half, 3))
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        """The joined halves, in `made` channels."""
        left, right = self.first(x).chunk(2, 1)
        deep = self.bottleneck(right)
        made: Tensor = self.last(torch.cat([left, right, deep + right if self.adds else deep], 1))
        return made


class Detector(nn.Module):
    """A detector as YOLOv8: pooled pyramids, two scales, boxes by a softmax over distances."""

    _DISTANCES, _CLASSES = 16, 20

    def __init__(self, side: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_silu(3, 16, 3, 2), _silu(16, 32, 3, 2))
        self.early = nn.Sequential(Split(32, 32, adds=True), _silu(32, 64, 3, 2))
        self.middle = Split(64, 64, adds=True)
        self.late = nn.Sequential(_silu(64, 128, 3, 2), Split(128, 128, adds=True))
        self.narrow, self.wide = _silu(128, 64), _silu(256, 128)
        self.joined = Split(192, 64, adds=False)
        self.heads = nn.ModuleList([self._head(64), self._head(128)])
        grids = [self._centres(side // stride, stride) for stride in (8, 16)]
        self.register_buffer("centres", torch.cat([each for each, _ in grids], 1))
        self.register_buffer("strides", torch.cat([each for _, each in grids], 1))
        self.register_buffer("distances", torch.arange(self._DISTANCES, dtype=torch.float32))

    @classmethod
    def _head(cls, channels: int) -> nn.Module:
        made = 4 * cls._DISTANCES + cls._CLASSES
        return nn.Sequential(_silu(channels, 64, 3), nn.Conv2d(64, made, 1))

    @staticmethod
    def _centres(side: int, stride: int) -> tuple[Tensor, Tensor]:
        places = (torch.arange(side) + 0.5) * stride
        y, x = torch.meshgrid(places, places, indexing="ij")
        return torch.stack([x.flatten(), y.flatten()]), torch.full((1, side * side), float(stride))

    def _pooled(self, x: Tensor) -> Tensor:
        parts = [self.narrow(x)]
        parts += [F.max_pool2d(parts[-1], 5, 1, 2)]
        parts += [F.max_pool2d(parts[-1], 5, 1, 2)]
        parts += [F.max_pool2d(parts[-1], 5, 1, 2)]
        made: Tensor = self.wide(torch.cat(parts, 1))
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Boxes in pixels and probabilities: (batch, 4 + classes, places)."""
        early = self.middle(self.early(self.stem(x)))
        late = self._pooled(self.late(early))
        raised = F.interpolate(late, scale_factor=2.0, mode="nearest")
        scales = (self.joined(torch.cat([raised, early], 1)), late)
        found = [head(scale).flatten(2) for head, scale in zip(self.heads, scales, strict=True)]
        boxes, classes = torch.cat(found, 2).split([4 * self._DISTANCES, self._CLASSES], 1)
        of_sides = boxes.reshape(len(x), 4, self._DISTANCES, -1).softmax(2)
        sides = (of_sides * self.distances[:, None]).sum(2) * self.strides
        near, far = self.centres - sides[:, :2], self.centres + sides[:, 2:]
        return torch.cat([(near + far) / 2, far - near, classes.sigmoid()], 1)


class TextLine(nn.Module):
    """A CRNN: a line of text to columns, two LSTM layers in both directions, and letters."""

    def __init__(self) -> None:
        super().__init__()

        def block(given: int, made: int, pool: tuple[int, int]) -> nn.Sequential:
            convolution = nn.Conv2d(given, made, 3, padding=1)
            return nn.Sequential(_normed(convolution, nn.BatchNorm2d, nn.ReLU), nn.MaxPool2d(pool))

        self.columns = nn.Sequential(
            *(block(1, 32, (2, 2)), block(32, 64, (2, 2)), block(64, 128, (2, 1))),
            *(nn.Conv2d(128, 128, (4, 1)), nn.ReLU()),
        )
        self.rows = nn.LSTM(128, 64, num_layers=2, bidirectional=True)
        self.letters = nn.Linear(128, 40)

    def forward(self, x: Tensor) -> Tensor:
        """The logarithms of the letters' probabilities: (columns, batch, letters)."""
        columns = self.columns(x).squeeze(2).permute(2, 0, 1)
        return self.letters(self.rows(columns)[0]).log_softmax(2)


class WaveNet(nn.Module):
    """Causal dilated convolutions with gates, a residual and a skip of each layer."""

    _CHANNELS, _DILATIONS = 32, (1, 2, 4, 8)

    def __init__(self) -> None:
        super().__init__()
        c, layers = self._CHANNELS, len(self._DILATIONS)
        self.first = nn.Conv1d(1, c, 1)
        self.gated = nn.ModuleList(nn.Conv1d(c, 2 * c, 2, dilation=d) for d in self._DILATIONS)
        self.residual = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(c, 2 * c, 1) for _ in range(layers))
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1d(2 * c, 2 * c, 1), nn.ReLU(), nn.Conv1d(2 * c, 256, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The scores of 256 levels for each sample."""
        x = self.first(x)
        skipped: Any = 0.0
        layers = zip(self._DILATIONS, self.gated, self.residual, self.skip, strict=True)
        for dilation, gated, residual, skip in layers:
            value, gate = gated(F.pad(x, (dilation, 0))).chunk(2, 1)
            made = value.tanh() * gate.sigmoid()
            skipped = skipped + skip(made)
            x = x + residual(made)
        scores: Tensor = self.last(skipped)
        return scores


class Vocoder(nn.Module):
    """HiFi-GAN's generator: transposed convolutions, and sums of dilated residual blocks."""

    _MELS, _CHANNELS, _RATES, _TAPS, _DILATIONS = 40, 64, (4, 4), (3, 7), (1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(self._MELS, self._CHANNELS, 7, padding=3)
        self.raising, self.blocks = nn.ModuleList(), nn.ModuleList()
        for level, rate in enumerate(self._RATES):
            given = self._CHANNELS >> level
            made = given // 2
            self.raising.append(nn.ConvTranspose1d(given, made, 2 * rate, rate, rate // 2))
            for taps in self._TAPS:
                self.blocks.append(
                    nn.ModuleList(
                        nn.Conv1d(made, made, taps, padding=d * (taps // 2), dilation=d)
                        for d in self._DILATIONS
                    )
                )
        self.last = nn.Conv1d(self._CHANNELS >> len(self._RATES), 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        """The samples of a wave."""
        x, several = self.first(x), len(self._TAPS)
        for level, raising in enumerate(self.raising):
            x = raising(F.leaky_relu(x, 0.1))
            of_level = list(self.blocks)[level * several : (level + 1) * several]
            parts = [self._through(block, x) for block in of_level]
            x = sum(parts[1:], parts[0]) / several
        return torch.tanh(self.last(F.leaky_relu(x, 0.01)))

    @staticmethod
    def _through(block: Any, x: Tensor) -> Tensor:
        for convolution in block:
            x = x + convolution(F.leaky_relu(x, 0.1))
        return x


class Sentences(nn.Module):
    """A language model: words, two LSTM layers, and the scores of the next word."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, hidden)
        self.layers = nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.scores = nn.Linear(hidden, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length, words) of tokens (batch, length)."""
        made: Tensor = self.scores(self.layers(self.words(tokens))[0])
        return made


def _sentences(batch: int, length: int, words: int, hidden: int) -> Sample:
    return Sample(Sentences(words, hidden).eval(), (torch.randint(words, (batch, length)),))


CONVOLUTIONS = (
    _of_timm("timm-mobilenetv2", "mobilenetv2_100"),
    _of_timm("timm-mobilenetv3", "mobilenetv3_small_100"),
    _of_timm("timm-efficientnet", "efficientnet_b0"),
    _of_timm("timm-ghostnet", "ghostnet_100"),
    _of_timm("timm-convnext", "convnext_atto"),
    _of_timm("timm-resnext50", "resnext50_32x4d"),
    _of_timm("timm-regnet", "regnety_002"),
    _of_images("shufflenet-v2", "torchvision", _shufflenet),
    _of_images("u-net", "own", lambda: UNet(2, 16, 4)),
    LibraryModel(
        "yolo",
        "own",
        lambda: Sample(Detector(_SIDE).eval(), (torch.randn(BATCH, 3, _SIDE, _SIDE),)),
        lambda: Sample(Detector(320).eval(), (torch.randn(_REAL_BATCH, 3, 320, 320),)),
    ),
    _at("crnn", "own", TextLine, (1, 32, 64), (1, 32, 320)),
    _at("wavenet", "own", WaveNet, (1, 96), (1, 16_000)),
    _at("u-net-3d", "own", lambda: UNet(3, 8, 4), (1, 8, 16, 16), (1, 32, 64, 64)),
    _at("hifi-gan", "own", Vocoder, (40, 24), (40, 400)),
    LibraryModel(
        "lstm-words",
        "own",
        lambda: _sentences(BATCH, 12, _WORDS, 64),
        lambda: _sentences(_REAL_BATCH, 128, _REAL_WORDS, 512),
    ),
)
