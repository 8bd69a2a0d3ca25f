"""Compare boltgen with ONNX Runtime on com.microsoft's operators, and write the page about them.

`python -m benchmarks.contrib_operators [TEXT]...` runs the cases of `contrib_cases` (ten minutes
for all of them): TVM's part is compiled for the host, and NumPy plays boltgen's kernels. With
`--vgpu` it compiles a sample for sm_80 instead, and runs it on the virtual GPU. Both keep their
figures in results/contrib_operators.json. `--table` writes docs/contrib-operators.md alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as runtime

import boltgen
from benchmarks.contrib_cases import Array, Case, cases
from benchmarks.harness.oracle_kernels import Model
from benchmarks.record import ROOT, earlier, write
from boltgen.errors import BoltgenError
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.relax import import_model

NAME = "contrib_operators"
TABLE = ROOT / "docs" / "contrib-operators.md"
# Forms that the virtual GPU runs: one of each kind of kernel, and of operators that TVM computes.
SAMPLE = (
    "FusedMatMul: alpha",
    "FusedGemm: Relu",
    "FusedConv: Z",
    "SkipLayerNormalization: bias and sum",
    "GroupNorm: SiLU",
    "EmbedLayerNormalization: mask and sum",
    "MultiHeadAttention: past, bias and mask",
    "Attention: mask of keys, unidirectional",
    "GroupQueryAttention: one place, lengths",
    "GroupQueryAttention: prompt, packed, rotary",
    "RotaryEmbedding: interleaved",
    "QuickGelu: plain",
)
# Operands of up to four products one after another are rounded to FP16, by 2^-11 each, and an
# exponential makes at most twice as much of an error in a score of at most 2.
TOLERANCE = 16 * 2.0**-11


def error(actual: Sequence[Array], case: Case) -> float:
    """The largest difference from what is wanted, in parts of the largest number wanted.

    It is infinite where shapes or types differ.
    """
    worst = 0.0
    for have, want in zip(actual, map(np.asarray, case.wanted()), strict=True):
        found, wanted = (have, want) if case.meaning is None else map(case.meaning, (have, want))
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return float("inf")
        away = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
        worst = max(worst, float(away / max(1.0, np.abs(wanted.astype(np.float64)).max(initial=0))))
    return worst


def on_host(case: Case) -> dict[str, Any]:
    """A case with TVM's part on the host, and with kernels that NumPy plays."""
    model = Model(import_model(case.model()).module, normalise=True)
    found = error(model.run(*case.fed.values()), case)
    kernels = Counter(_kind(region.label) for region in model.regions)
    return {"error": found, "right": found <= TOLERANCE, "kernels": dict(kernels)}


def on_vgpu(case: Case) -> dict[str, Any]:
    """A case compiled for sm_80, on the virtual GPU."""
    artifact = boltgen.compile(case.model(), arch="sm_80", check="none")
    results = artifact.run(case.fed, device="vgpu")
    found = error(list(results.values()), case)
    return {"error": found, "right": found <= TOLERANCE}


def _kind(label: str) -> str:
    """The kind of kernel that a region's operators make."""
    operators = label.split(" + ")
    if operators.count("matmul") == 2 and "softmax" in operators:
        return "attention"
    kinds = ("matmul", "conv2d", "layer_norm", "group_norm", "softmax")
    return next((kind for kind in kinds if kind in operators), "norm")


def survey(wanted: Sequence[str], *, vgpu: bool) -> dict[str, dict[str, Any]]:
    """The result of each case whose name has one of the texts."""
    found = {}
    for case in cases():
        if (vgpu and case.label not in SAMPLE) or (
            wanted and not any(text in case.label for text in wanted)
        ):
            continue
        try:
            found[case.label] = (on_vgpu if vgpu else on_host)(case)
        except BoltgenError as refusal:
            found[case.label] = {"right": False, "refused": str(refusal)}
        print(case.label, found[case.label], flush=True)
    return found


def refused() -> list[str]:
    """The operators of the domain that no rule rewrites."""
    names = {
        schema.name
        for schema in runtime.get_all_operator_schema()
        if schema.domain == "com.microsoft"
    }
    return sorted(name for name in names if f"com.microsoft.{name}" not in RULES)


_HEAD = (
    "# Operators of com.microsoft",
    "",
    "ONNX Runtime's optimisers write operators of their own domain, com.microsoft. boltgen writes",
    "them as the standard operators that they stand for, so that its kernels compute them, or it",
    "refuses the model by the operator's name. `python -m benchmarks.contrib_operators` writes",
    "this page. It compares each form with ONNX Runtime 1.23 on the host, or with a NumPy",
    "statement of the documentation where ONNX Runtime has no CPU kernel.",
    "",
    "Save models with `ORT_ENABLE_EXTENDED` at most. `ORT_ENABLE_ALL` also writes layouts of the",
    "processor on which the model is saved (com.microsoft.nchwc), which are refused.",
    "",
    "Caches of keys and values grow by each step: `past` and `present` may not share a buffer.",
    "",
    "| operator | forms that are right | kernels |",
    "|---|---|---|",
)


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    return "\n".join([*_HEAD, *_rows(figures), "", *_foot(), ""])


def _rows(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for operator in sorted({case.operator for case in cases()}):
        own = [figures[case.label] for case in cases() if case.operator == operator]
        right = sum(each["right"] for each in own)
        kinds = sorted({kind for each in own for kind in each.get("kernels", {})})
        yield f"| {operator} | {right} of {len(own)} | {', '.join(kinds) or 'TVM'} |"


def _foot() -> Iterator[str]:
    names = ", ".join(refused())
    yield "MatMulNBits has [a page of its own](how-to/quantised-weights.md). These are refused:"
    yield f"{names}."


def main() -> None:
    """Run the cases that are wanted, keep the figures, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run the cases with one of these in their names")
    parser.add_argument(
        "--vgpu", action="store_true", help="compile a sample and run it on the virtual GPU"
    )
    parser.add_argument("--table", action="store_true", help="write the page, and run no case")
    asked = parser.parse_args()
    kept = earlier(NAME)
    if not asked.table:
        place = "virtual GPU" if asked.vgpu else "host"
        found = survey(asked.words, vgpu=place != "host")
        kept[place] = dict(sorted({**kept.get(place, {}), **found}.items()))
        write(NAME, kept, "every form right on the host, and the sample on the virtual GPU")
    TABLE.write_text(table(kept["host"]))


if __name__ == "__main__":
    main()
