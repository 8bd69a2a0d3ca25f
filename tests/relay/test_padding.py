"""A model of odd channel counts through Relay: padded, run on the virtual GPU under its checks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import boltgen.relay
from boltgen.device.choose import activate
from tests.conformance.odd_channels import SHAPE, Odd

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip


def test_a_model_of_odd_channel_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Odd().eval(), torch.randn(SHAPE)
    with torch.no_grad():
        wanted = net(x)
    module, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", SHAPE)])
    partitioned = boltgen.relay.partition(module, params, arch="sm_80")
    with tvm.transform.PassContext(opt_level=3):
        target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
        built = relay.build(partitioned, target=target, params=params)
    library = boltgen.relay.export_library(built, tmp_path / "model.so")
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.set_option("check", "memcheck,initcheck")
    try:
        loaded = tvm.runtime.load_module(str(library))
        executor = graph_executor.GraphModule(loaded["default"](tvm.cuda(0)))
        vgpu.clear_launches()
        executor.run(x=x.numpy())
        for index, expected in enumerate(wanted):
            found = executor.get_output(index).numpy()
            # Five layers of values up to about 2, each rounded to FP16.
            np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=5 * 2 * 2.0**-11)
        assert [finding.message for finding in vgpu.findings()] == []
    finally:
        vgpu.set_option("check", "none")
    kernels = [launch.kernel for launch in vgpu.launches()]
    assert "Interleave" in kernels[0], "one pass over the image: cast, transposed and padded"
    assert "transpose" not in " ".join(kernels)
    assert sum("move_kernel" in kernel for kernel in kernels) == 3, "the image, and two results"
