"""Count the small models in which a small number loses its meaning, and nobody is told.

`python -m benchmarks.small_numbers [WORD]... [--every N] [--jobs N] [--vgpu]` runs every Nth model
of `small_number_cases`, or only models whose name has all the words. TVM computes each on the host,
and NumPy computes the regions, so that no kernel is compiled; with `--vgpu` the models are compiled
and run on the virtual GPU. ONNX Runtime's FP32 is the reference. Without words the counts go to
results/small_numbers.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import boltgen
from benchmarks.cases.onnx_models import results
from benchmarks.harness.oracle_kernels import Model
from benchmarks.record import earlier, write
from benchmarks.small_number_cases import Case, cases
from boltgen.frontend.relax import annotate, import_model
from boltgen.model_passes import passes_for
from boltgen.pipeline import PipelineOptions

ARCH = "sm_80"
# FP16 products of 64 terms are off by some 2^-11 of their RMS; quotients and logarithms by more.
TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """The error of a result by the tolerance, and the notes that the model has."""

    error: float
    notes: tuple[str, ...]

    @property
    def status(self) -> str:
        """Whether the result is right, or at least a note tells that it may not be."""
        if self.error <= 1:
            return "right"
        return "noted" if self.notes else "wrong"


def error_of(
    got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], absolute: float = 1e-40
) -> float:
    """Return the largest error as a multiple of the allowed error: of each number or of its row's
    RMS.
    """
    wanted = wanted.astype(np.float64)
    mean = np.sqrt((wanted**2).mean(-1, keepdims=True))
    allowed = TOLERANCE * np.maximum(np.abs(wanted), mean) + absolute
    error = np.abs(got.astype(np.float64) - wanted) / allowed
    return float(np.where(np.isfinite(got), error, np.inf).max())


def outcome(case: Case) -> Outcome:
    """The result of one case, its regions computed by NumPy."""
    partitioned = annotate(import_model(case.model).module, passes_for(ARCH, PipelineOptions()))
    (got,) = Model.of_annotated(partitioned).run(case.x)
    return _judged(case, got, partitioned.notes)


def outcome_of_kernels(case: Case) -> Outcome:
    """The result of one case, compiled and run on the virtual GPU."""
    artifact = boltgen.compile(case.model, arch=ARCH, check="none")
    (got,) = artifact.run({"x": case.x}, device="vgpu").values()
    return _judged(case, got, artifact.metadata.notes)


def _judged(case: Case, got: np.ndarray[Any, Any], notes: Sequence[str]) -> Outcome:
    (wanted,) = results(case.model, {"x": case.x})
    if not np.isfinite(wanted).all():
        raise AssertionError(f"ONNX Runtime's result of {case.name} is no number")
    return Outcome(error_of(got, wanted, case.absolute), tuple(notes))


def main(words: Sequence[str], every: int, jobs: int, *, vgpu: bool) -> None:
    """Run every such case, in so many processes, and print the cases that are wrong."""
    run = outcome_of_kernels if vgpu else outcome
    chosen = [case for case in cases() if all(word in case.name for word in words)][::every]
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    found = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for case, result in zip(chosen, pool.map(run, chosen), strict=True):
            counts[result.status] += 1
            if result.status != "right":
                found.append(f"{result.status}: {case.name} (error {result.error:.3g})")
                print(found[-1], *result.notes, flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(chosen)} models in {seconds:.0f} s:", dict(counts))
    if not words:
        how = "kernels" if vgpu else "oracle"
        figures = {"models": len(chosen), "of": len(cases()), **counts, "not right": found}
        target = "no model is wrong without a note"
        write("small_numbers", {**earlier("small_numbers"), how: figures}, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="words of the names of cases; all by default")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run every Nth case")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that run them")
    parser.add_argument("--vgpu", action="store_true", help="compile, and run on the virtual GPU")
    options = parser.parse_args()
    main(options.words, options.every, options.jobs, vgpu=options.vgpu)
