"""A PyTorch layer of which boltgen computes all, in the virtual machine, run and exported."""

import sys
from pathlib import Path

import boltgen.relay

import numpy as np  # isort: skip
import torch  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 40), torch.nn.ReLU()).eval()
image = torch.rand(24, 64)
traced = torch.jit.trace(net, image)
mod, params = relay.frontend.from_pytorch(traced, [("x", (24, 64))])
mod = boltgen.relay.partition(mod, params, arch="sm_80")
target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    executable = relay.vm.compile(mod, target=target, params=params)


def run(loaded: object) -> None:
    machine = tvm.runtime.vm.VirtualMachine(loaded, tvm.cuda())
    actual = machine.run(tvm.nd.array(image.numpy(), tvm.cuda())).numpy()
    with torch.no_grad():
        exact = net(image).numpy()
    # Sums of 64 products of numbers below 1 and below 1/8, both rounded to FP16, as the result is.
    assert np.all(np.abs(actual - exact) <= 2.0**-11 * (2 * 64 / 8 + np.abs(exact)))


run(executable)
code, lib = executable.save()
path = Path(sys.argv[1]) / "lib.so"
lib.export_library(str(path))
run(tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(path))))
