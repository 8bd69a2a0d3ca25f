"""Which items a bundle has for an arch, and which kernels they need.

Arrow: shapes to items and kernel specs, without a compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.gpu import shapes
from benchmarks.gpu.elementwise import elementwise_source, elementwise_symbol
from benchmarks.gpu.items import (
    BackToBack,
    Check,
    Choice,
    Copy,
    Fusion,
    Item,
    Padding,
    Product,
    Race,
    Sanitized,
    Space,
    Suspicion,
    key_of,
)
from boltgen.arch import Arch
from boltgen.codegen.kernel import kernel_symbol
from boltgen.codegen.move import MoveSource, move_symbol, render_moves
from boltgen.ir.chain import Chain, execution_chain
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue, UnaryOp
from boltgen.ir.move import NHWC_F16, Move
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.space.b2b_enumerate import enumerate_chain_configs
from boltgen.space.b2b_kernel import AnyKernelSpec, chain_kernel_spec
from boltgen.space.config import Cutlass2Config, Residence, Shape
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.kernel import execution_problem, kernel_spec
from boltgen.space.legality import kernel_traits
from boltgen.space.library import Level, level_configs
from boltgen.tune.chain_model import predict_chain
from boltgen.tune.cost_model import predict
from tests.cases import KernelCase, batch_stride_cases, covering_cases, split_k_cases
from tests.chain_cases import ChainCase, all_chain_cases, paper_chains

# Operands that are not 16 bytes wide are rare: the smallest level is enough for them.
_FULL_ALIGNMENT = 8
# Of a product with an epilogue, and beyond the library's kernels, the likeliest configurations.
_LIKELIEST = 4
_SANITIZED_EVERY = 12
_SUSPICIONS, _HEADER = Path(__file__).resolve().parent / "suspicions", "device_gemm.h"
# For people: these programs' tiles are in their sources.
_ANY_CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32), warp=Shape(32, 128, 32), instruction=Shape(16, 8, 16), stages=3
)


@dataclass(slots=True)
class Wanted:
    """What a bundle is to hold for `arch`.

    `level` is how much of the plain kernels' space, None for the `likeliest` configurations alone.
    """

    arch: Arch
    level: Level | None
    likeliest: int = _LIKELIEST
    specs: dict[str, AnyKernelSpec] = field(default_factory=dict)
    sources: dict[str, MoveSource] = field(default_factory=dict)

    def product(self, problem: Problem, epilogue: Epilogue | None = None) -> Product:
        """A product in its likeliest configurations; a plain one also in the level's."""
        runs, tail = execution_problem(problem), epilogue or Epilogue()
        times = {
            config: predict(runs, tail, config, self.arch).time_us
            for config in enumerate_configs(runs, self.arch)
        }
        kept = sorted(times, key=lambda config: (times[config], config))[: self.likeliest]
        if tail.is_identity and self.level is not None:
            library = self._library(runs)
            kept = [c for c in times if c in kept or replace(c, split_k=1) in library]
        return Product(
            problem=runs,
            epilogue=tail,
            choices=tuple(self.choice(runs, tail, config, times[config]) for config in kept),
        )

    def choice(
        self, problem: Problem, epilogue: Epilogue, config: Cutlass2Config, predicted_us: float
    ) -> Choice:
        """A configuration, whose kernel is then wanted."""
        spec = kernel_spec(problem, epilogue, config, self.arch.name)
        return Choice(config=config, kernel=self.want(spec), predicted_us=predicted_us)

    def chain(self, chain: Chain) -> Product:
        """A chain as one kernel, in its likeliest configurations of each residence."""
        times = {
            config: predict_chain(chain, config, self.arch).time_us
            for config in enumerate_chain_configs(chain, self.arch)
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
                    kernel=self.want(chain_kernel_spec(chain, config, self.arch.name)),
                    predicted_us=times[config],
                )
                for config in kept
            ),
        )

    def want(self, spec: AnyKernelSpec) -> str:
        """The symbol of a kernel that is to be in the bundle."""
        symbol = kernel_symbol(spec)
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

    def _library(self, problem: Problem) -> frozenset[Cutlass2Config]:
        narrow = min(problem.alignment_a, problem.alignment_b, problem.alignment_d)
        level = self.level if self.level and narrow >= _FULL_ALIGNMENT else Level.QUICK
        return frozenset(level_configs(kernel_traits(problem), self.arch, level))


def races(wanted: Wanted, section: str, problems: Mapping[str, Gemm | Conv2d]) -> Iterator[Item]:
    """Sections gemm and conv."""
    for name, problem in problems.items():
        product = wanted.product(problem)
        yield Race(section=section, name=name, problem=problem, product=product)


def spaces(problems: Mapping[str, Product]) -> Iterator[Item]:
    """Section tune: the spaces of products that other sections have."""
    for name, product in problems.items():
        yield Space(section="tune", name=name, product=product)


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


def back_to_back(wanted: Wanted, chains: Mapping[str, Chain]) -> Iterator[Item]:
    """Section b2b: each chain as one kernel, and as one for each layer."""
    for name, chain in chains.items():
        runs = execution_chain(chain)
        yield BackToBack(
            section="b2b",
            name=name,
            fused=wanted.chain(runs),
            layers=tuple(wanted.product(one.problem, one.epilogue) for one in runs.layers),
        )


def chain_checks(wanted: Wanted, cases: Iterable[ChainCase]) -> Iterator[Item]:
    """Section check: back-to-back kernels of the test suite, for `wanted.arch`."""
    for case in cases:
        spec = replace(case.spec, arch=wanted.arch.name)
        choice = Choice(config=spec.config, kernel=wanted.want(spec), predicted_us=0.0)
        product = Product(problem=case.chain, epilogue=Epilogue(), choices=(choice,))
        yield Check(section="check", name=f"b2b-{case.name}", product=product)


