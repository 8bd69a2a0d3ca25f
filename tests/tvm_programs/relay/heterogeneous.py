"""Products on the GPU, the softmax on the CPU."""

import boltgen.relay

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

from tests.tvm_programs.sample import arrays, check

data = arrays()
x = relay.var("x", shape=(24, 64), dtype="float16")
dense = relay.nn.dense(x, relay.const(data["w"].T.copy()))
active = relay.nn.relu(relay.nn.bias_add(dense, relay.const(data["b"])))
on_gpu = relay.annotation.on_device(active, tvm.cuda())
softmax = relay.annotation.on_device(relay.nn.softmax(on_gpu), tvm.cpu())
mod = tvm.IRModule.from_expr(relay.Function([x], softmax))
mod = boltgen.relay.partition(mod, arch="sm_80")
targets = {"cuda": tvm.target.Target("cuda -arch=sm_80", host="llvm"), "cpu": "llvm"}
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=targets)
executor = graph_executor.GraphModule(lib["default"](tvm.cuda(), tvm.cpu()))
executor.set_input("x", data["x"])
executor.run()
check(executor.get_output(0).numpy())
