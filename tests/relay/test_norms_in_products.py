"""Norms that the products around them compute, through Relay, on the virtual GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import boltgen.relay
from tests.conformance.normed import NARROW, SIZES, PostNorm, assert_right, network

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


@pytest.mark.parametrize(("rows", "wide"), SIZES)
def test_no_norm_has_a_kernel_of_its_own(rows: int, wide: int, tmp_path: Path, checking) -> None:
    net, x = network(PostNorm, wide), torch.randn(rows, NARROW)
    traced = torch.jit.trace(net, x)
    module, params = relay.frontend.from_pytorch(traced, [("x", (rows, NARROW))])
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
    assert len(kernels) == 4, kernels
