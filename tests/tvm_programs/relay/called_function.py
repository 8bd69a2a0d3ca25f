"""A main that calls another global function, which of TVM's executors the machine can."""

import boltgen.relay

import tvm  # isort: skip
from tvm import relay  # isort: skip

from tests.tvm_programs.sample import arrays, check

data = arrays()
x = relay.var("x", shape=(24, 64), dtype="float16")
dense = relay.nn.dense(x, relay.const(data["w"].T.copy()))
active = relay.nn.relu(relay.nn.bias_add(dense, relay.const(data["b"])))
mod = tvm.IRModule({relay.GlobalVar("layer"): relay.Function([x], active)})
mod = relay.transform.InferType()(mod)
z = relay.var("z", shape=(24, 64), dtype="float16")
mod["main"] = relay.Function([z], relay.nn.softmax(mod.get_global_var("layer")(z)))
mod = boltgen.relay.partition(mod, arch="sm_80")
target = tvm.target.Target("cuda -arch=sm_80", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    executable = relay.vm.compile(mod, target=target)
machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cuda())
check(machine.run(tvm.nd.array(data["x"], tvm.cuda())).numpy())
