"""The plan: every item, the most valuable first. A run goes through it as far as its time reaches.

Arrow: shapes and the test suite's cases to items in order; kernels are asked for in the same order,
which is the order in which they are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from benchmarks.cases.chains import all_chain_cases, paper_chains
from benchmarks.cases.kernels import split_k_cases
from benchmarks.cases.resnet50_layers import resnet50_tasks
from benchmarks.gpu import shapes
from benchmarks.gpu.items import Item, Overlap, Product, key_of
from benchmarks.gpu.wanted import (
    Wanted,
    attentions,
    back_to_back,
    fusions,
    models,
    paddings,
    races,
    spaces,
    sweeps,
    tunings,
)
from benchmarks.gpu.wanted_checks import (
    Case,
    cases_for,
    checks,
    family_cases,
    fused_case,
    sanitized,
    single_case,
    suspicions,
)
from boltgen.arch import Arch
from boltgen.families.cutlass3.config import Cutlass3Config
from boltgen.families.family import Config
from boltgen.ir.outcome import DeviceKind, Timing
from boltgen.ir.recurrence import Cell
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task
from boltgen.tuning.database.exchange import read_records


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the plan: for people, what it tells; and its items."""

    title: str
    items: tuple[Item, ...]


def full_plan(wanted: Wanted) -> tuple[Part, ...]:
    """Put everything that the suite measures in order."""
    arch = wanted.arch
    cases = sorted([*family_cases(arch), *cases_for(arch)], key=_size)
    first = _one_of_each_family(cases)
    rest = [case for case in cases if case not in first]
    reference = wanted.product(Workload.of(shapes.gemm(4096, 4096, 4096)))
    families = tuple(checks(wanted, first))
    parts = [
        Part(
            "may compilers run meanwhile",
            (overlap(replace(reference, choices=reference.choices[:1])),),
        ),
        Part("every kernel family is right", (*families, move(wanted), *sanitized(families))),
        Part("suspected faults of CUTLASS", tuple(suspicions(wanted))),
        Part("GEMM against cuBLAS", tuple(races(wanted, "gemm", shapes.first_gemms()))),
        Part("attention against PyTorch", tuple(attentions(wanted, shapes.attentions()))),
        Part("whole models", tuple(models(wanted, shapes.first_models()))),
        Part("convolution against cuDNN", tuple(races(wanted, "conv", shapes.convolutions()))),
    ]
    others = (
        *races(wanted, "depthwise", shapes.depthwise()),
        *races(wanted, "groups", shapes.in_groups()),
        *races(wanted, "recurrent", shapes.recurrent()),
        *back_to_back(wanted, paper_chains()),
        *paddings(wanted, shapes.unaligned()),
        *checks(wanted, rest),
        *races(wanted, "gemm", shapes.gemms()),
        # Of all kernels so far: nothing is compiled for them.
        *spaces(wanted, {**shapes.first_gemms(), **shapes.convolutions()}),
        # PyTorch compiles for these.
        *fusions(wanted, shapes.fused()),
        *models(wanted, shapes.models()),
        *tunings(wanted, {"resnet50-b32": resnet50_tasks(shapes.BATCH)}),
    )
    return _distinct([*parts, Part("everything else", others)])


def sweep_plan(wanted: Wanted, names: Sequence[str], recorded: Iterable[Path]) -> tuple[Part, ...]:
    """Race many kernels of `cutlass3` at a few GEMMs, each with the fastest in `recorded`.

    Raises:
        ValueError: a name is no GEMM's.
        RecordError: a file of records cannot be read.
    """
    problems = shapes.swept(names)
    items = sweeps(wanted, problems, fastest(recorded, wanted.arch))
    return (Part("GEMM against cuBLAS", tuple(items)),)


def fastest(recorded: Iterable[Path], arch: Arch) -> dict[Workload, Config]:
    """Find the fastest kernel of `cutlass3` of each workload that a GPU of `arch` has measured."""
    found: dict[Workload, tuple[float, Config]] = {}
    for record in (record for path in recorded for record in read_records(path)):
        config, workload = record.trial.config, record.trial.workload
        is_real = record.device.kind is DeviceKind.CUDA and record.device.arch == arch.name
        if is_real and isinstance(config, Cutlass3Config) and isinstance(record.outcome, Timing):
            time_us = record.outcome.median_us
            if workload not in found or time_us < found[workload][0]:
                found[workload] = time_us, config
    return {workload: config for workload, (_, config) in found.items()}


