"""Which items a bundle has for an arch, and which kernels they need.

Arrow: shapes to items and kernel specs, without a compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from benchmarks.gpu import shapes
from benchmarks.gpu.elementwise import elementwise_source, elementwise_symbol
from benchmarks.gpu.items import (
    BackToBack,
    Choice,
    Copy,
    Fusion,
    Item,
    Padding,
    Product,
    Race,
    Space,
)
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.tuned_log import TunedLog
from benchmarks.gpu.wanted_checks import (
    cases_for,
    chain_cases_for,
    chain_checks,
    checks,
    sanitized,
    suspicions,
)
from benchmarks.gpu.wanted_models import models, tunings
from boltgen.arch import Arch
from boltgen.families.b2b.candidates import enumerate_configs
from boltgen.families.b2b.config import Residence
from boltgen.families.b2b.model import predict
from boltgen.families.cutlass2.candidates import enumerate_configs, kernel_configs, legal_kernels
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass2.legality import extent_violations
from boltgen.families.cutlass2.library import level_configs
from boltgen.families.cutlass2.model import predict
from boltgen.families.cutlass2.traits import KernelTraits, execution_problem, kernel_traits
from boltgen.families.family import Level
from boltgen.families.move import MoveSource, move_symbol, render_moves
from boltgen.families.registry import kernel_spec
from boltgen.families.source import kernel_symbol
from boltgen.ir.epilogue import Epilogue, UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.move import NHWC_F16, Move
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.workload import Workload, execution_chain
from boltgen.tuning.select import Task
from tests.cases import split_k_cases
from tests.chain_cases import all_chain_cases, paper_chains
from tests.tuning.resnet50_layers import resnet50_tasks

# Of a product the likeliest configurations: more of a plain one, whose kernels serve every shape.
_LIKELIEST, _LIKELIEST_PLAIN = 4, 12
# A part of section tune: well within the time that a worker may spend on an item.
_PART = 64
PAD = Move(source=NHWC_F16, target=NHWC_F16)
_SUSPICIONS, _HEADER = Path(__file__).resolve().parent / "suspicions", "device_gemm.h"


@dataclass(slots=True)
class Wanted:
    """What a bundle is to hold for `arch`.

    `level` is how much of the plain kernels' space section tune records, None for nothing but the
    `likeliest` configurations. `beyond` are kernels of which only the source is to be there: at
    most `most_beyond` for a problem. `logs` are MetaSchedule's, by model.
    """

    arch: Arch
    level: Level | None
    likeliest: int = _LIKELIEST
    likeliest_plain: int = _LIKELIEST_PLAIN
    most_beyond: int | None = None
    specs: dict[str, KernelSpec] = field(default_factory=dict)
    sources: dict[str, MoveSource] = field(default_factory=dict)
    models: dict[str, ModelShape] = field(default_factory=dict)
    logs: Mapping[str, TunedLog] = field(default_factory=dict)
    beyond: dict[str, KernelSpec] = field(default_factory=dict)
    _times: dict[tuple[Problem, Epilogue], dict[Cutlass2Config, float]] = field(
        default_factory=dict
    )

    def product(
        self, problem: Problem, epilogue: Epilogue | None = None, most: int | None = None
    ) -> Product:
        """A product in its `most` likeliest configurations, or as many as all others have."""
        runs, tail = execution_problem(problem), epilogue or Epilogue()
        times = self._considered(runs, tail)
        usual = self.likeliest_plain if tail.is_identity else self.likeliest
        return self._product(runs, tail, dict(itertools.islice(times.items(), most or usual)))

    def space(self, problem: Problem) -> Product:
        """A plain product in every configuration that boltgen considers, in the level's kernels."""
        if self.level is None:
            return self.product(problem)
        runs = execution_problem(problem)
        times = self._considered(runs, Epilogue())
        if self.level is not Level.FULL:
            kernels = level_configs(kernel_traits(runs), self.arch, self.level)
            times = {c: us for c, us in times.items() if c.kernel in kernels}
        return self._product(runs, Epilogue(), times)

    def space_beyond(self, problem: Problem) -> Product | None:
        """The legal kernels that boltgen passes over, unswizzled and unsplit; None without any."""
        runs = execution_problem(problem)
        legal = [
            config
            for config in _kernels_beyond(kernel_traits(runs), self.arch)
            if not any(extent_violations(runs, config))
        ]
        choices = []
        times = _predicted(runs, Epilogue(), legal, self.arch)
        for config, predicted_us in itertools.islice(times.items(), self.most_beyond):
            spec = kernel_spec(runs, Epilogue(), config, self.arch.name)
            symbol = _symbol(spec)
            self.beyond[symbol] = spec
            choices.append(Choice(config=config, kernel=symbol, predicted_us=predicted_us))
        if not choices:
            return None
        return Product(problem=runs, epilogue=Epilogue(), choices=tuple(choices))

    def _considered(self, problem: Problem, epilogue: Epilogue) -> dict[Cutlass2Config, float]:
        """Times of what boltgen considers, in microseconds; the likeliest first."""
        if (problem, epilogue) not in self._times:
            configs = enumerate_configs(problem, self.arch)
            self._times[problem, epilogue] = _predicted(problem, epilogue, configs, self.arch)
        return self._times[problem, epilogue]

    def _product(
        self, problem: Problem, epilogue: Epilogue, times: Mapping[Cutlass2Config, float]
    ) -> Product:
        return Product(
            problem=problem,
            epilogue=epilogue,
            choices=tuple(self.choice(problem, epilogue, c, us) for c, us in times.items()),
        )

    def choice(
        self, problem: Problem, epilogue: Epilogue, config: Cutlass2Config, predicted_us: float
    ) -> Choice:
        """A configuration, whose kernel is then wanted."""
        spec = kernel_spec(problem, epilogue, config, self.arch.name)
        return Choice(config=config, kernel=self.want(spec), predicted_us=predicted_us)

    def kernels(self, problem: Problem, epilogue: Epilogue, most: int) -> None:
        """The kernels of a product's likeliest configurations, at most so many, are wanted."""
        found = dict.fromkeys(config.kernel for config in self._considered(problem, epilogue))
        for config in itertools.islice(found, most):
            self.want(kernel_spec(problem, epilogue, config, self.arch.name))

    def chain(self, chain: Workload) -> Product:
        """A chain as one kernel, in its likeliest configurations of each residence."""
        times = {
            config: predict(chain, config, self.arch).time_us
            for config in enumerate_configs(chain, self.arch)
        }
        ranked = sorted(times, key=lambda config: times[config])
        kept = [
            config
            for residence in Residence
            for config in [c for c in ranked if c.residence is residence][: self.likeliest]
        ]
        return Product(
            problem=chain,
            epilogue=Epilogue(),
            choices=tuple(
                Choice(
                    config=config,
                    kernel=self.want(kernel_spec(chain, config, self.arch.name)),
                    predicted_us=times[config],
                )
                for config in kept
            ),
        )

    def want(self, spec: KernelSpec) -> str:
        """The symbol of a kernel that is to be in the bundle."""
        symbol = _symbol(spec)
        self.specs[symbol] = spec
        return symbol

    def move(self, move: Move) -> str:
        """The symbol of a move that is to be in the bundle."""
        symbol = move_symbol(move)
        self.sources[symbol] = render_moves([move], self.arch.name)
        return symbol

    def elementwise(self, op: UnaryOp) -> str:
        """The symbol of an unfused epilogue that is to be in the bundle."""
        symbol = elementwise_symbol(op)
        self.sources[symbol] = elementwise_source(op, self.arch.name)
        return symbol

    def program(self, file: str, symbol: str) -> str:
        """The symbol of one of CUTLASS's own programs, in `suspicions/`."""
        header = (_SUSPICIONS / _HEADER).read_text().replace("#pragma once\n", "")
        # In one text: what is compiled is known by it.
        text = (_SUSPICIONS / file).read_text().replace(f'#include "{_HEADER}"\n', header)
        self.sources[symbol] = MoveSource(
            arch=self.arch.name, symbol=symbol, symbols=(symbol,), text=text
        )
        return symbol


