"""Models of transformers, diffusers and timm through torch.export and boltgen, against PyTorch.

They have random weights and small configurations. The libraries are installed once, in the user's
cache folder (270 MB); `libraries/models.py` is the table of models, and `libraries/trial.py`
says what is compared.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.libraries.install import install
from benchmarks.libraries.models import models_named
from benchmarks.libraries.samples import LibraryModel
from benchmarks.record import RESULTS, write
from benchmarks.trials.command import options, status, try_all
from benchmarks.trials.process import Row, run_module
from benchmarks.trials.table import table

_TARGET = "all agree with eager PyTorch in FP32; share of FLOPs: median 99 %"
_COLUMNS = {
    "model": "model",
    "library": "library",
    "products": "products",
    "of_flops": "share of FLOPs",
    "launches": "launches",
    "left_to_tvm": "kernels left to TVM",
    "error": "error",
    "bound": "bound",
    "rms_error": "RMS error",
    "rms_bound": "bound",
    "outcome": "outcome",
}
_PRINTED = ("model", "library", "of_flops", "error", "bound", "outcome")
# Nothing may be fetched from a model hub: only files of the wheels are used.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1"}


def try_model(
    model: LibraryModel,
    how: str = "oracle",
    limit_s: float = 300.0,
    *,
    door: str = "torch",
    precision: str = "fp16",
) -> Row:
    """Try a model and return the result; `how`, `door` and `precision` are arguments of
    `benchmarks.libraries.trial`.

    "outcome" is "agrees" or "wrong", or, where there are no outputs to judge, "refused", or how the
    process ended.
    """
    row: Row = {"model": model.name, "library": model.library, "how": how}
    row |= {"door": door, "precision": precision}
    arguments = [model.name, how, door, precision]
    row |= run_module("benchmarks.libraries.trial", arguments, limit_s, environment=ENVIRONMENT)
    if "rest" in row:
        row["left_to_tvm"] = sum(row["rest"].values())
    return row


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The number of models that agree, and their shares of FLOPs."""
    agreeing = [row for row in rows if row["outcome"] == "agrees"]
    shares = [row["of_flops"] for row in agreeing]
    return {
        "models": len(rows),
        "agree": len(agreeing),
        "median_share": statistics.median(shares) if shares else 0.0,
        "worst_share": min(shares, default=0.0),
    }


def main() -> int:
    """Try the models, keep the table, and end with status 1 where one does not agree."""
    parser = options(__doc__, limit_s=300.0)
    chosen = parser.parse_args()
    try:
        models = models_named(chosen.models)
    except KeyError as error:
        parser.error(error.args[0])
    how = "compile" if chosen.compile else "oracle"
    install()  # not in the time of the first model
    trials = (partial(try_model, model, how, chosen.limit) for model in models)
    rows = try_all(trials, _PRINTED, chosen.rows)
    if not chosen.rows and not chosen.models:
        write("library_models", {"summary": summary(rows), "rows": rows}, _TARGET)
        (RESULTS / "library_models.md").write_text(table(rows, _COLUMNS))
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
