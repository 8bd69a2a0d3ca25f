"""Which items a bundle has for an arch, and which kernels they need.

Arrow: shapes to items and kernel specs, without a compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.gpu import shapes
from benchmarks.gpu.items import Choice, Item, Product, Race, Space
from boltgen.arch import Arch
from boltgen.codegen.kernel import AnyKernelSpec, kernel_symbol
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.space.config import Cutlass2Config
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.kernel import execution_problem, kernel_spec
from boltgen.space.legality import kernel_traits
from boltgen.space.library import Level, level_configs
from boltgen.tune.cost_model import predict

# Operands that are not 16 bytes wide are rare: the smallest level is enough for them.
_FULL_ALIGNMENT = 8
# Of a product with an epilogue, and beyond the library's kernels, the likeliest configurations.
_LIKELIEST = 4


@dataclass(slots=True)
class Wanted:
    """What a bundle is to hold for `arch`.

    `level` is how much of the plain kernels' space, None for the likeliest configurations alone.
    """

    arch: Arch
    level: Level | None
    specs: dict[str, AnyKernelSpec] = field(default_factory=dict)

    def product(
        self, problem: Problem, epilogue: Epilogue | None = None, likeliest: int = _LIKELIEST
    ) -> Product:
        """A product in its likeliest configurations; a plain one also in the level's."""
        runs, tail = execution_problem(problem), epilogue or Epilogue()
        times = {
            config: predict(runs, tail, config, self.arch).time_us
            for config in enumerate_configs(runs, self.arch)
        }
        kept = sorted(times, key=lambda config: (times[config], config))[:likeliest]
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

    def want(self, spec: AnyKernelSpec) -> str:
        """The symbol of a kernel that is to be in the bundle."""
        symbol = kernel_symbol(spec)
        self.specs[symbol] = spec
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


def full_items(wanted: Wanted) -> tuple[Item, ...]:
    """Everything that the suite measures."""
    raced = [
        *races(wanted, "gemm", shapes.gemms()),
        *races(wanted, "conv", shapes.convolutions()),
    ]
    products = {one.name: one.product for one in raced if isinstance(one, Race)}
    return (*raced, *spaces(products))


def quick_items(wanted: Wanted) -> tuple[Item, ...]:
    """A few items of every section, in sizes for the virtual GPU."""
    product = wanted.product(shapes.gemm(128, 128, 64), likeliest=2)
    problem = product.problem
    return (
        Race(section="gemm", name="128x128x64", problem=problem, product=product),
        Space(section="tune", name="128x128x64", product=product),
    )
