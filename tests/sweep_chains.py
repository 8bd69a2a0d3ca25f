"""Back-to-back kernels at random, compiled and run against the oracle: far more than `make test`.

python -m tests.sweep_chains --arch sm_80 --seed 1 --count 100
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from boltgen.arch import ARCHES
from boltgen.errors import CompileError
from boltgen.ir.chain import describe_chain
from boltgen.runtime.device import activate
from tests.chain_cases import ChainCase
from tests.chain_samples import each_chunk, sampled_cases
from tests.kernels.conftest import build_libraries
from tests.kernels.launch import Cuda
from tests.kernels.launch_chain import judge_chain, random_chain_inputs

_KERNELS_AT_ONCE = 12


def check(chunk: list[ChainCase], cuda: Cuda, folder: Path) -> Iterator[str]:
    """Compile and run a few kernels; what is wrong with them."""
    folder.mkdir(exist_ok=True)
    try:
        libraries = build_libraries([case.spec for case in chunk], folder)
    except CompileError as error:
        if len(chunk) == 1:
            yield f"{_text(chunk[0])}: does not compile: {error}"
            return
        middle = len(chunk) // 2  # to find out which
        yield from check(chunk[:middle], cuda, folder / "a")
        yield from check(chunk[middle:], cuda, folder / "b")
        return
    for case in chunk:
        inputs = random_chain_inputs(case, np.random.default_rng(0))
        try:
            agreement = judge_chain(cuda, libraries[case.spec], case, inputs)
        except Exception as error:  # whatever it is, it is a finding
            yield f"{_text(case)}: {type(error).__name__}: {error}"
            cuda.recover()
            continue
        if not agreement.within:
            yield f"{_text(case)}: {agreement}"


def _text(case: ChainCase) -> str:
    return f"{case.name}: {describe_chain(case.chain)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    device = activate("vgpu")
    assert device.vgpu is not None
    cuda = Cuda(device.vgpu)
    archs = tuple(options.arch or ARCHES)
    cases = sampled_cases(random.Random(options.seed), archs, options.count)
    done = findings = 0
    for chunk in each_chunk(cases, _KERNELS_AT_ONCE):
        with tempfile.TemporaryDirectory() as folder:
            for finding in check(chunk, cuda, Path(folder)):
                findings += 1
                print("WRONG", finding, flush=True)
        done += len(chunk)
        print(f"{done} of {len(cases)} kernels", flush=True)
    print(f"seed {options.seed}: {findings} of {len(cases)} kernels are wrong")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
