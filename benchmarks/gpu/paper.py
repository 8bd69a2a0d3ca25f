"""Bolt's figures, to stand beside ours.

Source: Xing et al., Bolt: Bridging the Gap between Auto-tuners and Hardware-native Performance,
MLSys 2022. All were measured on a Tesla T4.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu import shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """A figure of the paper's, and which of an item's ratios (or else shares) stands beside it.

    `low` and `high` differ where the text gives a range of several workloads. Ratios are of speeds;
    shares are of time. Without the one of that `name`, the one called `otherwise` stands there.
    """

    item: str
    name: str
    low: float
    high: float
    source: str
    is_share: bool = False
    otherwise: str = ""

    @property
    def text(self) -> str:
        """The figure as the page shows it."""
        values = [self.low] if self.low == self.high else [self.low, self.high]
        shown = [f"{100 * v:.0f} %" if self.is_share else f"{v:.2f}x" for v in values]
        return " to ".join(shown)


def _one(item: str, name: str, value: float, source: str) -> PaperFigure:
    return PaperFigure(item=item, name=name, low=value, high=value, source=source)


# Bars without numbers: the text gives averages of four activations.
_FIGURE_9 = (("gemm-1280x3072x768", 1.45), ("conv-56x56-64-64-3x3", 1.38))
_TABLE_1 = {
    "gemm-2464x1x4x4": 1.24,
    "gemm-16384x64x256x16": 1.34,
    "gemm-32768x128x576x64": 1.28,
    "gemm-128320x32x96x96": 1.46,
}
_TABLE_2 = {
    "conv-224-3-48-s2": 1.10,
    "conv-112-48-48-s2": 1.41,
    "conv-56-48-48-s1": 1.87,
    "conv-224-3-64-s2": 1.24,
    "conv-112-64-64-s2": 1.12,
    "conv-56-64-64-s1": 2.02,
}
# Speed of the padded convolution, and the share of the padding in the time of both.
_TABLE_3 = {
    "32x20x26-46-32-3x3": (1.62, 0.18),
    "32x20x26-46-32-5x5": (1.95, 0.09),
    "128x14x19-46-32-5x7": (1.77, 0.15),
    "288x11x15-46-32-5x7": (1.71, 0.18),
    "32x20x26-174-64-3x3": (1.60, 0.24),
    "32x20x26-174-64-5x5": (1.99, 0.12),
}
# "On average, Bolt improves the inference speed by 2.8x": the page's targets have our mean. Ansor
# tuned for hours. Of TVM 0.27 its successor, MetaSchedule, is what that was; where no log of it is
# recorded, TVM's default schedules stand there, which took no tuning.
_FIGURE_10 = {
    "vgg16-b32": (4.2, "VGG"),
    "resnet50-b32": (1.5, "ResNet"),
    "repvgg_a0-b32": (2.6, "RepVGG"),
}


def _figure_8() -> list[PaperFigure]:
    """Bars without numbers, and no names of the square products; the text has ranges."""
    gemms = [f"gemm/{name}" for name in shapes.bert()]
    convs = [f"conv/{name}" for name, one in shapes.convolutions().items() if one.r == 3]
    return [
        PaperFigure(item=item, name="ansor", low=low, high=high, source=f"figure 8{part}, all")
        for items, low, high, part in ((gemms, 1.9, 9.5, "a"), (convs, 2.7, 3.5, "b"))
        for item in items
    ]


FIGURES = (
    *_figure_8(),
    *(
        _one(f"epilogue/{name}-{activation}", "unfused", value, "figure 9, average")
        for name, value in _FIGURE_9
        for activation in shapes.ACTIVATIONS
    ),
    *(_one(f"b2b/{name}", "unfused", value, "table 1") for name, value in _TABLE_1.items()),
    *(_one(f"b2b/{name}", "unfused", value, "table 2") for name, value in _TABLE_2.items()),
    *(
        figure
        for name, (speed, cost) in _TABLE_3.items()
        for figure in (
            _one(f"padding/{name}", "unpadded_kernel", speed, "table 3"),
            PaperFigure(
                item=f"padding/{name}",
                name="move",
                low=cost,
                high=cost,
                source="table 3, cost",
                is_share=True,
            ),
        )
    ),
    *(
        PaperFigure(
            item=f"models/{name}",
            name="tvm_metaschedule",
            otherwise="tvm",
            low=value,
            high=value,
            source=f"figure 10a, {family} models, against Ansor",
        )
        for name, (value, family) in _FIGURE_10.items()
    ),
)
