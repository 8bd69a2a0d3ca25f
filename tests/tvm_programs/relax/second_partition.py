"""A function is added to a module that was partitioned, and the module is partitioned again."""

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


@R.function
def again(
    x: R.Tensor((12, 64), "float16"),
    w: R.Tensor((64, 40), "float16"),
    b: R.Tensor((40,), "float16"),
) -> R.Tensor((12, 40), "float16"):
    with R.dataflow():
        out = R.nn.softmax(R.nn.relu(R.add(R.matmul(x, w), b)), axis=-1)
        R.output(out)
    return out


mod = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
mod = boltgen.relax.partition(mod, arch="sm_80")
mod["again"] = again.with_attr("global_symbol", "again")
mod = boltgen.relax.partition(mod, arch="sm_80")
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
with target:
    executable = tvm.compile(mod, target=target)
machine = relax.VirtualMachine(executable, tvm.cuda())
x, w, b = arrays().values()
for name, rows in (("main", 24), ("again", 12)):
    inputs = [tvm.runtime.tensor(array, tvm.cuda()) for array in (x[:rows], w, b)]
    check(machine[name](*inputs).numpy())
