"""A report as a page of Markdown: targets, the paper's ratios beside ours, and every item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

from boltgen.arch import ARCHES
from boltgen.bench.results import DONE, FAILED, Form

Items = Mapping[str, Form]
Row = Sequence[str]
# The section that has records and no columns.
_RECORDED = "tune"
_MISSING = "not measured"
# The tuner's item.
TUNING = "models/tune-resnet50-b32"
# Targets on an H200 with kernels of sm_80's kind: a title, the beginning of the items' keys, a
# ratio, the target of its geometric mean, and which items count: bound by memory, not bound, or
# all.
_TARGETS = (
    ("GEMM against cuBLAS, memory-bound", "gemm/", "vendor", 0.95, True),
    ("GEMM against cuBLAS, compute-bound", "gemm/", "vendor", 0.60, False),
    ("convolution against cuDNN", "conv/", "vendor", 0.80, None),
    ("fused against unfused, GEMM", "epilogue/gemm", "unfused", 1.45, None),
    ("fused against unfused, convolution", "epilogue/conv", "unfused", 1.38, None),
    ("models against TVM alone", "models/", "tvm", 2.5, None),
)


def page(about: Form, items: Items, plots: Sequence[str]) -> str:
    """Write the whole page."""
    blocks = [
        f"# boltgen on {about['gpu']}",
        _provenance(about, items),
        "## Targets",
        "Ratios are geometric means.",
        _table(("what", "aim", "value", "items"), _target_rows(about, items)),
        "## The paper's ratios beside ours",
        "Bolt's were measured on a Tesla T4.",
        _table(("item", "against", "Bolt", "ours", "source"), paper_rows(about, items)),
        *(f"![{name}]({name})" for name in plots),
    ]
    for section in sorted({key.partition("/")[0] for key in items} - {_RECORDED}):
        chosen = {k: i for k, i in sorted(items.items()) if k.startswith(f"{section}/")}
        rows = [row for key, item in chosen.items() for row in _rows(key, item)]
        header = ("item", "boltgen, us", "others, us", "ratio", "interval", "verdict")
        blocks += [f"## {section}", _table(header, rows)]
        if waits := [row for key, item in chosen.items() for row in _waiting_rows(key, item)]:
            blocks += ["Seconds of compiling and tuning:", _table(("item", "what", "s"), waits)]
    if parts := [item for key, item in items.items() if key.startswith(f"{_RECORDED}/")]:
        blocks += [f"## {_RECORDED}", _recorded(parts)]
    return "\n\n".join(blocks) + "\n"


def is_memory_bound(item: Form, arch: str) -> bool:
    """Whether the item's bytes take the device longer than its arithmetic."""
    row = ARCHES[arch]
    arithmetic_s = item["flops"] / (row.tensor_f32_acc_tflops * 1e12)
    return bool(item["bytes"] / (row.dram_gb_per_s * 1e9) > arithmetic_s)


def geometric_mean(values: Sequence[float]) -> float:
    """Take the geometric mean of positive numbers."""
    return exp(sum(map(log, values)) / len(values))


def paper_rows(about: Form, items: Items) -> Iterable[Row]:
    """Set each of the paper's figures, which the results bring, beside ours.

    A figure names the ratios, or else shares, that may stand beside it; the first there is counts.
    """
    for figure in about["figures"]:
        form = "{:.0%}" if figure["is_share"] else "{:.2f}x"
        bolt = " to ".join(form.format(value) for value in dict.fromkeys(figure["values"]))
        item = items.get(figure["item"], {})
        found = item.get("shares" if figure["is_share"] else "ratios", {})
        name = next((name for name in figure["names"] if name in found), figure["names"][0])
        ours = _MISSING
        if name in found:
            ours = form.format(found[name] if figure["is_share"] else found[name]["ratio"])
        yield figure["item"], name, bolt, ours, figure["source"]