@lru_cache(maxsize=65536)
def _symbol(spec: KernelSpec) -> str:
    return kernel_symbol(spec)


@lru_cache(maxsize=64)
def _kernels_beyond(traits: KernelTraits, arch: Arch) -> tuple[Cutlass2Config, ...]:
    """The legal kernels with these traits that boltgen passes over; swizzle and split are 1."""
    considered = set(kernel_configs(traits, arch))
    found = legal_kernels(traits, arch)
    return tuple(config for config in found if config not in considered)


def _predicted(
    problem: Problem, epilogue: Epilogue, configs: Iterable[Cutlass2Config], arch: Arch
) -> dict[Cutlass2Config, float]:
    """What the model predicts for each, in microseconds; the likeliest first."""
    times = {config: predict(problem, epilogue, config, arch).time_us for config in configs}
    return dict(sorted(times.items(), key=lambda one: (one[1], one[0])))


def races(wanted: Wanted, section: str, problems: Mapping[str, Gemm | Conv2d]) -> Iterator[Item]:
    """Sections gemm and conv."""
    for name, problem in problems.items():
        padded = shapes.padded_image(problem)
        yield Race(
            section=section,
            name=name,
            problem=problem,
            product=wanted.product(padded),
            move=None if padded is problem else wanted.move(PAD),
        )


