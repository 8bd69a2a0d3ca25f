"""Sums that kernels write beside D, through Relay, on the virtual GPU under its checks."""

from __future__ import annotations

from pathlib import Path

import torch

import boltgen.relay
from tests.conformance.pooled import SHAPE, assert_right, network, sample

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


def test_a_model_pools_and_sums_within_its_products(tmp_path: Path, checking) -> None:
    net, x = network(), sample(1)
    traced = torch.jit.trace(net, x)
    module, params = relay.frontend.from_pytorch(traced, [("x", SHAPE)])
    partitioned = boltgen.relay.partition(module, params, arch="sm_80")
    with tvm.transform.PassContext(opt_level=3):
        target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
        built = relay.build(partitioned, target=target, params=params)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    loaded = tvm.runtime.load_module(str(library))
    executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
    for seed in (1, 2):
        x = sample(seed)
        executor.run(x=x.numpy())
        assert_right([executor.get_output(index).numpy() for index in range(2)], net, x)
    assert [finding.message for finding in checking.findings()] == []
    kernels = " ".join(launch.kernel for launch in checking.launches())
    assert "mean" not in kernels
    assert "sum" not in kernels
