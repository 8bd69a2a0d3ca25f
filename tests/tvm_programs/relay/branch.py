"""A branch with a product in each arm, in the virtual machine."""

import boltgen.relay

import numpy as np  # isort: skip
import tvm  # isort: skip
from tvm import relay  # isort: skip

rng = np.random.default_rng(11)
array = rng.uniform(-1, 1, (24, 64)).astype(np.float32)
weights = rng.uniform(-0.125, 0.125, (2, 40, 64)).astype(np.float32)
x = relay.var("x", shape=array.shape)
arms = [relay.nn.relu(relay.nn.dense(x, relay.const(weight))) for weight in weights]
is_large = relay.greater(relay.sum(x), relay.const(0.0))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.If(is_large, *arms)))
mod = boltgen.relay.partition(mod, arch="sm_80")
regions = [f for f in mod.functions.values() if f.attrs and "Compiler" in f.attrs]
assert len(regions) == 2
with tvm.transform.PassContext(opt_level=3):
    executable = relay.vm.compile(mod, target=tvm.target.Target("cuda -arch=sm_80", host="llvm"))
machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cuda())
for sign in (1, -1):
    given = sign * np.abs(array)
    actual = machine.run(tvm.nd.array(given, tvm.cuda())).numpy()
    exact = np.maximum(given @ weights[0 if sign > 0 else 1].T, 0)
    # Sums of 64 products of numbers below 1 and below 1/8, both rounded to FP16, as the result is.
    assert np.all(np.abs(actual - exact) <= 2.0**-11 * (2 * 64 / 8 + np.abs(exact)))
