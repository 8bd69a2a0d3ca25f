"""Train the cost models that boltgen ships, from times that others published.

    python -m benchmarks.pretrained

Each is written to `boltgen/cost/models` where it picks better than the analytical model does on
problems that it has not seen; what it had there is in the file, and beside it.
"""

from __future__ import annotations

import argparse

from benchmarks.model_against_data import learned_examples, times
from benchmarks.record import ROOT
from boltgen.cost.learned import SUFFIX, train

MODELS = ROOT / "boltgen" / "cost" / "models"
SOURCE = (
    "RTX 2080 Ti, cutlass_profiler: github.com/navdeepkk/cutlass at 87a6291, experiments/*.gemm.csv"
    " (BSD-3-Clause)"
)


def main() -> None:
    """Train, write and tell."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    model = train(learned_examples(times()), source=SOURCE, small=True)
    found = model.training
    if found.regret >= found.analytical_regret:
        raise SystemExit(f"the analytical model picks as well: {found}")
    model.save(MODELS / f"rtx-2080-ti{SUFFIX}")
    print(found)


if __name__ == "__main__":
    main()
