"""Find the result of each ONNX operator in either frontend: the table in docs/onnx-operators.md.

`python -m benchmarks.onnx_operators [OPERATOR]...` runs the cases of `onnx_cases` through both, on
the host and for CUDA (an hour for all operators), records the results in
results/onnx_operators.json, and writes the table. With `--cuda` it runs the cases for CUDA alone;
with `--resume` it runs only the cases that the record lacks, as after an interruption. With
`--table` it only writes the table, from the record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.record import RESULTS, ROOT, dumped
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.relax.onnx_reader import converter

TABLE = ROOT / "docs" / "onnx-operators.md"
KEPT = RESULTS / "onnx_operators.json"
PYTHON = {"relax": ".venv/bin/python", "relay": ".venv-relay/bin/python"}
# Cases whose kernels are compiled by one run of nvcc.
_TOGETHER = 24
# Counts of ok, wrong and refused cases, by operator.
Counts: TypeAlias = Mapping[str, Mapping[str, int]]

# The operators of TVM's converter to Relax; others are written as ONNX defines them.
TAKEN = converter()
OFFLOADED = frozenset(
    {"Attention", "Conv", "Einsum", "GRU", "Gemm", "GroupNormalization", "InstanceNormalization",
     "LSTM", "LayerNormalization", "MatMul", "QLinearConv", "QLinearMatMul", "RMSNormalization",
     "RNN", "Softmax"}
)  # fmt: skip
# The operators that `boltgen.passes.regions.epilogue_walk` fuses into an anchor's kernel, by ONNX's
# names.
FUSED = frozenset(
    {"Abs", "Add", "BatchNormalization", "Cast", "Clip", "Div", "Erf", "Exp", "Gelu",
     "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mish",
     "Mul", "Neg", "PRelu", "Pow", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Sum", "Swish",
     "Tanh"}
)  # fmt: skip


def run_cases(frontend: str, folder: Path, labels: Sequence[str]) -> dict[str, str]:
    """The status of each case; a process that dies is started again behind the case it died of."""
    found: dict[str, str] = {}
    left = list(labels)
    while left:
        done = subprocess.run(
            [ROOT / PYTHON[frontend], "-m", "benchmarks.onnx_case_runner", frontend, folder],
            input="\n".join(left),
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if not lines:
            raise RuntimeError(f"no case of {frontend} could be run: {done.stderr[-2000:]}")
        found |= {line["label"]: line["status"] for line in lines if "status" in line}
        last = lines[-1]["label"]
        found.setdefault(last, "refused")  # the process ended in it
        left = left[left.index(last) + 1 :]
    return found


def survey(wanted: Collection[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Count results by frontend and operator, of all operators if none is named."""
    from benchmarks.onnx_cases import cases  # noqa: PLC0415  which loads ONNX Runtime

    with tempfile.TemporaryDirectory() as name:
        folder, operators = Path(name), {}
        for case in cases():
            if not wanted or case.operator in wanted:
                case.save(folder)
                operators[case.label] = case.operator
        return {
            frontend: counted(run_cases(frontend, folder, sorted(operators)), operators)
            for frontend in PYTHON
        }


def survey_cuda(wanted: Collection[str], *, resume: bool) -> None:
    """Compile the cases for sm_80, run them on the virtual GPU, and keep each one's status."""
    from benchmarks.onnx_cases import cases  # noqa: PLC0415  which loads ONNX Runtime

    kept = read_kept()
    record = kept.setdefault("cuda", {"date": "", "cases": {}})
    known: dict[str, dict[str, str]] = record["cases"]
    with tempfile.TemporaryDirectory() as name:
        folder, operators = Path(name), {}
        for case in cases():
            if (wanted and case.operator not in wanted) or (
                resume and case.label in known.get(case.operator, {})
            ):
                continue
            case.save(folder)
            operators[case.label] = case.operator
        for label, status in run_cuda_cases(folder, sorted(operators)):
            known.setdefault(operators[label], {})[label] = status
            record["date"] = datetime.now(timezone.utc).date().isoformat()
            KEPT.write_text(dumped(kept, sort_keys=True) + "\n")


