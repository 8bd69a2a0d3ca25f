"""Read records in earlier formats, from before workloads were one type.

A problem was a `Gemm`, a `BatchedGemm` or a `Conv2d` beside its epilogue; layers back to back were
a `GemmChain` or a `Conv2dChain` with an identity epilogue. Earlier still, a configuration had no
type. The third format has today's trials, but identifies a kernel by a digest of its spec and of
all headers, not by its content.
"""

from __future__ import annotations

from typing import Any

from boltgen.errors import RecordError

_OF_TODAY = "boltgen-record-3"
# A tuple, because a value of any type may be searched in it.
EARLIER_FORMATS = ("boltgen-record-1", "boltgen-record-2", _OF_TODAY)
_CHAINS = ("GemmChain", "Conv2dChain")


def earlier_trial(form: Any, written: str) -> Any:
    """Convert a trial's form in the earlier format `written` to today's.

    Raises:
        RecordError: the form is invalid.
    """
    if written == _OF_TODAY:
        return form
    if not isinstance(form, dict) or not form.keys() <= {"problem", "epilogue", "config"}:
        raise RecordError("trial: expected an object of problem, epilogue and config")
    workload = earlier_workload(form.get("problem"), form.get("epilogue"))
    config = form.get("config")
    if isinstance(config, dict):
        config = {"type": "Cutlass2Config", **config}
    return {"workload": workload, "config": config}


def earlier_workload(problem: Any, epilogue: Any) -> dict[str, Any]:
    """Return today's form of a workload for its earlier types.

    Raises:
        RecordError: the form is invalid.
    """
    if not isinstance(problem, dict):
        raise RecordError("trial.problem: expected an object")
    if problem.get("type") in _CHAINS:
        layers = problem.get("layers")
        if not isinstance(layers, list) or not all(isinstance(each, dict) for each in layers):
            raise RecordError("trial.problem.layers: expected a list of objects")
        return {"layers": [each | {"problem": _problem(each.get("problem"))} for each in layers]}
    return {"layers": [{"problem": _problem(problem), "epilogue": epilogue}]}


def _problem(form: Any) -> Any:
    """Return a problem in which the batch is a field of a matmul; a batch of 1 shares nothing."""
    if not isinstance(form, dict) or form.get("type") != "BatchedGemm":
        return form
    shared = {} if form.get("batch") != 1 else {"a_batched": True, "b_batched": True}
    return form | {"type": "Gemm"} | shared
