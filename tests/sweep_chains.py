"""Back-to-back kernels, compiled and run against the oracle: far more of them than `make test`.

At random, or those of Bolt's tables 1 and 2 on every architecture in both residences:

    python -m tests.sweep_chains --arch sm_80 --seed 1 --count 100
    python -m tests.sweep_chains --tables
    python -m tests.sweep_chains --family b2b_sm90 --count 20
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.cases.chains import ChainCase, paper_cases
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda
from boltgen.arch import ARCHES
from boltgen.device.choose import activate
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.problems.reference import Agreement
from tests.chain_samples import each_chunk, sampled_cases, sampled_sm90_cases
from tests.sweeps import Libraries, findings

_KERNELS_AT_ONCE = 12


def _text(case: ChainCase) -> str:
    return f"{case.name}: {case.chain.describe()}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", action="store_true", help="Bolt's, instead of random ones")
    families = (B2bConfig.family, B2bSm90Config.family)
    parser.add_argument("--family", choices=families, default=B2bConfig.family)
    parser.add_argument("--arch", action="append", help="default: all that the family is for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    device = activate("vgpu")
    assert device.vgpu is not None
    cuda = Cuda(device.vgpu)

    def judge(case: ChainCase, libraries: Libraries) -> Agreement:
        inputs = random_chain_inputs(case, np.random.default_rng(0))
        return judge_chain(cuda, libraries[case.spec], case, inputs)

    archs = tuple(options.arch or ARCHES)
    if options.tables:
        cases = [case for case in paper_cases(whole=True) if case.spec.arch in archs]
    elif options.family == B2bSm90Config.family:
        cases = sampled_sm90_cases(random.Random(options.seed), options.count)
    else:
        cases = sampled_cases(random.Random(options.seed), archs, options.count)
    done = wrong = 0
    for chunk in each_chunk(cases, _KERNELS_AT_ONCE):
        with tempfile.TemporaryDirectory() as folder:
            for finding in findings(chunk, cuda, Path(folder), judge, _text):
                wrong += 1
                print("WRONG", finding, flush=True)
        done += len(chunk)
        print(f"{done} of {len(cases)} kernels", flush=True)
    drawn = "tables 1 and 2" if options.tables else f"seed {options.seed}"
    print(f"{drawn}: {wrong} of {len(cases)} kernels are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
