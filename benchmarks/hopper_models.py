"""Compiles every model of `models/` for sm_90a, and checks each kernel on the virtual GPU.

    python -m benchmarks.hopper_models [MODEL ...]

Kernels by wgmma take nvcc more than a minute each; what is compiled stays in the cache, so that a
run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import boltgen
from benchmarks.record import write
from models.registry import MODELS, build

ARCH = "sm_90a"


def figures(name: str) -> dict[str, Any]:
    """Return a model's kernels by family, its share of FLOPs, and the result of its check."""
    metadata = boltgen.compile(build(name), arch=ARCH, jobs=1).metadata
    families = Counter(region.family for region in metadata.regions)
    placed = [each for each in metadata.placements if each.flops]
    ours = sum(each.flops for each in placed if each.region is not None)
    return {
        "regions": dict(families),
        "kernels": len(metadata.kernels),
        "share_of_flops": ours / sum(each.flops for each in placed),
        "check": str(metadata.check),
        "replaced": list(metadata.check.replaced) if metadata.check else [],
    }


def main() -> None:
    """Compile the named models, or all, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    chosen = parser.parse_args().models
    found = {}
    for name in chosen:
        found[name] = figures(name)
        print(name, found[name], flush=True)
    write("hopper_models", found, target="every model compiles, and every kernel is right")


if __name__ == "__main__":
    main()
