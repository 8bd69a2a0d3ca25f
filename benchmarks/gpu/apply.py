"""Turns the results of a day with a GPU into what boltgen ships and says.

    python -m benchmarks.gpu.apply RESULTS... [--virtual RESULTS]

writes tables and plots to `results/<gpu>/<date>-<commit>/` and records to `recorded/<gpu>/`, refits
the analytical model where problems that a fit has not seen get better, and writes the figures of
README.md and benchmarks/README.md and the verdicts of `docs/explanation/cutlass.md`. With
--virtual, results of the same checks on the virtual GPU, outputs are compared bit by bit. Results
of the virtual GPU alone change no page and no constant.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import fit_cost_model
from benchmarks.record import ROOT
from benchmarks.record import write as write_result
from boltgen.bench.page import geometric_mean
from boltgen.bench.report import make_report
from boltgen.bench.results import DONE, Form, ResultsError, merged, unpacked
from boltgen.errors import BoltgenError, RecordError

# The tables of README.md and benchmarks/README.md stand between these lines.
BEGIN, END = "<!-- measured on GPUs: begin -->", "<!-- measured on GPUs: end -->"
NOTHING = "**Nobody has run the suite on a GPU yet.**"
# By program, in the table of docs/explanation/cutlass.md: its items, without "check/cutlass-".
SUSPICIONS = {
    "wide_warp.cu": ("wide_warp", "narrow_warp-control"),
    "split_k_relu.cu": ("split_k_relu", "split_k_relu-control"),
    "b2b.cu": ("b2b_unasked", "b2b-control"),
}
_HEADER = ("| what | items | geometric mean | worst |", "|---|---|---|---|")
_OWN = "unfused"
# Rows of the table: what, the beginning of the items' keys, and whose time is set beside ours: a
# ratio of the item, or a column.
_ROWS = (
    ("GEMM against cuBLAS and cuBLASLt", "gemm/", "vendor"),
    ("attention against PyTorch's fastest backend", "attention/", "vendor"),
    ("models against eager PyTorch", "models/", "eager"),
    ("models against torch.compile in default mode", "models/", "compiled_default_mode"),
    ("models against torch.compile at max-autotune", "models/", "compiled"),
    ("models against TVM alone", "models/", "tvm"),
    ("convolution against cuDNN", "conv/", "vendor"),
    ("depthwise convolution against cuDNN", "depthwise/", "vendor"),
    ("convolution in groups against cuDNN", "groups/", "vendor"),
    ("recurrent layers against cuDNN", "recurrent/", "vendor"),
    ("fused epilogue against separate kernels", "epilogue/", _OWN),
    ("back to back in one kernel against a kernel for each", "b2b/", _OWN),
)


@dataclass(frozen=True, slots=True)
class Pages:
    """The folder of results and records, and the pages that quote them."""

    benchmarks: Path = ROOT / "benchmarks"
    readme: Path = ROOT / "benchmarks" / "README.md"
    front: Path = ROOT / "README.md"
    cutlass: Path = ROOT / "docs" / "explanation" / "cutlass.md"


def apply(
    folders: Sequence[Path], virtual: Sequence[Path] = (), pages: Pages | None = None
) -> list[str]:
    """Change the product by the results in `folders`; say in lines what was found and changed.

    Raises:
        ResultsError: the results do not go together, or other ones are there.
    """
    where = pages or Pages()
    about, items = merged(folders)
    told = [*verdicts(items)]
    if virtual:
        told += bits(items, merged(virtual)[1])
    report = make_report(folders, where.benchmarks)
    told.append(f"{report.folder}: {report.measured} items measured, {report.failed} failed")
    if about["virtual"]:
        return [*told, "times are the virtual GPU's: no page and no constant was changed"]
    if report.records:
        told += [f"{report.records}: records", *refit(sorted(report.records.parent.glob("*.gz")))]
    results = where.benchmarks / "results"
    replace_between(where.readme, f"\n{table(results)}\n")
    replace_between(where.front, sentence(results))
    where.cutlass.write_text(with_verdicts(where.cutlass.read_text(), about, items))
    return [*told, f"{where.front}, {where.readme} and {where.cutlass} were written"]


def verdicts(items: Mapping[str, Form]) -> Iterable[str]:
    """List what is wrong, what failed, and each suspicion with its verdict."""
    for key, item in sorted(items.items()):
        verdict = str(item.get("verdict", ""))
        if item["status"] != DONE:
            yield f"{key} failed: {item['error']}"
        elif verdict.startswith("wrong") or "suspicion" in item:
            yield f"{key}: {verdict}"


def bits(items: Mapping[str, Form], virtual: Mapping[str, Form]) -> Iterable[str]:
    """Compare the outputs of checks with the virtual GPU's, bit by bit."""
    compared = different = 0
    for key, item in sorted(items.items()):
        other = virtual.get(key, {})
        if "output" not in item or "output" not in other:
            continue
        one, two = (
            np.frombuffer(unpacked(each["output"]), each["dtype"]) for each in (item, other)
        )
        steps = steps_between(one, two)
        compared += 1
        if count := int(np.count_nonzero(steps)):
            different += 1
            units = "1 unit" if (most := int(steps.max())) == 1 else f"{most} units"
            yield (
                f"{key}: {count} of {steps.size} elements differ from the virtual GPU's, by at "
                f"most {units} in the last place"
            )
    yield f"outputs of {compared} checks were compared with the virtual GPU's: {different} differ"


