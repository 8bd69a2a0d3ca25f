"""Programs that nobody here wrote: examples of CUTLASS, which verify themselves."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cutlass_examples import EXAMPLES, Example, Verdict, build, fault_of, verify

# What compiles in seconds and runs in one; `make vgpu-examples` runs all.
QUICK_EXAMPLES = (
    "basic_gemm",
    "batched_gemm",
    "ampere_tensorop_conv2dfprop",
    "ampere_tf32_tensorop_gemm",
)


def verified(example: Example, libraries: Path, folder: Path, checks: str) -> Verdict:
    """What an example says of itself, under `checks`."""
    (program,) = build([example], jobs=1, libraries=libraries)
    return verify(
        example,
        program,
        libraries=libraries,
        folder=folder,
        timeout_s=600,
        options={"check": checks},
    )


@pytest.mark.parametrize("name", QUICK_EXAMPLES)
def test_an_example_of_cutlass(library_folder: Path, tmp_path: Path, name: str) -> None:
    (example,) = (e for e in EXAMPLES if e.name == name)
    # The batched one has no options for its size, and would take ten seconds under the checks.
    checks = "none" if name == "batched_gemm" else "initcheck,racecheck,synccheck,deadlock"
    verdict = verified(example, library_folder, tmp_path, checks)
    assert not verdict.fault, verdict.output


# Two examples do something that a check is there for.
@pytest.mark.parametrize(
    ("name", "check", "finding"),
    [
        ("batched_gemm", "memcheck", "leak: at the end the 136-byte allocation"),
        (
            "fused_two_gemms_grouped_f16_sm80_rf",
            "initcheck",
            "read in kernel 'cutlass::reference::device::kernel::Gemm<...>'",
        ),
    ],
)
def test_a_mistake_in_an_example_of_cutlass(
    library_folder: Path, tmp_path: Path, name: str, check: str, finding: str
) -> None:
    (example,) = (e for e in EXAMPLES if e.name == name)
    if name.startswith("fused"):
        example = replace(example, arguments=("--problems=1", "--m=128", "--k=64"))
    verdict = verified(example, library_folder, tmp_path, check)
    assert finding in verdict.output
    assert verdict.output.count("vgpu: ") == 1, verdict.output
    assert verdict.fault == "the virtual GPU complains"


@pytest.mark.parametrize(
    ("status", "said", "fault"),
    [
        (0, "Passed.", ""),
        (0, "This example isn't supported on current architecture", "waived: it ends well without"),
        (0, "Passed\nPassed", "says 2 times that it passed, not 1"),
        (255, "Passed", "ends with status 255"),
    ],
)
def test_an_example_that_is_waived_has_not_passed(status: int, said: str, fault: str) -> None:
    done = subprocess.CompletedProcess(["x"], status, said, "")
    assert fault_of(EXAMPLES[0], done).startswith(fault)
    assert bool(fault_of(EXAMPLES[0], done)) == bool(fault)
