"""A function with a product that calls itself, three times."""

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import boltgen.relax
from tests.tvm_programs.sample import arrays, check


@I.ir_module
class Recursive:
    @R.function
    def step(
        x: R.Tensor((24, 64), "float16"),
        w: R.Tensor((64, 40), "float16"),
        b: R.Tensor((40,), "float16"),
        left: R.Tensor((), "int64"),
    ) -> R.Tensor((24, 40), "float16"):
        more = R.greater(left, R.const(0, "int64"))
        if more:
            fewer = R.subtract(left, R.const(1, "int64"))
            result = Recursive.step(x, w, b, fewer)
        else:
            result = R.nn.relu(R.add(R.matmul(x, w), b))
        return result

    @R.function
    def main(
        x: R.Tensor((24, 64), "float16"),
        w: R.Tensor((64, 40), "float16"),
        b: R.Tensor((40,), "float16"),
    ) -> R.Tensor((24, 40), "float16"):
        deep: R.Tensor((24, 40), "float16") = Recursive.step(x, w, b, R.const(3, "int64"))
        out = R.nn.softmax(deep, axis=-1)
        return out


mod = boltgen.relax.partition(Recursive, arch="sm_80")
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
with target:
    executable = tvm.compile(mod, target=target)
machine = relax.VirtualMachine(executable, tvm.cuda())
inputs = [tvm.runtime.tensor(array, tvm.cuda()) for array in arrays().values()]
check(machine["main"](*inputs).numpy())
