"""Bolt's figures, to stand beside ours.

Source: Xing et al., Bolt: Bridging the Gap between Auto-tuners and Hardware-native Performance,
MLSys 2022. All were measured on a Tesla T4.
"""

from __future__ import annotations

# Item -> (which ratio of the item's, the paper's value, where it is). Figure 9's bars have no
# numbers: the text gives the averages of four activations.
RATIOS: dict[str, tuple[str, float, str]] = {
    **{
        f"epilogue/gemm-1280x3072x768-{name}": ("unfused", 1.45, "figure 9, average")
        for name in ("relu", "gelu", "hardswish", "softplus")
    },
    **{
        f"epilogue/conv-56x56-64-64-3x3-{name}": ("unfused", 1.38, "figure 9, average")
        for name in ("relu", "gelu", "hardswish", "softplus")
    },
    "b2b/gemm-2464x1x4x4": ("unfused", 1.24, "table 1"),
    "b2b/gemm-16384x64x256x16": ("unfused", 1.34, "table 1"),
    "b2b/gemm-32768x128x576x64": ("unfused", 1.28, "table 1"),
    "b2b/gemm-128320x32x96x96": ("unfused", 1.46, "table 1"),
    "b2b/conv-224-3-48-s2": ("unfused", 1.10, "table 2"),
    "b2b/conv-112-48-48-s2": ("unfused", 1.41, "table 2"),
    "b2b/conv-56-48-48-s1": ("unfused", 1.87, "table 2"),
    "b2b/conv-224-3-64-s2": ("unfused", 1.24, "table 2"),
    "b2b/conv-112-64-64-s2": ("unfused", 1.12, "table 2"),
    "b2b/conv-56-64-64-s1": ("unfused", 2.02, "table 2"),
    "padding/32x20x26-46-32-3x3": ("unpadded", 1.62, "table 3"),
    "padding/32x20x26-46-32-5x5": ("unpadded", 1.95, "table 3"),
    "padding/128x14x19-46-32-5x7": ("unpadded", 1.77, "table 3"),
    "padding/288x11x15-46-32-5x7": ("unpadded", 1.71, "table 3"),
    "padding/32x20x26-174-64-3x3": ("unpadded", 1.60, "table 3"),
    "padding/32x20x26-174-64-5x5": ("unpadded", 1.99, "table 3"),
    "models/vgg16-b32": ("tvm", 4.2, "figure 10: VGG models, against Ansor"),
    "models/resnet50-b32": ("tvm", 1.5, "figure 10: ResNet models, against Ansor"),
    "models/repvgg_a0-b32": ("tvm", 2.6, "figure 10: RepVGG models, against Ansor"),
}
