"""The virtual machine's program as machine code, in the place of byte code."""

import tvm
from tvm import relax
from tvm.script import relax as R

import boltgen.relax
from tests.tvm_programs.sample import arrays, check


@R.function
def main(
    x: R.Tensor((24, 64), "float16"),
    w: R.Tensor((64, 40), "float16"),
    b: R.Tensor((40,), "float16"),
) -> R.Tensor((24, 40), "float16"):
    with R.dataflow():
        out = R.nn.softmax(R.nn.relu(R.add(R.matmul(x, w), b)), axis=-1)
        R.output(out)
    return out


mod = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
mod = boltgen.relax.partition(mod, arch="sm_80")
with target:
    executable = relax.build(mod, target=target, exec_mode="compiled")
machine = relax.VirtualMachine(executable, tvm.cuda())
inputs = [tvm.runtime.tensor(array, tvm.cuda()) for array in arrays().values()]
check(machine["main"](*inputs).numpy())