def paddings(wanted: Wanted, problems: Mapping[str, Conv2d]) -> Iterator[Item]:
    """Section padding."""
    for name, problem in problems.items():
        yield Padding(
            section="padding",
            name=name,
            unpadded=wanted.product(problem),
            padded=wanted.product(shapes.aligned(problem)),
            move=wanted.move(Move(source=NHWC_F16, target=NHWC_F16)),
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


def checks(wanted: Wanted, cases: Iterable[KernelCase]) -> Iterator[Item]:
    """Section check: kernels of the test suite, for `wanted.arch`."""
    for case in cases:
        spec = replace(case.spec, arch=wanted.arch.name)
        config = replace(spec.config, split_k=case.split_k)
        choice = Choice(config=config, kernel=wanted.want(spec), predicted_us=0.0)
        product = Product(problem=case.problem, epilogue=spec.epilogue, choices=(choice,))
        yield Check(section="check", name=case.name, product=product)


def suspicions(wanted: Wanted) -> Iterator[Item]:
    """Programs of CUTLASS's own that were seen to be wrong where C++ or PTX was executed."""
    relu = shapes.relu()
    wide, deep = shapes.gemm(256, 256, 64), shapes.gemm(256, 128, 256)
    half = replace(shapes.gemm(128, 64, 64), acc_dtype=DType.F16)
    wide_warp = "FP32 accumulators, FP16 output, warp tiles of 128 columns: wrong results"
    split_k = "serial split-K with LinearCombinationRelu: NaN"
    b2b = "example 13 with more columns than its tile: runs, and is wrong"
    table = (
        ("wide_warp", "wide_warp", wide_warp, False, wide, Epilogue(), 1),
        ("split_k_relu", "split_k_relu", split_k, False, deep, relu, 4),
        ("split_k_relu", "split_k_relu", "the same without split-K", True, deep, relu, 1),
        ("b2b", "b2b", b2b, False, replace(half, n=128), relu, 1),
        ("b2b", "b2b_unasked", f"{b2b}, unasked", False, replace(half, n=128), relu, 1),
        ("b2b", "b2b", "the same within its tile", True, half, relu, 1),
    )
    for source, entry, text, is_control, problem, epilogue, slices in table:
        config = replace(_ANY_CONFIG, split_k=slices)
        symbol = wanted.program(f"{source}.cu", f"suspicion_{entry}")
        choice = Choice(config=config, kernel=symbol, predicted_us=0.0)
        yield Suspicion(
            section="check",
            name=f"cutlass-{entry}{'-control' if is_control else ''}",
            suspicion=text,
            is_control=is_control,
            product=Product(problem=problem, epilogue=epilogue, choices=(choice,)),
        )


def sanitized(found: Sequence[Item], every: int) -> Iterator[Item]:
    """A sample of the checks under each tool."""
    keys = tuple(key_of(item) for item in found if isinstance(item, Check))[::every]
    for tool in ("memcheck", "racecheck"):
        yield Sanitized(section="check", name=tool, tool=tool, keys=keys)


def cases_for(arch: Arch) -> list[KernelCase]:
    """The test suite's kernels that run on `arch`: those of other generations are left out."""
    instruction = Shape(*arch.mma_shapes[0])
    unique = {
        replace(case.spec, arch=arch.name): case
        for case in (*split_k_cases(), *batch_stride_cases()[:1], *covering_cases())
        if case.spec.config.instruction == instruction
    }
    return list(unique.values())


def chain_cases_for(arch: Arch) -> list[ChainCase]:
    """The test suite's back-to-back kernels that run on `arch`."""
    instruction = Shape(*arch.mma_shapes[0])
    unique = {
        replace(case.spec, arch=arch.name): case
        for case in all_chain_cases()
        if case.spec.config.instruction == instruction
    }
    return list(unique.values())


def full_items(wanted: Wanted) -> tuple[Item, ...]:
    """Everything that the suite measures."""
    raced = [
        *races(wanted, "gemm", shapes.gemms()),
        *races(wanted, "conv", shapes.convolutions()),
    ]
    products = {one.name: one.product for one in raced if isinstance(one, Race)}
    checked = [
        *checks(wanted, cases_for(wanted.arch)),
        *chain_checks(wanted, chain_cases_for(wanted.arch)),
    ]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked, _SANITIZED_EVERY),
        *raced,
        *fusions(wanted, shapes.fused()),
        *back_to_back(wanted, paper_chains()),
        *paddings(wanted, shapes.unaligned()),
        *copies(wanted, shapes.MOVED),
        *spaces(products),
    )


def quick_items(wanted: Wanted) -> tuple[Item, ...]:
    """A few items of every section, in sizes for the virtual GPU."""
    product = wanted.product(shapes.gemm(128, 128, 64))
    problem = product.problem
    chains = [case for case in all_chain_cases() if case.name == "rf-ragged"]
    checked = [*checks(wanted, split_k_cases()[:1]), *chain_checks(wanted, chains)]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked, _SANITIZED_EVERY),
        Race(section="gemm", name="128x128x64", problem=problem, product=product),
        Space(section="tune", name="128x128x64", product=product),
        next(fusions(wanted, {"gemm": shapes.gemm(128, 128, 64)})),
        *back_to_back(wanted, {"gemm": chains[0].chain}),
        *paddings(wanted, {"conv": Conv2d(n=1, h=8, w=8, c=6, k=32, r=3, s=3)}),
        next(copies(wanted, ((2, 64, 3, 8),))),
    )
