"""Chains and back-to-back configs at random: what legality calls legal must be right.

A sample is drawn without regard to what is sensible, and kept if `violations` has nothing
against it. A generator's state decides it, so the kernels of a seed are compiled once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cases.chains import ChainCase
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import arch_named
from boltgen.families import registry
from boltgen.families.b2b.config import B2bConfig, LayerTile
from boltgen.families.b2b.legality import violations
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.traits import Residence
from boltgen.families.registry import kernel_spec
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

_COLUMNS = (16, 32, 48, 64, 80, 96, 128, 192, 256)
_WARP = (16, 32, 48, 64, 128, 256)
_COUNTS = (1, 2, 3, 4, 7, 8, 12, 16, 20, 24, 31, 40, 48, 56, 64, 72, 96, 100, 128, 160, 250)


def sampled_cases(rng: random.Random, archs: tuple[str, ...], count: int) -> list[ChainCase]:
    """`count` legal pairs of a chain and a config."""
    cases: list[ChainCase] = []
    while len(cases) < count:
        arch = rng.choice(archs)
        config = _config(rng, arch)
        chain = _chain(rng, [tile.n for tile in config.layers])
        if violations(chain, config, arch_named(arch)):
            continue
        cases.append(
            ChainCase(
                name=f"{len(cases)}-{arch}-{config}",
                spec=kernel_spec(chain, config, arch),
                chain=chain,
                batched_operands=rng.random() < 0.5,
            )
        )
    return cases


def sampled_sm90_cases(rng: random.Random, count: int) -> list[ChainCase]:
    """The same of the family `b2b_sm90`."""
    arch, cases = arch_named("sm_90a"), list[ChainCase]()
    while len(cases) < count:
        residence = rng.choice(list(Residence))
        layers = rng.choice((2, 2, 2, 3, 4))
        config = B2bSm90Config(
            threadblock_m=rng.choice((64, 128)),
            columns=tuple(rng.choice((*_COLUMNS, 384, 512)) for _ in range(layers)),
            residence=residence,
        )
        chain = _chain(rng, config.columns)
        if registry.violations(chain, config, arch):
            continue
        cases.append(
            ChainCase(
                name=f"{len(cases)}-{arch.name}-{config}",
                spec=kernel_spec(chain, config, arch.name),
                chain=chain,
                batched_operands=rng.random() < 0.5,
            )
        )
    return cases


def _config(rng: random.Random, arch: str) -> B2bConfig:
    row = arch_named(arch)
    residence = rng.choice(list(Residence))
    warps = rng.choice((1, 2, 4, 8))
    rows = rng.choice((16, 32, 48, 64, 96, 128, 256))
    layers = []
    for index in range(rng.choice((2, 2, 2, 3, 4))):
        divisors = [count for count in (1, 2, 4, 8) if warps % count == 0]
        along_m = warps if residence is Residence.REGISTERS else rng.choice(divisors)
        n = rng.choice(_COLUMNS)
        depth = rng.choice((32, 64) if index == 0 else (16, 32, 64))
        layers.append(
            LayerTile(
                n=n,
                k=depth,
                warp_m=max(rows // along_m, 1),
                warp_n=max(n * along_m // warps, 1),
                stages=rng.randint(2, row.max_stages),
            )
        )
    return B2bConfig(
        threadblock_m=rows,
        layers=tuple(layers),
        instruction=Shape(*rng.choice(row.mma_shapes)),
        residence=residence,
    )


def _chain(rng: random.Random, held: Sequence[int]) -> Workload:
    """Layers whose columns are at most those that tiles hold."""
    fitting = [[n for n in _COUNTS if n <= most] + [most] for most in held]
    columns = [rng.choice(counts) for counts in fitting]
    first = _first(rng, columns[0])
    problems: list[Problem] = [first]
    for n in columns[1:]:
        problems.append(_next(rng, problems[-1], n))
    final = rng.choice((DType.F16, DType.F16, DType.F32))
    layers = tuple(
        Layer(
            problem=replace(problem, out_dtype=final) if i + 1 == len(problems) else problem,
            epilogue=EPILOGUES[rng.choice(list(EPILOGUES))],
        )
        for i, problem in enumerate(problems)
    )
    return Workload(layers=layers)


def _first(rng: random.Random, n: int) -> Problem:
    types: dict[str, Any] = {"acc_dtype": rng.choice((DType.F32, DType.F32, DType.F16))}
    kind = rng.choice(("gemm", "gemm", "batched", "conv"))
    if kind == "conv":
        r, s = rng.choice(((3, 3), (1, 1), (5, 2)))
        return Conv2d(
            n=rng.randint(1, 3),
            h=rng.randint(6, 13),
            w=rng.randint(6, 13),
            c=rng.choice((1, 2, 3, 4, 8, 12, 24, 40)),
            k=n,
            r=r,
            s=s,
            stride=(rng.randint(1, 2), rng.randint(1, 2)),
            padding=tuple(rng.randint(0, 2) for _ in range(4)),  # type: ignore[arg-type]
            dilation=(1, rng.randint(1, 2)),
            **types,
        )
    types["b_layout"] = rng.choice(list(Layout))
    m, k = rng.randint(1, 300), rng.choice(_COUNTS)
    if kind == "batched":
        shared = {"a_batched": rng.random() < 0.7, "b_batched": rng.random() < 0.5}
        return Gemm(batch=rng.randint(2, 3), m=m, n=n, k=k, **types, **shared)
    return Gemm(m=m, n=n, k=k, **types)


def _next(rng: random.Random, before: Problem, n: int) -> Problem:
    types: dict[str, Any] = {"acc_dtype": rng.choice((before.acc_dtype, DType.F32))}
    if isinstance(before, Conv2d):
        size = {"n": before.n, "h": before.p, "w": before.q}
        return Conv2d(**size, c=before.k, k=n, r=1, s=1, **types)
    types["b_layout"] = rng.choice(list(Layout))
    if before.batch > 1:
        types |= {"batch": before.batch, "b_batched": rng.random() < 0.5}
    return Gemm(m=before.gemm.m, n=n, k=before.gemm.n, **types)


def each_chunk(cases: list[ChainCase], size: int) -> Iterator[list[ChainCase]]:
    """The cases, `size` at a time."""
    for start in range(0, len(cases), size):
        yield cases[start : start + size]
