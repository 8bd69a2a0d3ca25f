"""Both frontends offload the same problems with the same epilogues, and reject alike.

Each runs in a process with its own TVM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import CASES

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = {"relax": Path(sys.executable), "relay": ROOT / ".venv-relay" / "bin" / "python"}


def run(frontend: str) -> dict[str, Any]:
    python = PYTHONS[frontend]
    assert python.is_file(), f"{python} is missing: run `make relay-env`"
    done = subprocess.run(
        [str(python), "-m", "tests.conformance.offloaded", frontend],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def relax() -> dict[str, Any]:
    return run("relax")


@pytest.fixture(scope="module")
def relay() -> dict[str, Any]:
    return run("relay")


@pytest.mark.parametrize("name", CASES)
def test_both_frontends_offload_the_same(
    name: str, relax: dict[str, Any], relay: dict[str, Any]
) -> None:
    assert relay[name]["epilogues"] == relax[name]["epilogues"]
    assert relay[name] == relax[name]


# What is expected in itself, so that both cannot be wrong in the same way.
EPILOGUES = {
    "dense_bias_gelu_erf": ["gelu_erf(add(acc, row0))"],
    "dense_bias_relu": ["relu(add(acc, row0))"],
    "dense_bias_branched_softplus": ["softplus(add(acc, row0))"],
    "dense_bias_branched_softplus_beta": ["divide(softplus(multiply(add(acc, row0), 2)), 2)"],
    "conv2d_bias_branched_mish": ["mish(add(acc, row0))"],
    "conv2d_bias_silu": ["silu(add(acc, row0))"],
    "conv2d_bias_hardswish": ["hardswish(add(acc, row0))"],
    "conv2d_batch_norm_relu": ["relu(add(acc, row0))"],
    "batch_matmul_broadcast_b": ["acc"],
    "conv2d_residual_add_relu": ["relu(add(add(acc, row0), tensor0))"],
    "conv2d_residual_multiply_relu": ["relu(multiply(tensor0, add(acc, row0)))"],
    "output_used_twice": [
        "add(acc, row0)",
        "add(add(acc, row0), tensor0)",
        "relu(add(acc, row0))",
    ],
    "pre_activation": [
        "add(add(acc, row0), tensor0)",
        "tensor: relu(add(multiply(float16(add(add(acc, row0), tensor0)), row1), row2)); "
        "tensor float16: add(add(acc, row0), tensor0)",
    ],
    "residual_in_a_stack_that_is_summed": [
        "add(acc, row0)",
        "relu(add(acc, row0))",
        "relu(add(add(add(acc, row0), tensor0), tensor1))",
    ],
    "maximum_of_a_stack": ["maximum(add(acc, row0), tensor0)", "relu(add(acc, row0))"],
    "inner_value_used_twice": ["add(acc, row0)"],
    "tuple_outputs": [
        "tensor: add(acc, row0); tensor float32: relu(add(acc, row0)); "
        "tensor float32: sigmoid(add(acc, row0))"
    ],
    "cyclic_dependency": ["add(acc, row0)"],
    "mutual_dependency": ["add(acc, row0)", "add(acc, row0)"],
    "depthwise": ["relu(add(acc, row0))"],
    "inverted_bottleneck": [
        "add(add(acc, row0), tensor0)",
        "relu(add(acc, row0))",
        "relu(add(acc, row0))",
    ],
    "groups": ["add(acc, row0)"],
    "integers_stay": [],
    "doubles_stay": [],
    "blocked_layout_stays": [],
    "weights_that_are_inputs": ["relu(acc)"],
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_what_is_offloaded(name: str, relay: dict[str, Any]) -> None:
    assert relay[name]["epilogues"] == EPILOGUES[name]


def test_a_rejected_convolution_says_why(relay: dict[str, Any]) -> None:
    ((operator, reason),) = relay["blocked_layout_stays"]["rejected"]
    assert operator == "conv2d"
    assert reason.startswith("its layouts are NCHW8c, OIHW8i16o and NCHW8c; kernels take NHWC")


# Where everything that can be is one kernel: the layers of each, and why it does not go on.
FUSED = {
    "chain_of_dense": [("relu(add(acc, row0)); sigmoid(acc); relu(acc)", "")],
    "chain_of_convolutions": [("relu(add(acc, row0)); relu(add(add(acc, row0), tensor0))", "")],
    "chain_broken_by_a_filter": [("relu(add(acc, row0))", ""), ("add(acc, row0)", "")],
}
BROKEN = {
    # The output is in FP32: a cast is its second use.
    "chain_broken_by_an_output": "the result between is used 2 times",
    "chain_broken_by_a_second_use": "the result between is used 2 times",
    "chain_broken_by_a_reshape": "reshape between moves the result to other threadblocks",
    "chain_broken_by_a_stride": "",
}


@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused(name: str, relay: dict[str, Any]) -> None:
    assert sorted(map(tuple, relay[name]["fused"])) == sorted(FUSED[name])


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_fused_says_why(name: str, relay: dict[str, Any]) -> None:
    notes = {note for layers, note in relay[name]["fused"] if note}
    assert len(relay[name]["fused"]) == 2
    assert all(";" not in layers for layers, _ in relay[name]["fused"])
    assert {note.partition(": ")[2] for note in notes} == ({BROKEN[name]} - {""})
