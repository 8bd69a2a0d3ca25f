"""A report as a page of Markdown: targets, the paper's ratios beside ours, and every item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from benchmarks.gpu.paper import FIGURES
from boltgen.arch import ARCHES

# The section that has records and no columns.
_RECORDED = "tune"
Items = Mapping[str, dict[str, Any]]
_WAITING = "How long each took to be made, in seconds of wall time:"
_COMPILED = {"boltgen": "compiling, by the analytical model", "tvm": "compiling, without tuning"}
# The tuner's item, and what is aimed at: its time, and how often two sessions find the same winner
# or one within 2 % of it.
TUNING, _AIMS = "models/tune-resnet50-b32", ("60 s", "95 %")
_MISSING = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure aimed at on an H200 with sm_80's kernels: the geometric mean of a ratio."""

    what: str
    section: str
    ratio: str
    aim: float
    bound: str = ""  # "memory" or "compute": only such items
    prefix: str = ""


TARGETS = (
    Target(
        what="GEMM against cuBLAS, memory-bound",
        section="gemm",
        ratio="vendor",
        aim=0.95,
        bound="memory",
    ),
    Target(
        what="GEMM against cuBLAS, compute-bound",
        section="gemm",
        ratio="vendor",
        aim=0.60,
        bound="compute",
    ),
    Target(what="convolution against cuDNN", section="conv", ratio="vendor", aim=0.8),
    Target(
        what="fused against unfused, GEMM",
        section="epilogue",
        ratio="unfused",
        aim=1.45,
        prefix="gemm",
    ),
    Target(
        what="fused against unfused, convolution",
        section="epilogue",
        ratio="unfused",
        aim=1.38,
        prefix="conv",
    ),
    Target(what="models against TVM alone", section="models", ratio="tvm", aim=2.5),
)


def is_memory_bound(item: Mapping[str, Any], arch: str) -> bool:
    """Whether the item's bytes take the device longer than its arithmetic."""
    row = ARCHES[arch]
    arithmetic = item["flops"] / (row.tensor_f32_acc_tflops * 1e12)
    return bool(item["bytes"] / (row.dram_gb_per_s * 1e9) > arithmetic)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return exp(sum(map(log, values)) / len(values))


def page(about: Mapping[str, Any], items: Items, plots: Sequence[str]) -> str:
    """The whole page."""
    blocks = [
        f"# boltgen on {about['gpu']}",
        _provenance(about, items),
        "## Targets",
        "Geometric means. What is *predicted* was not measured: ours is what the analytical model "
        "says, and the vendor is the device's roofline, which no kernel reaches, so that such a "
        "ratio says how far ours is from what the device could do, not from the vendor's library.",
        *_of_counted_models(items),
        _table(("what", "aim", "value", "items", "kind"), _target_rows(about, items)),
        "## The paper's ratios beside ours",
        "Bolt's were measured on a Tesla T4.",
        _table(("item", "against", "Bolt", "ours", "kind", "source"), paper_rows(items)),
        *(f"![{name}]({name})" for name in plots),
    ]
    for section in sorted({key.partition("/")[0] for key in items} - {_RECORDED}):
        rows = [row for key, item in sorted(items.items()) for row in _rows(section, key, item)]
        header = ("item", "boltgen, us", "others, us", "ratio", "interval", "verdict")
        blocks += [f"## {section}", _table(header, rows)]
        if section == "models" and (waits := list(_waiting_rows(items))):
            blocks += [_WAITING, _table(("item", "what", "seconds", "of"), waits)]
    parts = [item for key, item in items.items() if key.startswith(f"{_RECORDED}/")]
    if parts:
        blocks += [f"## {_RECORDED}", _recorded(parts)]
    return "\n\n".join(blocks) + "\n"


def _of_counted_models(items: Items) -> Iterable[str]:
    """How models are predicted, and what the analytical model would say in its place."""
    columns = [
        item["columns"]
        for key, item in items.items()
        if key.startswith("models/") and item["status"] == "predicted" and "columns" in item
    ]
    if not columns:
        return
    ours, analytical, tvm = (
        [column[name]["median_us"] for column in columns]
        for name in ("boltgen", "boltgen_analytical", "tvm")
    )
    slower = geometric_mean([a / b for a, b in zip(analytical, ours, strict=True)])
    pessimistic = geometric_mean([a / b for a, b in zip(tvm, analytical, strict=True)])
    yield (
        "Whole models are predicted from what the virtual GPU counts in every kernel, ours and "
        "TVM's: a launch takes what its work takes the busiest unit. Real kernels of both wait for "
        f"memory besides. The analytical model, which knows waiting, gives ours {slower:.2f} times "
        f"that time; beside TVM's without any the ratio would be {pessimistic:.2f}x."
    )


def _recorded(parts: Sequence[Mapping[str, Any]]) -> str:
    """Section tune in a sentence: its records are a file of their own."""
    recorded, failed = (sum(part.get(name, 0) for part in parts) for name in ("recorded", "failed"))
    broken = sum(len(part.get("not_compiled", ())) for part in parts)
    lost = [part["error"] for part in parts if part["status"] == "failed"]
    said = (
        f"{recorded} configurations were tried in {len(parts)} parts: {failed} failed; {broken} "
        "more did not compile."
    )
    return "\n".join([said, *(f"- a part was lost: {error}" for error in lost)])