def spaces(wanted: Wanted, problems: Mapping[str, Problem], part: int = _PART) -> list[Space]:
    """Section tune: whole spaces in parts, the likeliest configurations of every problem first.

    What needs a compiler on the GPU's machine is last.
    """
    whole = {name: wanted.space(problem) for name, problem in problems.items()}
    beyond = {f"{name}-beyond": wanted.space_beyond(p) for name, p in problems.items()}
    found = [
        [
            (number, Space(section="tune", name=f"{name}-{number}", product=one, is_beyond=last))
            for name, product in products.items()
            if product
            for number, one in enumerate(_parts(product, part), 1)
        ]
        for last, products in ((False, whole), (True, beyond))
    ]
    return [space for group in found for _, space in sorted(group, key=lambda one: one[0])]


def _parts(product: Product, size: int) -> Iterator[Product]:
    for start in range(0, len(product.choices), size):
        yield replace(product, choices=product.choices[start : start + size])


def fusions(wanted: Wanted, problems: Mapping[str, Gemm | Conv2d]) -> Iterator[Item]:
    """Section epilogue: each product with each activation."""
    for (name, problem), (activation, op) in itertools.product(
        problems.items(), shapes.ACTIVATIONS.items()
    ):
        yield Fusion(
            section="epilogue",
            name=f"{name}-{activation}",
            activation=activation,
            fused=wanted.product(problem, shapes.bias_then(op)),
            behind=wanted.product(problem),
            elementwise=wanted.elementwise(op),
        )


def back_to_back(wanted: Wanted, chains: Mapping[str, Workload]) -> Iterator[Item]:
    """Section b2b: each chain as one kernel, and as one for each layer."""
    for name, chain in chains.items():
        runs = execution_chain(chain)
        yield BackToBack(
            section="b2b",
            name=name,
            fused=wanted.chain(runs),
            layers=tuple(wanted.product(one.problem, one.epilogue) for one in runs.layers),
        )


def paddings(wanted: Wanted, problems: Mapping[str, Conv2d]) -> Iterator[Item]:
    """Section padding."""
    for name, problem in problems.items():
        padded = shapes.aligned(problem)
        yield Padding(
            section="padding",
            name=name,
            unpadded=wanted.product(problem),
            padded=wanted.product(padded),
            move=wanted.move(PAD),
            producer=wanted.product(shapes.producer(problem), most=wanted.likeliest),
            padded_producer=wanted.product(shapes.producer(padded), most=wanted.likeliest),
        )


def copies(wanted: Wanted, sizes: Sequence[tuple[int, int, int, int]]) -> Iterator[Item]:
    """Section copy: every move at every size."""
    for move, (images, pixels, source_c, target_c) in itertools.product(shapes.MOVES, sizes):
        yield Copy(
            section="copy",
            name=f"{move}-{images}x{pixels}-{source_c}-{target_c}",
            move=move,
            images=images,
            pixels=pixels,
            source_c=source_c,
            target_c=target_c,
            kernel=wanted.move(move),
        )


def full_items(wanted: Wanted) -> tuple[Item, ...]:
    """Everything that the suite measures."""
    raced = [
        *races(wanted, "gemm", shapes.gemms()),
        *races(wanted, "conv", shapes.convolutions()),
    ]
    problems = shapes.gemms() | shapes.convolutions()
    checked = [
        *checks(wanted, cases_for(wanted.arch)),
        *chain_checks(wanted, chain_cases_for(wanted.arch)),
    ]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked),
        *raced,
        *fusions(wanted, shapes.fused()),
        *back_to_back(wanted, paper_chains()),
        *paddings(wanted, shapes.unaligned()),
        *copies(wanted, shapes.MOVED),
        *models(wanted, shapes.models()),
        *tunings(wanted, {"resnet50-b32": resnet50_tasks(shapes.BATCH)}),
        *spaces(wanted, problems),  # last: they take longer than all else
    )


def quick_wanted(arch: Arch) -> Wanted:
    """What `quick_items` are made with: as few kernels as will do."""
    return Wanted(arch, None, likeliest=1, likeliest_plain=1, most_beyond=1)


def quick_items(wanted: Wanted) -> tuple[Item, ...]:
    """A few items of every section, in sizes for the virtual GPU."""
    problem = shapes.gemm(128, 128, 64)
    product = wanted.product(problem)
    chains = [case for case in all_chain_cases() if case.name == "rf-ragged"]
    checked = [*checks(wanted, split_k_cases()[:1]), *chain_checks(wanted, chains)]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked),
        Race(section="gemm", name="128x128x64", problem=problem, product=product),
        *races(wanted, "conv", {"image": Conv2d(n=1, h=9, w=8, c=3, k=32, r=3, s=3)}),
        *spaces(wanted, {"128x128x64": problem}),
        next(fusions(wanted, {"gemm": shapes.gemm(128, 128, 64)})),
        *back_to_back(wanted, {"gemm": chains[0].chain}),
        *paddings(wanted, {"conv": Conv2d(n=1, h=8, w=8, c=6, k=32, r=3, s=3)}),
        next(copies(wanted, ((2, 64, 3, 8),))),
        *models(wanted, shapes.small_models()),
        *tunings(wanted, {"gemm": [Task(problem=problem, epilogue=Epilogue())]}),
    )