def quick_wanted(arch: Arch) -> Wanted:
    """Make what `quick_plan` is made with: as few kernels as will do."""
    return Wanted(arch, likeliest=1, likeliest_plain=1)


def quick_plan(wanted: Wanted) -> tuple[Part, ...]:
    """Put a few items of every section in order, in sizes for the virtual GPU."""
    problem = shapes.gemm(128, 128, 64)
    attention = shapes.AttentionShape(heads=2, rows=64, keys=64, depth=32)
    (fused,) = (case for case in all_chain_cases() if case.name == "rf-ragged")
    cases = [single_case(split_k_cases()[0]), fused_case(fused)]
    families = _one_of_each_family([*cases, *family_cases(wanted.arch)])
    checked = tuple(checks(wanted, [*cases, *(one for one in families if one not in cases)]))
    small = Conv2d(n=1, h=9, w=8, c=8, k=32, r=3, s=3)
    lstm = Recurrent(cell=Cell.LSTM, steps=3, batch_rows=2, hidden=32)
    odd = Conv2d(n=1, h=8, w=8, c=6, k=32, r=3, s=3)
    parts = [
        Part("may compilers run meanwhile", (overlap(wanted.product(Workload.of(problem))),)),
        Part("every kernel family is right", (*checked, *sanitized(checked))),
        Part("suspected faults of CUTLASS", tuple(suspicions(wanted))),
        Part("GEMM against cuBLAS", tuple(races(wanted, "gemm", {"128x128x64": problem}))),
        Part("attention against PyTorch", tuple(attentions(wanted, {"64x32-full": attention}))),
        Part("whole models", tuple(models(wanted, shapes.small_models()))),
        Part("convolution against cuDNN", tuple(races(wanted, "conv", {"small": small}))),
    ]
    others = (
        *races(wanted, "depthwise", {"small": Depthwise(n=1, h=9, w=8, c=16, r=3, s=3)}),
        *races(wanted, "groups", {"small": replace(small, c=64, groups=2)}),
        *races(wanted, "recurrent", {"small": lstm}),
        next(fusions(wanted, {"gemm": problem})),
        *back_to_back(wanted, {"gemm": fused.chain}),
        *paddings(wanted, {"conv": odd}),
        *spaces(wanted, {"128x128x64": problem}),
        *tunings(wanted, {"gemm": [Task(workload=Workload.of(problem))]}),
    )
    return _distinct([*parts, Part("everything else", others)])


def overlap(product: Product) -> Item:
    """Section method: the one item that says how the others are measured."""
    return Overlap(section="method", name="overlap", product=product)


def move(wanted: Wanted) -> Item:
    """Compare a padded convolution, whose operand a move pads, with the unpadded one."""
    name, problem = next(iter(shapes.unaligned().items()))
    (item,) = paddings(wanted, {name: problem})
    unpadded, padded = (
        replace(product, choices=product.choices[:1]) for product in (item.unpadded, item.padded)
    )
    return replace(item, name="move", unpadded=unpadded, padded=padded)


def _size(case: Case) -> int:
    """Compare cases by the elements that they read and write."""
    problems = [layer.problem for layer in case.workload.layers]
    return sum(prod(problem.a_shape) + prod(problem.d_shape) for problem in problems)


def _one_of_each_family(cases: Sequence[Case]) -> list[Case]:
    """Take the smallest case of each kernel family."""
    found: dict[str, Case] = {}
    for case in cases:
        found.setdefault(case.spec.family, case)
    return list(found.values())


def _distinct(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Keep each item where it comes first."""
    seen: set[str] = set()

    def new(items: Sequence[Item]) -> Iterator[Item]:
        for item in items:
            if (key := key_of(item)) not in seen:
                seen.add(key)
                yield item

    return tuple(Part(part.title, tuple(new(part.items))) for part in parts)
