"""A report's plots: the roofline, and our ratio to the vendor's library for every shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from boltgen.arch import ARCHES
from boltgen.bench.results import Form

_COLOURS = {"gemm": "tab:blue", "conv": "tab:orange"}
_NAMES = {
    "gemm": "GEMM, MxNxK, against cuBLAS",
    "conv": "convolution, HxW-C-K-filter-stride, against cuDNN",
}


def draw(folder: Path, about: Form, items: Mapping[str, Form]) -> list[Path]:
    """Write the plots into `folder`; write none if no item of gemm or conv has a time."""
    timed = {
        key: item
        for key, item in items.items()
        if key.partition("/")[0] in _COLOURS and item.get("columns", {}).get("boltgen")
    }
    compared = {key: item for key, item in timed.items() if "vendor" in item.get("ratios", {})}
    kind = "modelled by the virtual GPU" if about["virtual"] else about["date"]
    written = []
    for name, chosen, height in (
        ("roofline", timed, 5.5),
        ("ratios", compared, 1.2 + 0.19 * len(compared)),
    ):
        if not chosen:
            continue
        figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
        axes.set_title(f"{name}: {about['gpu']}, {kind}")
        if name == "roofline":
            _draw_roofline(axes, about["arch"], chosen)
        else:
            _draw_ratios(axes, chosen)
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=120)
        pyplot.close(figure)
    return written


def _draw_roofline(axes: Axes, arch: str, items: Mapping[str, Form]) -> None:
    row = ARCHES[arch]
    intensities = [item["flops"] / item["bytes"] for item in items.values()]
    peak, ridge = row.tensor_f32_acc_tflops, row.tensor_f32_acc_tflops * 1e3 / row.dram_gb_per_s
    span = [min(*intensities, ridge) / 2, max(*intensities, ridge) * 2]
    slope = [span[0] * row.dram_gb_per_s / 1e3, peak, peak]
    roof = f"{row.dram_gb_per_s:.0f} GB/s, {peak:.0f} TFLOP/s"
    axes.plot([span[0], ridge, span[1]], slope, "k-", lw=1.2, label=roof)
    if row.mma_sync_fraction < 1.0:
        ceiling = peak * row.mma_sync_fraction
        label = f"mma.sync: {ceiling:.0f} TFLOP/s"
        axes.axhline(ceiling, color="gray", ls="--", lw=1, label=label)
    for section, colour in _COLOURS.items():
        chosen = [item for key, item in items.items() if key.startswith(f"{section}/")]
        axes.scatter(
            [item["flops"] / item["bytes"] for item in chosen],
            [item["flops"] / item["columns"]["boltgen"]["median_us"] / 1e6 for item in chosen],
            c=colour,
            s=26,
            label=section,
        )
    axes.set(xscale="log", yscale="log", xlabel="FLOP for each byte of DRAM, at least")
    axes.set(ylabel="TFLOP/s")
    axes.grid(True, which="both", lw=0.3)
    axes.legend(loc="lower right", fontsize=8)


def _draw_ratios(axes: Axes, items: Mapping[str, Form]) -> None:
    keys = list(items)[::-1]
    for place, key in enumerate(keys):
        ratio = items[key]["ratios"]["vendor"]
        interval = [[ratio["ratio"] - ratio["low"]], [ratio["high"] - ratio["ratio"]]]
        axes.barh(place, ratio["ratio"], color=_COLOURS[key.partition("/")[0]], xerr=interval)
    axes.axvline(1.0, color="k", lw=1)
    axes.set_yticks(range(len(keys)), [key.partition("/")[2] for key in keys], fontsize=7)
    axes.set(ylim=(-0.7, len(keys) - 0.3), xlabel="ours over the vendor's speed")
    handles = [Patch(color=_COLOURS[section], label=name) for section, name in _NAMES.items()]
    axes.legend(handles=handles, loc="lower right", fontsize=8)
    axes.grid(True, axis="x", lw=0.3)