def steps_between(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """Count how many numbers of their type lie between elements: 0 where the bits are equal."""

    def places(array: NDArray[Any]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
        least = np.int64(-(1 << (8 * array.dtype.itemsize - 1)))
        return np.where(found < 0, least - found, found)

    steps: NDArray[np.int64] = np.abs(places(one) - places(other))
    return steps


def refit(records: Sequence[Path]) -> list[str]:
    """Fit the analytical model to the records, and ship it if unseen problems get better."""
    try:
        figures, constants = fit_cost_model.run(records, check=False)
    except RecordError as error:
        return [f"the analytical model was not refitted: {error}"]
    write_result("fit_cost_model", figures, target=fit_cost_model.TARGET)
    return fit_cost_model.keep(figures, constants)


def table(results: Path) -> str:
    """Write the newest result of each item and GPU as a table; virtual GPUs do not count."""
    blocks = []
    for name, paths, items in _measured(results):
        pages = ", ".join(
            f"[{path.parent.name}]({path.with_name('report.md').relative_to(results.parent)})"
            for path in paths
        )
        rows = (
            f"| {what} | {count} | {mean:.2f}x | {worst:.2f}x |"
            for what, count, mean, worst in _rows(items)
        )
        blocks.append(
            f"Measured on {name}; all items of each run: {pages}. A ratio is the other's time over "
            "ours.\n\n" + "\n".join([*_HEADER, *rows])
        )
    return "\n\n".join(blocks) or NOTHING


def sentence(results: Path) -> str:
    """Write what others' programs are compared with as one sentence for each GPU."""
    said = []
    for name, _, items in _measured(results):
        rows = " ".join(
            f"{what[0].upper()}{what[1:]}: {mean:.2f}x, worst {worst:.2f}x."
            for what, _, mean, worst in _rows(items, own=False)
        )
        said.append(
            f"**Measured on {name}** ([items, method](benchmarks/README.md#the-suite-for-a-gpu)), "
            f"geometric means of the other's time over ours. {rows}"
        )
    return " ".join(said) or NOTHING


def _measured(results: Path) -> Iterable[tuple[str, list[Path], dict[str, Form]]]:
    """List the GPUs: the name, the files of results, and the newest result of each item."""
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        forms = {path: json.loads(path.read_text()) for path in folder.glob("*/results.json")}
        real = {path: form for path, form in forms.items() if not form["about"]["virtual"]}
        items: dict[str, Form] = {}
        for form in real.values():
            for key, item in form["items"].items():
                if key not in items or items[key].get("at", "") <= item.get("at", ""):
                    items[key] = item
        if real:
            yield next(iter(real.values()))["about"]["gpu"], sorted(real), items


def _rows(
    items: Mapping[str, Form], *, own: bool = True
) -> Iterable[tuple[str, int, float, float]]:
    """Sum up the items of each kind: how many, the geometric mean of their ratios, the least.

    Kinds that compare boltgen's own kernels with each other are included if `own` is set.
    """
    for what, prefix, other in _ROWS:
        if other == _OWN and not own:
            continue
        beside = [_ratio(item, other) for key, item in items.items() if key.startswith(prefix)]
        ratios = [ratio for ratio in beside if ratio is not None]
        if ratios:
            yield what, len(ratios), geometric_mean(ratios), min(ratios)


def _ratio(item: Form, other: str) -> float | None:
    """Return the time of `other` over ours, or None if the item has none."""
    if other in item.get("ratios", {}):
        return float(item["ratios"][other]["ratio"])
    columns = item.get("columns", {})
    if other not in columns:
        return None
    return float(columns[other]["median_us"] / columns["boltgen"]["median_us"])


def replace_between(page: Path, text: str) -> None:
    """Replace what stands between the two marks of a page.

    Raises:
        ResultsError: it has no such marks.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ResultsError(f"{page} has no {BEGIN!r} and {END!r}: put them where the figures are")
    page.write_text(f"{before}{BEGIN}{text}{END}{after}")


def with_verdicts(page: str, about: Form, items: Mapping[str, Form]) -> str:
    """Write a GPU's verdicts into the last cells of the page's table of suspicions."""
    for program, (name, control) in SUSPICIONS.items():
        item, beside = (items.get(f"check/cutlass-{one}", {}) for one in (name, control))
        verdict = str(item.get("verdict", "")).partition(":")[0]
        if not verdict:
            continue
        if beside.get("verdict", "").partition(":")[0] != "control right":
            verdict = "no verdict: its control is not right"
        cell = f"{verdict} ({about['gpu']}, {about['date']})"
        pattern = re.compile(rf"^(\|.*`{re.escape(program)}`.*\|)[^|\n]*\|$", re.MULTILINE)
        page = pattern.sub(rf"\g<1> {cell} |", page)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="folders that the suite wrote")
    parser.add_argument("--virtual", type=Path, action="append", default=[], metavar="RESULTS")
    options = parser.parse_args()
    try:
        print("\n".join(apply(options.results, options.virtual)))
    except BoltgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