def run_cuda_cases(folder: Path, labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the label and the status of each case; a case that fails among others is run again
    alone.
    """
    groups = [labels[at : at + _TOGETHER] for at in range(0, len(labels), _TOGETHER)]
    alone: list[str] = []
    while groups:
        done = 0
        for found in _cuda_lines(folder, groups):
            yield from ((label, status) for label, status in found.items() if status != "failed")
            alone += [label for label, status in found.items() if status == "failed"]
            done += 1
        alone += groups[done] if done < len(groups) else []  # the process ended in it
        groups = groups[done + 1 :]
    for label in alone:
        found = next(_cuda_lines(folder, [[label]]), {})
        yield label, found.get(label, "failed")


def _cuda_lines(folder: Path, groups: Sequence[Sequence[str]]) -> Iterator[dict[str, str]]:
    """The statuses of each group, as long as the process lives that runs them."""
    with subprocess.Popen(
        [ROOT / PYTHON["relax"], "-m", "benchmarks.cuda_case_runner", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(" ".join(group) + "\n" for group in groups))
        process.stdin.close()
        for group in groups:
            lines = [process.stdout.readline() for _ in group]
            if not all(lines):
                return
            found = {each["label"]: each for each in map(json.loads, lines)}
            for label, each in found.items():
                if each["status"] in {"failed", "wrong"}:
                    print(f"{label}: {each['status']}, {each['why']}", flush=True)
            yield {label: each["status"] for label, each in found.items()}


def counted(statuses: Mapping[str, str], operators: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Count how often each status occurs, by operator."""
    found: dict[str, Counter[str]] = {}
    for label, status in statuses.items():
        found.setdefault(operators[label], Counter())[status] += 1
    return {operator: dict(sorted(found[operator].items())) for operator in sorted(found)}


def becomes(operator: str, counts: Mapping[str, int]) -> str:
    """Name the form that an operator's nodes take: the first of the words that holds."""
    if not counts.get("ok"):
        return "refused"
    how = "offloaded" if operator in OFFLOADED else "fused" if operator in FUSED else "TVM"
    has_rule = any(
        rule.why and not rule.below and not rule.only for rule in RULES.get(operator, ())
    )
    is_lacking = operator not in TAKEN.takes
    return f"{how}, rewritten" if has_rule or is_lacking else how


def table(kept: Mapping[str, Any]) -> str:
    """The document."""
    return "\n".join([*_HEAD, *_for_cuda(kept["cuda"]), *_COLUMNS, *_rows(kept), ""])


_HEAD = (
    "# ONNX operators",
    "",
    "This table says what boltgen does with each operator of ONNX, operator sets 7 to 23.",
    "`python -m benchmarks.onnx_operators` writes it from ONNX's own test cases. Each case is",
    "stamped with every operator set that changed the operator.",
    "",
    "- **CUDA**: compiled for sm_80 as `boltgen.compile` does it, and run on the virtual GPU.",
    "- **Host, Relax** and **Host, Relay**: imported, and compiled by TVM for the host.",
    "",
    "Each result is compared with ONNX Runtime's.",
    "",
    "- *offloaded*: a product or a norm of rows; boltgen's kernels compute it where sizes, axes",
    "  and layout allow.",
    "- *fused*: elementwise; it becomes part of the kernel of the product before it.",
    "- *TVM*: it stays with TVM.",
    "- *rewritten*: some or all of its forms are written as other operators before the import,",
    "  which the notes of a compilation name.",
    "- *refused*: the import ends with an error that names it.",
    "",
    "Counts are cases that are right, of all that were run. A case that is not right is refused,",
    "by the operator's name and the form that it has, unless the cell says otherwise. A case is",
    "right if it agrees with ONNX Runtime or, at the operator's newest version, with the results",
    "that ONNX itself gives: ONNX Runtime has NaN where attention masks a whole row, and caps",
    "scores in another order. For CUDA, products are computed in FP16: there a result may differ",
    "by 8 roundings of FP16, relative to the largest.",
    "",
    "Of the operator set com.microsoft, MatMulNBits is rewritten: 4 and 8 bits, blocks of 16 or",
    "more, zero points packed in uint8, a bias. For Relax kernels multiply its weights packed, and",
    "those of a DequantizeLinear of constant INT4 or INT8 before a MatMul ([which of them",
    "are packed](how-to/quantised-weights.md)). For Relay, weights become floats",
    "beforehand. `accuracy_level` is ignored: it allows A to be rounded to INT8, which no kernel",
    "does. Zero points that are floats, and a `g_idx` that permutes K, are refused.",
    "",
)
_COLUMNS = (
    "| operator | becomes | CUDA | Host, Relax | Host, Relay |",
    "|---|---|---|---|---|",
)


def _for_cuda(record: Mapping[str, Any]) -> Iterator[str]:
    """The sum of the cases for CUDA, and when they were run."""
    statuses = [each for cases in record["cases"].values() for each in cases.values()]
    counts = Counter(statuses)
    yield f"Cases for CUDA, last run on {record['date']}: {len(statuses)}."
    yield f"Right: {counts['ok']}. Refused by name: {counts['refused']}."
    yield f"Different: {counts['wrong']}. Failed: {counts['failed']}."
    yield ""


def _rows(kept: Mapping[str, Any]) -> Iterator[str]:
    cases = kept["cuda"]["cases"]
    for operator in sorted({*kept["relax"], *kept["relay"]}):
        relax = kept["relax"].get(operator, {})
        counts = [Counter(cases.get(operator, {}).values()), relax, kept["relay"].get(operator)]
        cells = " | ".join(map(_cell, counts))
        yield f"| {operator} | {becomes(operator, relax)} | {cells} |"


def _cell(counts: Mapping[str, int] | None) -> str:
    if not counts:
        return "not run"
    said = [f"{counts[key]} {verb}" for key, verb in _NOT_RIGHT.items() if counts.get(key)]
    more = f" ({', '.join(said)})" if said else ""
    return f"{counts.get('ok', 0)} of {sum(counts.values())}{more}"


_NOT_RIGHT = {"wrong": "differ", "failed": "fail"}


def read_kept() -> dict[str, Any]:
    """The counts that are kept in the repository."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def main() -> None:
    """Run the cases unless only the table is wanted, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="run the cases of these alone")
    parser.add_argument("--cuda", action="store_true", help="run the cases for CUDA alone")
    parser.add_argument(
        "--resume", action="store_true", help="run the cases for CUDA that the record lacks"
    )
    parser.add_argument("--table", action="store_true", help="write the table, and run no case")
    asked = parser.parse_args()
    if not (asked.cuda or asked.resume or asked.table):
        kept = read_kept()
        for frontend, counts in survey(asked.operators).items():
            kept[frontend] = dict(sorted({**kept[frontend], **counts}.items()))
        KEPT.write_text(dumped(kept, sort_keys=True) + "\n")
    if not asked.table:
        survey_cuda(asked.operators, resume=asked.resume)
    TABLE.write_text(table(read_kept()))


if __name__ == "__main__":
    main()
