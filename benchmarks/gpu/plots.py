"""A report's plots: the roofline, and our ratio to the vendor's library for every shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.patches import Patch

from boltgen.arch import ARCHES

_COLOURS = {"gemm": "tab:blue", "conv": "tab:orange"}
_NAMES = {
    "gemm": "GEMM, MxNxK, against cuBLAS",
    "conv": "convolution, HxW-C-K-filter-stride, against cuDNN",
}
_MARKERS = {"done": "o", "predicted": "x"}
_DPI = 120


def draw(folder: Path, about: Mapping[str, Any], items: Mapping[str, dict[str, Any]]) -> list[Path]:
    """Write the plots into `folder`."""
    drawn = {
        key: item
        for key, item in items.items()
        if key.partition("/")[0] in _COLOURS and item.get("columns", {}).get("boltgen")
    }
    if not drawn:
        return []
    roofline, ratios = folder / "roofline.png", folder / "ratios.png"
    _draw_roofline(roofline, about, drawn)
    compared = {key: item for key, item in drawn.items() if "vendor" in item.get("ratios", {})}
    if compared:
        _draw_ratios(ratios, about, compared)
    return [roofline, *([ratios] if compared else [])]


def _title(about: Mapping[str, Any]) -> str:
    kind = "modelled by the virtual GPU" if about["virtual"] else about["date"]
    return f"{about['gpu']}, {kind}"


def _draw_roofline(
    path: Path, about: Mapping[str, Any], items: Mapping[str, dict[str, Any]]
) -> None:
    row = ARCHES[about["arch"]]
    figure, axes = pyplot.subplots(figsize=(8, 5.5), layout="constrained")
    intensities = [item["flops"] / item["bytes"] for item in items.values()]
    span = [min(intensities) / 2, max(intensities) * 2]
    points = [span[0] * (span[1] / span[0]) ** (i / 200) for i in range(201)]
    peak = row.tensor_f32_acc_tflops
    axes.plot(points, [min(peak, x * row.dram_gb_per_s / 1e3) for x in points], "k-", lw=1.2)
    axes.text(span[1], peak * 1.04, f"{peak:.0f} TFLOP/s", ha="right", va="bottom", fontsize=8)
    # To the left of the slope, half way up.
    middle = (span[0] * peak * 1e3 / row.dram_gb_per_s) ** 0.5
    axes.text(
        middle * 0.9,
        middle * row.dram_gb_per_s / 1e3,
        f"{row.dram_gb_per_s:.0f} GB/s",
        ha="right",
        va="bottom",
        fontsize=8,
    )
    if row.mma_sync_fraction < 1.0:
        ceiling = peak * row.mma_sync_fraction
        axes.axhline(ceiling, color="gray", ls="--", lw=1)
        label = f"mma.sync: {ceiling:.0f} TFLOP/s"
        axes.text(span[1], ceiling / 1.04, label, ha="right", va="top", fontsize=8, color="gray")
    for section, colour in _COLOURS.items():
        for status, marker in _MARKERS.items():
            chosen = [
                item
                for key, item in items.items()
                if key.startswith(f"{section}/") and item["status"] == status
            ]
            if chosen:
                axes.scatter(
                    [item["flops"] / item["bytes"] for item in chosen],
                    [
                        item["flops"] / item["columns"]["boltgen"]["median_us"] / 1e6
                        for item in chosen
                    ],
                    c=colour,
                    marker=marker,
                    s=26,
                    label=f"{section}, {'measured' if status == 'done' else status}",
                )
    axes.set(xscale="log", yscale="log", xlabel="FLOP for each byte of DRAM, at least")
    axes.set(ylabel="TFLOP/s", title=f"Roofline: {_title(about)}")
    axes.grid(True, which="both", lw=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)


def _draw_ratios(path: Path, about: Mapping[str, Any], items: Mapping[str, dict[str, Any]]) -> None:
    # As the shapes are listed: squares, BERT, Llama by M, then convolutions by layer.
    keys = list(items)[::-1]
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.19 * len(keys)), layout="constrained")
    for place, key in enumerate(keys):
        item = items[key]
        ratio = item["ratios"]["vendor"]
        measured = item["status"] == "done"
        axes.barh(
            place,
            ratio["ratio"],
            color=_COLOURS[key.partition("/")[0]],
            alpha=1.0 if measured else 0.35,
            xerr=(
                [[ratio["ratio"] - ratio["low"]], [ratio["high"] - ratio["ratio"]]]
                if measured
                else None
            ),
        )
    axes.axvline(1.0, color="k", lw=1)
    axes.set_yticks(range(len(keys)), [key.partition("/")[2] for key in keys], fontsize=7)
    axes.set(
        ylim=(-0.7, len(keys) - 0.3),
        xlabel="ours over the vendor's speed; pale: predicted, over the roofline's",
    )
    axes.set_title(f"boltgen and the vendor's library: {_title(about)}")
    sections = {key.partition("/")[0] for key in keys}
    axes.legend(
        handles=[Patch(color=_COLOURS[name], label=_NAMES[name]) for name in sorted(sections)],
        loc="lower right",
        fontsize=8,
    )
    axes.grid(True, axis="x", lw=0.3)
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
