"""A module that was partitioned is partitioned again: nothing is left to do."""

import boltgen.relay

import numpy as np  # isort: skip
import torch  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU()).eval()
image = torch.rand(2, 8, 16, 16)
mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, image), [("x", (2, 8, 16, 16))])
mod = boltgen.relay.partition(mod, params, arch="sm_80")
mod = boltgen.relay.partition(mod, arch="sm_80")
target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=target)
executor = graph_executor.GraphModule(lib["default"](tvm.cuda()))
executor.set_input("x", image.numpy())
executor.run()
with torch.no_grad():
    exact = net(image).numpy()
# Sums of 72 products of numbers below 1 and below 1/8, both rounded to FP16, as the result is.
bound = 2.0**-11 * (2 * 72 / 8 + np.abs(exact))
assert np.all(np.abs(executor.get_output(0).numpy() - exact) <= bound)