def _target_rows(about: Form, items: Items) -> Iterable[Row]:
    for what, prefix, ratio, aim, bound in _TARGETS:
        ratios = [
            item["ratios"][ratio]["ratio"]
            for key, item in items.items()
            if key.startswith(prefix) and ratio in item.get("ratios", {})
            if bound is None or is_memory_bound(item, about["arch"]) == bound
        ]
        value = f"{geometric_mean(ratios):.2f}x" if ratios else _MISSING
        yield what, f"{aim:.2f}x", value, str(len(ratios))
    tuned = items.get(TUNING, {})
    is_there = tuned.get("status") == DONE
    count = str(tuned["timed"]) if is_there else "0"
    seconds = f"{tuned['tuning_s'][0]:.0f} s" if is_there else _MISSING
    agreeing = f"{tuned['agreeing'] / max(tuned['timed'], 1):.0%}" if is_there else _MISSING
    yield "tuning ResNet-50, batch 32, with kernels that are there", "60 s", seconds, count
    yield "two sessions agree", "95%", agreeing, count


def _recorded(parts: Sequence[Form]) -> str:
    """Say in a sentence what section tune did: its records are a file of their own."""
    recorded, failed = (sum(part.get(name, 0) for part in parts) for name in ("recorded", "failed"))
    said = f"{recorded} configurations were tried in {len(parts)} parts: {failed} failed."
    lost = [part["error"] for part in parts if part["status"] == FAILED]
    return "\n".join([said, *(f"- a part was lost: {error}" for error in lost)])


def _provenance(about: Form, items: Items) -> str:
    clocks = sorted(clock for item in items.values() for clock in item.get("clocks_mhz", ()))
    texts = [item.get("gpu", {}).get("temperature.gpu", "") for item in items.values()]
    degrees = sorted(int(text) for text in texts if text.isdigit())
    kind = "times are the virtual GPU's, modelled, not measured" if about["virtual"] else "measured"
    facts = [
        f"{about['date']}, {about['arch']}, driver {about['driver']}; {kind}.",
        f"boltgen {about['commit']}, {about['toolchain']}.",
        f"Against {_versions(about['vendor'])}."
        if about["vendor"]
        else "Without the vendor's libraries.",
        f"SM clock {clocks[0]:.0f} to {clocks[-1]:.0f} MHz." if clocks else "",
        f"{degrees[0]} to {degrees[-1]} degrees Celsius." if degrees else "",
        about["method"],
    ]
    return " ".join(filter(None, facts))


def _versions(vendor: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in vendor.items())


def _rows(key: str, item: Form) -> Iterable[Row]:
    columns = {name: column["median_us"] for name, column in item.get("columns", {}).items()}
    ours = f"{columns['boltgen']:.2f}" if "boltgen" in columns else "-"
    others = ", ".join(f"{name} {us:.2f}" for name, us in columns.items() if name != "boltgen")
    head = (key.partition("/")[2], ours, others)
    ratios = item.get("ratios", {})
    if item["status"] == FAILED:
        yield *head, "", "", f"failed: {item['error']}"
    elif not ratios:
        yield *head, "", "", str(item.get("verdict", item["status"]))
    for label, ratio in ratios.items():
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        yield *head, f"{label} {ratio['ratio']:.3f}x", interval, ratio["verdict"]
    for label, share in item.get("shares", {}).items():
        yield *head, f"{label} {share:.1%}", "", "share of the time"


def _waiting_rows(key: str, item: Form) -> Iterable[Row]:
    name = key.partition("/")[2]
    for column, taken_s in item.get("compile_s", {}).items():
        yield name, f"{column}: compiling", f"{taken_s:.0f}"
    if log := item.get("metaschedule"):
        what = (
            f"tvm_metaschedule: {log['trials']} candidates on {log['gpu']}, {log['date']}; "
            f"{log['covered']} of {log['wanted']} kernels have its schedules"
        )
        yield name, what, f"{log['tuning_s']:.0f}"


def _table(header: Row, rows: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
