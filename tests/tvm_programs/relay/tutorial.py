"""TVM's tutorials: `relay.build`, and an executor of what it returned; then an exported library."""

import sys
from pathlib import Path

import boltgen.relay

import tvm  # isort: skip
from tvm import relay  # isort: skip
from tvm.contrib import graph_executor  # isort: skip

from tests.tvm_programs.sample import arrays, check

data = arrays()
x = relay.var("x", shape=(24, 64), dtype="float16")
dense = relay.nn.dense(x, relay.const(data["w"].T.copy()))
active = relay.nn.relu(relay.nn.bias_add(dense, relay.const(data["b"])))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(active)))
mod = boltgen.relay.partition(mod, arch="sm_80")
target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=target)


def run(factory: object) -> None:
    executor = graph_executor.GraphModule(factory["default"](tvm.cuda()))
    executor.set_input("x", data["x"])
    executor.run()
    check(executor.get_output(0).numpy())


run(lib)
run(lib)
path = Path(sys.argv[1]) / "lib.so"
lib.export_library(str(path))
run(tvm.runtime.load_module(str(path)))
