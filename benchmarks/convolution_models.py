"""Models with every kind of convolution and recurrent layer: are they right, and in kernels?

    python -m benchmarks.convolution_models [--form FORM] [MODEL...]

`libraries/convolutions.py` has the models. Each is tried as a small one, by torch.export in FP16
and BF16, by ONNX, and by Relay, against eager PyTorch in FP32: see `library_models`. At the sizes
of its users it is partitioned for sm_80, and launches, bytes and times are counted and predicted.
The last model was found: it has GRUs, and ONNX Runtime judges it. Models and forms that are not
named keep what was recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from benchmarks.found.judge import try_model as try_found
from benchmarks.found.sources import model_named
from benchmarks.libraries.convolutions import CONVOLUTIONS
from benchmarks.libraries.install import install
from benchmarks.libraries.models import models_named
from benchmarks.library_models import ENVIRONMENT, try_model
from benchmarks.record import RESULTS, earlier, keep
from benchmarks.trials.command import options, try_all
from benchmarks.trials.process import Row, run_module
from benchmarks.trials.table import table

TARGET = "all agree; 99.5 % of FLOPs and 97 % of the predicted time in kernels"
FOUND = ("plcmos",)
NAMES = (*(model.name for model in CONVOLUTIONS), *FOUND)
# Door and precision of each trial, by the name of its column; PREDICTED is no trial.
TRIALS = {
    "torch": ("torch", "fp16"),
    "torch-bf16": ("torch", "bf16"),
    "onnx": ("onnx", "fp16"),
    "relay": ("relay", "fp16"),
}
PREDICTED = "predicted"
# The frontend of a found model, by form.
_FRONTENDS = {"onnx": "relax", "relay": "relay"}
_PREDICTING = "benchmarks.libraries.predict"
_MEGABYTE = 1e6
_COLUMNS = {
    "model": "model",
    "torch": "torch.export, FP16",
    "torch-bf16": "BF16",
    "onnx": "ONNX",
    "relay": "Relay",
    "of_flops": "share of FLOPs",
    "of_time": "share of time",
    "launches": "launches",
    "launches_of_tvm_alone": "TVM alone",
    "megabytes": "MB",
    "megabytes_of_tvm_alone": "TVM alone",
    "us": "predicted us",
}


def form_of(name: str, form: str, how: str, limit_s: float) -> Row:
    """Try a model in a form, or predict it."""
    is_found = name in FOUND
    if form == PREDICTED:
        arguments = [name, "found"] if is_found else [name]
        return run_module(_PREDICTING, arguments, limit_s, environment=ENVIRONMENT)
    if is_found:
        return try_found(model_named(name), _FRONTENDS[form], how, limit_s)
    door, precision = TRIALS[form]
    (model,) = models_named([name])
    return try_model(model, how, limit_s, door=door, precision=precision)


def shown(row: Row) -> Row:
    """Return the cells of a model's row in the table."""
    cells: Row = {"model": row["model"]}
    cells |= {form: _verdict(row[form]) for form in TRIALS if form in row}
    predicted: Mapping[str, float] = row.get(PREDICTED, {})
    if "predicted_us" not in predicted:
        return cells
    return {
        **cells,
        "of_flops": predicted["share_of_flops"],
        "of_time": f"{predicted['share_of_time']:.1%}",
        "launches": predicted["launches"],
        "launches_of_tvm_alone": predicted["launches_of_tvm_alone"],
        "megabytes": round(predicted["bytes"] / _MEGABYTE),
        "megabytes_of_tvm_alone": round(predicted["bytes_of_tvm_alone"] / _MEGABYTE),
        "us": round(predicted["predicted_us"]),
    }


def _verdict(trial: Row) -> str:
    """Return the error over its bound, or why there is none, in a few words."""
    if "rms_error" not in trial:
        return str(trial.get("refusal", trial["outcome"]))[:60]
    of_bound = f"{trial['rms_error'] / trial['rms_bound']:.2f} of bound"
    return of_bound if trial["outcome"] == "agrees" else f"wrong: {of_bound}"


def main() -> int:
    """Try the models, keep the table, and end with status 1 where one does not agree."""
    parser = options(__doc__, limit_s=300.0)
    parser.add_argument(
        "--form", choices=[*TRIALS, PREDICTED], action="append", help="all by default; may repeat"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.models) - set(NAMES):
        parser.error(f"there is no model {min(unknown)!r}; there are {', '.join(NAMES)}")
    how = "compile" if chosen.compile else "oracle"
    install()
    rows = {row["model"]: row for row in earlier("convolution_models").get("rows", ())}

    def trials() -> Iterator[partial[Row]]:
        for name in chosen.models or NAMES:
            for form in chosen.form or (*TRIALS, PREDICTED):
                if name not in FOUND or form in {*_FRONTENDS, PREDICTED}:
                    yield partial(tried, name, form)

    def tried(name: str, form: str) -> Row:
        made = form_of(name, form, how, chosen.limit)
        rows[name] = {"model": name, **rows.get(name, {}), form: made}
        if not chosen.rows:
            _keep([rows[each] for each in NAMES if each in rows])
        return {"model": name, "form": form, **made}

    found = try_all(trials(), ("model", "form", "rms_error", "outcome"), chosen.rows)
    return 0 if all(row["outcome"] in {"agrees", "ran"} for row in found) else 1


def _keep(rows: Sequence[Row]) -> None:
    keep("convolution_models", {"rows": rows}, TARGET)
    (RESULTS / "convolution_models.md").write_text(table([*map(shown, rows)], _COLUMNS))


if __name__ == "__main__":
    sys.exit(main())
