"""The README's program: built, run as it is, exported in each way, and run again."""

import sys
from pathlib import Path

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
        dense = R.matmul(x, w)
        biased = R.add(dense, b)
        active = R.nn.relu(biased)
        out = R.nn.softmax(active, axis=-1)
        R.output(out)
    return out


mod = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
mod = boltgen.relax.partition(mod, arch="sm_80")
with target:
    executable = tvm.compile(mod, target=target)


def run(library: object) -> None:
    machine = relax.VirtualMachine(library, tvm.cuda())
    inputs = [tvm.runtime.tensor(array, tvm.cuda()) for array in arrays().values()]
    check(machine["main"](*inputs).numpy())


run(executable)
folder = Path(sys.argv[1])
executable.export_library(str(folder / "plain.so"))
executable.export_library(str(folder / "nvcc.so"), cc="nvcc")
boltgen.relax.export_library(executable, folder / "boltgen.so")
for name in ("plain.so", "nvcc.so", "boltgen.so"):
    assert b"libcudart.so.13" in (folder / name).read_bytes()
    run(tvm.runtime.load_module(str(folder / name)))
