"""Bolt's figures, to stand beside ours: a bundle has them, and the report shows them.

Source: Xing et al., Bolt: Bridging the Gap between Auto-tuners and Hardware-native Performance,
MLSys 2022. All were measured on a Tesla T4.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import shapes

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
# Against Ansor, which tuned for hours. Its successor in TVM 0.27 is MetaSchedule; where no log of
# it is recorded, TVM's default schedules stand there, which took no tuning.
_FIGURE_10 = {
    "vgg16-b32": (4.2, "VGG"),
    "resnet50-b32": (1.5, "ResNet"),
    "repvgg_a0-b32": (2.6, "RepVGG"),
}


def figures() -> list[dict[str, Any]]:
    """List the figures in the form of `boltgen.bench.page.paper_rows`.

    `values` are two where the text gives a range of several workloads. `names` are the item's
    ratios (of speed), or else shares (of time), that stand beside the figure: the first there is.
    """
    found = []

    def add(item: str, name: str, values: list[float], source: str, **more: Any) -> None:
        form = {"item": item, "names": [name], "values": values, "source": source}
        found.append({"is_share": False, **form, **more})

    # Figure 8 has bars without numbers, and does not name the square products.
    for name in shapes.bert():
        add(f"gemm/{name}", "ansor", [1.9, 9.5], "figure 8a, all")
    for name, one in shapes.convolutions().items():
        if one.r == 3:
            add(f"conv/{name}", "ansor", [2.7, 3.5], "figure 8b, all")
    for name, value in _FIGURE_9:
        for activation in shapes.ACTIVATIONS:
            item = f"epilogue/{name}-{activation}"
            add(item, "unfused", [value], "figure 9, average")
    for table, source in ((_TABLE_1, "table 1"), (_TABLE_2, "table 2")):
        for name, value in table.items():
            add(f"b2b/{name}", "unfused", [value], source)
    for name, (speed, cost) in _TABLE_3.items():
        add(f"padding/{name}", "unpadded_kernel", [speed], "table 3")
        add(f"padding/{name}", "move", [cost], "table 3, cost", is_share=True)
    for name, (value, family) in _FIGURE_10.items():
        source = f"figure 10a, {family} models, against Ansor"
        add(f"models/{name}", "", [value], source, names=["tvm_metaschedule", "tvm"])
    return found
