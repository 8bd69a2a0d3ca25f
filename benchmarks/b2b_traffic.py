"""Global memory that back-to-back fusion saves: counted by the virtual GPU, not estimated.

Bolt's chains (tables 1 and 2), each as one kernel and as a kernel for each layer with tiles of the
same rows, so that weights are read as often. The fused kernel saves the tensors between the layers,
each written once and read once. M and the batch are cut: traffic is proportional.

`sector_bytes` are 32-byte sectors, what really moves. More of them than the intermediate's are
saved where it has one column, and every row of it takes a sector. `bytes` are the bytes that lanes
ask for: a bias that all rows of a fragment load at once counts once for each lane.

    python -m benchmarks.b2b_traffic --arch sm_80
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases.chains import ChainCase, all_chain_cases, paper_chains, paper_config
from benchmarks.cases.kernels import KernelCase
from benchmarks.harness.chain_launch import judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.device.choose import activate
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.chain.traits import Residence
from boltgen.families.cutlass2.candidates import enumerate_configs
from boltgen.families.cutlass2.config import Cutlass2Config, config_of
from boltgen.families.mma_sync.config import Tiles
from boltgen.families.registry import kernel_spec, violations
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.workload import Layer, Workload

_SECTOR_BYTES = 32


def layer_config(workload: Workload, tiles: Tiles, arch: Arch) -> Cutlass2Config:
    """The layer's tiles, or the nearest that a kernel of its own may have."""
    own = config_of(tiles)
    if not violations(workload, own, arch):
        return own
    problem = workload.single.problem
    kernels = dict.fromkeys(config.kernel for config in enumerate_configs(problem, arch))
    return min(
        kernels,
        key=lambda config: (
            abs(config.threadblock.m - tiles.threadblock.m),
            abs(config.threadblock.n - tiles.threadblock.n),
        ),
    )


def layer_case(layer: Layer, config: B2bConfig, index: int, arch: str) -> KernelCase:
    """The layer as a kernel of its own."""
    workload = Workload(layers=(layer,))
    tiles = layer_config(workload, config.of_layer(index), arch_named(arch))
    return KernelCase(
        name=f"layer{index}",
        spec=kernel_spec(workload, tiles, arch),
        problem=workload.single.problem,
    )


def traffic(launches: list[dict[str, Any]]) -> dict[str, int]:
    """Launches, bytes asked for and bytes of sectors, of loads and stores."""
    accesses = [launch[kind] for launch in launches for kind in ("global_load", "global_store")]
    return {
        "launches": len(launches),
        "bytes": sum(access["bytes"] for access in accesses),
        "sector_bytes": _SECTOR_BYTES * sum(access["sectors"] for access in accesses),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A chain as one kernel, and as a kernel for each layer."""

    fused: ChainCase
    layers: tuple[KernelCase, ...]


def comparison(name: str, chain: Workload, residence: Residence, arch: str) -> Comparison:
    """Both ways, with tiles of the same rows."""
    config = paper_config(chain, arch, residence)
    return Comparison(
        fused=ChainCase(name=name, spec=kernel_spec(chain, config, arch), chain=chain),
        layers=tuple(layer_case(layer, config, i, arch) for i, layer in enumerate(chain.layers)),
    )


def measure(
    compared: Comparison,
    chains: dict[KernelSpec, KernelLibrary],
    kernels: dict[KernelSpec, KernelLibrary],
    cuda: Cuda,
) -> dict[str, Any]:
    """Measure the launches and the traffic of both ways."""
    fused, rng = compared.fused, np.random.default_rng(0)
    cuda.vgpu.clear_launches()
    inputs = random_chain_inputs(fused, rng)
    agreement = judge_chain(cuda, chains[fused.spec], fused, inputs, packed=True)
    if not agreement.within:
        raise SystemExit(f"{fused.name}: the fused kernel is wrong: {agreement}")
    one = traffic(cuda.vgpu.counters())
    conflicts = sum(launch["shared"]["bank_conflicts"] for launch in cuda.vgpu.counters())
    cuda.vgpu.clear_launches()
    for case in compared.layers:
        Launch(cuda, kernels[case.spec], case, packed=True).run(random_inputs(case, rng))
    many = traffic(cuda.vgpu.counters())
    between = 2 * fused.chain.intermediate_bytes
    return {
        "chain": fused.name,
        "residence": fused.spec.config.residence.value,
        "m": fused.chain.first.problem.gemm.m,
        "config": str(fused.spec.config),
        "unfused_configs": [str(case.spec.config) for case in compared.layers],
        "unfused": many,
        "fused": one,
        "intermediate_written_and_read_bytes": between,
        "saved_sector_bytes_over_intermediate": round(
            (many["sector_bytes"] - one["sector_bytes"]) / between, 4
        ),
        "saved_bytes_over_intermediate": round((many["bytes"] - one["bytes"]) / between, 4),
        "bank_conflicts_fused": conflicts,
    }


def _folder(parent: str, name: str) -> Path:
    path = Path(parent) / name
    path.mkdir()
    return path


def main() -> None:
    """Count every chain in both residences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--rows", type=int, default=4096, help="most rows of a chain")
    options = parser.parse_args()
    device = activate("vgpu")
    assert device.vgpu is not None
    cuda = Cuda(device.vgpu)
    cuda.vgpu.set_option("counters", "on")
    compared = [
        comparison(name, chain, residence, options.arch)
        for name, chain in paper_chains(options.rows, batch=1).items()
        for residence in Residence
    ]
    # With the kernels of the tests, so that compiled ones are not compiled again.
    fused = dict.fromkeys(case.spec for case in all_chain_cases())
    fused.update(dict.fromkeys(both.fused.spec for both in compared))
    apart = dict.fromkeys(case.spec for both in compared for case in both.layers)
    with tempfile.TemporaryDirectory() as folder:
        chains = build_libraries(list(fused), _folder(folder, "chains"))
        kernels = build_libraries(list(apart), _folder(folder, "layers"))
        rows = [measure(both, chains, kernels, cuda) for both in compared]
    write(
        "b2b_traffic",
        {"arch": options.arch, "chains": rows},
        target="launches halve; global bytes fall by the intermediate's to within 3 %",
    )


if __name__ == "__main__":
    main()