def _provenance(about: Mapping[str, Any], items: Items) -> str:
    if about["method"] is None:
        return (
            f"**Nothing here was measured.** Predicted for {about['arch']}: by the analytical "
            "model, and from the virtual GPU's counts."
        )
    clocks = sorted(clock for item in items.values() for clock in item.get("clocks_mhz", ()))
    temperatures = sorted(
        int(item["gpu"]["temperature.gpu"])
        for item in items.values()
        if item.get("gpu", {}).get("temperature.gpu", "").isdigit()
    )
    kind = "times are the virtual GPU's, modelled, not measured" if about["virtual"] else "measured"
    facts = [
        f"{about['date']}, {about['arch']}, driver {about['driver']}; {kind}.",
        f"boltgen {about['commit']}, {about['toolchain']}.",
        f"Against {about['vendor']}." if about["vendor"] else "Without the vendor's libraries.",
        f"SM clock {clocks[0]:.0f} to {clocks[-1]:.0f} MHz." if clocks else "",
        f"{temperatures[0]} to {temperatures[-1]} degrees Celsius." if temperatures else "",
        about["method"],
    ]
    return " ".join(filter(None, facts))


def _kind(statuses: Iterable[str]) -> str:
    found = set(statuses)
    if found == {"done"}:
        return "measured"
    return "predicted" if found == {"predicted"} else "measured and predicted"


def _target_rows(about: Mapping[str, Any], items: Items) -> Iterable[Sequence[str]]:
    for target in TARGETS:
        chosen = [
            item
            for key, item in items.items()
            if key.startswith(f"{target.section}/{target.prefix}")
            and target.ratio in item.get("ratios", {})
            and (
                not target.bound
                or is_memory_bound(item, about["arch"]) == (target.bound == "memory")
            )
        ]
        # What was measured stands alone: a mean of both would be neither.
        measured = [item for item in chosen if item["status"] == "done"]
        chosen = measured or chosen
        value = (
            f"{geometric_mean([item['ratios'][target.ratio]['ratio'] for item in chosen]):.2f}x"
            if chosen
            else "-"
        )
        kind = _kind(item["status"] for item in chosen) if chosen else _MISSING
        if target.ratio == "vendor" and kind == "predicted":
            kind += ", against the roofline"
        yield target.what, f"{target.aim:.2f}x", value, str(len(chosen)), kind
    yield from _tuning_rows(items.get(TUNING, {}))


def _tuning_rows(item: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    what = ("tuning ResNet-50, batch 32, with kernels that are there", "two sessions agree")
    if "agreeing" not in item:
        seconds = item.get("tuning_s")
        values = ("-" if seconds is None else f"{seconds[0]:.0f} to {seconds[1]:.0f} s", "-")
        kinds = (_MISSING if seconds is None else "predicted, of the device alone", _MISSING)
        counts = (str(item.get("tasks", 0)), "0")
        yield from zip(what, _AIMS, values, counts, kinds, strict=True)
        return
    count, kind = str(item["timed"]), _kind([item["status"]])
    agreeing = item["agreeing"] / max(item["timed"], 1)
    values = (f"{item['tuning_s'][0]:.0f} s", f"{agreeing:.0%}")
    for name, aim, value in zip(what, _AIMS, values, strict=True):
        yield name, aim, value, count, kind


def paper_rows(items: Items) -> Iterable[Sequence[str]]:
    """Each of the paper's figures with ours: item, ratio, Bolt's, ours, kind, source."""
    for figure in FIGURES:
        item = items.get(figure.item, {})
        values = item.get("shares" if figure.is_share else "ratios", {})
        names = (figure.name, figure.otherwise)
        name = next((name for name in names if name in values), figure.name)
        if name not in values:
            ours, kind = "-", _MISSING
        else:
            value = values[name]
            ours = f"{100 * value:.0f} %" if figure.is_share else f"{value['ratio']:.2f}x"
            kind = _kind([item["status"]])
        yield figure.item, name, figure.text, ours, kind, figure.source


def _rows(section: str, key: str, item: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    if not key.startswith(f"{section}/"):
        return
    name = key.partition("/")[2]
    columns = item.get("columns", {})
    ours = columns.get("boltgen", {}).get("median_us")
    shown = f"{ours:.2f}" if ours else "-"
    others = ", ".join(
        f"{other} {column['median_us']:.2f}"
        for other, column in columns.items()
        if other != "boltgen"
    )
    if item["status"] == "failed":
        yield name, shown, others, "", "", f"failed: {item['error']}"
        return
    ratios = item.get("ratios", {})
    if not ratios:
        yield name, shown, others, "", "", item.get("verdict", item["status"])
    for label, ratio in ratios.items():
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}" if "low" in ratio else ""
        yield name, shown, others, f"{label} {ratio['ratio']:.3f}x", interval, ratio["verdict"]
    for label, share in item.get("shares", {}).items():
        yield name, shown, others, f"{label} {100 * share:.1f} %", "", "share of the time"


def _waiting_rows(items: Items) -> Iterable[Sequence[str]]:
    """What a model's columns took to be made."""
    for key, item in sorted(items.items()):
        name = key.partition("/")[2]
        for column, taken_s in item.get("compile_s", {}).items():
            yield name, column, f"{taken_s:.0f}", _COMPILED.get(column, "compiling and tuning")
        if log := item.get("metaschedule"):
            took = (
                f"tuning, {log['search']}: {log['trials']} candidates on {log['gpu']}, "
                f"{log['date']}; {log['covered']} of {log['wanted']} kernels have its schedules"
            )
            yield name, "tvm_metaschedule", f"{log['tuning_s']:.0f}", took


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
