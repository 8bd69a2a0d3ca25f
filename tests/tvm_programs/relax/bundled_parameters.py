"""Weights come in one tuple, as TVM's own servers of language models have them."""

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
    R.func_attr({"num_input": 1})
    with R.dataflow():
        out = R.nn.softmax(R.nn.relu(R.add(R.matmul(x, w), b)), axis=-1)
        R.output(out)
    return out


mod = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
mod = relax.transform.BundleModelParams()(mod)
mod = boltgen.relax.partition(mod, arch="sm_80")
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
with target:
    executable = tvm.compile(mod, target=target)
machine = relax.VirtualMachine(executable, tvm.cuda())
x, w, b = (tvm.runtime.tensor(array, tvm.cuda()) for array in arrays().values())
check(machine["main"](x, tvm.runtime.convert([w, b])).numpy())
