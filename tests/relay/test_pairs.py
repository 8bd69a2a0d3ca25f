"""Gates in one kernel with both of their products, through Relay, on the virtual GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import boltgen.relay
from tests.conformance.gated import MODELS, WIDTH, assert_right, network

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


@pytest.mark.parametrize("made", MODELS)
def test_a_gate_is_one_launch(made: type[torch.nn.Module], tmp_path: Path, checking) -> None:
    net, x = network(made), torch.randn(67, WIDTH)
    traced = torch.jit.trace(net, x)
    module, params = relay.frontend.from_pytorch(traced, [("x", tuple(x.shape))])
    partitioned = boltgen.relay.partition(module, params, arch="sm_80")
    with tvm.transform.PassContext(opt_level=3):
        target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
        built = relay.build(partitioned, target=target, params=params)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
    executor.run(x=x.numpy())
    assert_right(executor.get_output(0).numpy(), net, x)
    assert [finding.message for finding in checking.findings()] == []
    kernels = [launch.kernel for launch in checking.launches() if "move" not in launch.kernel]
    assert len(kernels) == 2, kernels
