"""Which items a bundle has for an arch, and which kernels they need.

Arrow: shapes to items and kernel specs, without a compiler.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from benchmarks.gpu import shapes
from benchmarks.gpu.items import (
    RECIPE,
    BackToBack,
    Choice,
    Fusion,
    Item,
    Padding,
    Product,
    Race,
    Space,
    Tuning,
    WholeModel,
)
from benchmarks.gpu.padding import padding_move
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.wanted_checks import (
    cases_for,
    checks,
    fused_case,
    sanitized,
    single_case,
    suspicions,
)
from boltgen.arch import Arch
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.family import Config, Level
from boltgen.families.move import MoveConfig
from boltgen.families.registry import (
    FAMILIES,
    candidates,
    compiled,
    kernel_spec,
    order,
    predict,
)
from boltgen.families.source import kernel_symbol
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task, distinct
from tests.cases import split_k_cases
from tests.chain_cases import all_chain_cases, paper_chains
from tests.tuning.resnet50_layers import resnet50_tasks

# The number of a workload's likeliest configurations: more for a plain workload, whose kernels
# serve every shape.
_LIKELIEST, _LIKELIEST_PLAIN = 4, 12
# A part of section tune: well within the time that a worker may spend on an item.
_PART = 64
_HERE = Path(__file__).resolve().parent
# The number of a task's kernels with its epilogue in the bundle: the tuner's round two wants the
# kernels that led its round one, and finds the ones that the analytical model predicted. A session
# may take well beyond its target, and two of them fit into an item's time.
_LIKELIEST_FUSED, _MOST_TUNING_S = 2, 90.0


@dataclass(slots=True)
class Wanted:
    """The programs that a bundle is to hold for `arch`.

    `level` is how much of the plain kernels' space section tune records, None for nothing but the
    `likeliest` configurations. `specs` are boltgen's kernels and `programs` the sources of others,
    by symbol. `logs` are the folders of MetaSchedule's, by model.
    """

    arch: Arch
    level: Level | None
    likeliest: int = _LIKELIEST
    likeliest_plain: int = _LIKELIEST_PLAIN
    specs: dict[str, KernelSpec] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    models: dict[str, ModelShape] = field(default_factory=dict)
    logs: Mapping[str, Path] = field(default_factory=dict)
    _times: dict[Workload, dict[Config, float]] = field(default_factory=dict)

    def product(self, workload: Workload) -> Product:
        """A workload in each family's likeliest configurations: back to back, of each residence."""
        is_plain = workload == workload.plain and not workload.is_fused
        most = self.likeliest_plain if is_plain else self.likeliest
        kept: dict[Config, float] = {}
        taken: Counter[object] = Counter()
        for config, predicted_us in self._considered(workload).items():
            residence = config.residence if isinstance(config, B2bConfig) else None
            group = config.family, residence
            if taken[group] < most:
                taken[group] += 1
                kept[config] = predicted_us
        return self._product(workload, kept)

    def space(self, workload: Workload) -> Product:
        """A workload in every configuration that boltgen considers.

        Of a family with a library, only the level's kernels are taken.
        """
        if self.level is None:
            return self.product(workload)
        held = {
            kernel
            for family in FAMILIES
            if family.rejects(workload, self.arch) is None
            for kernel in family.held(workload, self.arch, self.level)
        }
        times = {
            config: predicted_us
            for config, predicted_us in self._considered(workload).items()
            if compiled(config) in held or FAMILIES.of(config).ranking(workload) is None
        }
        return self._product(workload, times)

    def _considered(self, workload: Workload) -> dict[Config, float]:
        """Times of what boltgen considers, in microseconds; the likeliest first."""
        if workload not in self._times:
            times = {
                config: predict(workload, config, self.arch).time_us
                for config in candidates(workload, self.arch)
            }
            ranked = sorted(times, key=lambda config: (times[config], order(config)))
            self._times[workload] = {config: times[config] for config in ranked}
        return self._times[workload]

    def _product(self, workload: Workload, times: Mapping[Config, float]) -> Product:
        """A workload in these configurations, whose kernels are then wanted."""
        choices = [
            Choice(
                config=config,
                kernel=self.want(kernel_spec(workload, config, self.arch.name)),
                predicted_us=predicted_us,
            )
            for config, predicted_us in times.items()
        ]
        return Product(workload=workload, choices=tuple(choices))

    def kernels(self, workload: Workload, most: int) -> None:
        """The kernels of a workload's likeliest configurations, at most so many, are wanted."""
        found = dict.fromkeys(map(compiled, self._considered(workload)))
        for config in itertools.islice(found, most):
            self.want(kernel_spec(workload, config, self.arch.name))

    def want(self, spec: KernelSpec) -> str:
        """The symbol of a kernel that is to be in the bundle."""
        symbol = _symbol(spec)
        self.specs[symbol] = spec
        return symbol

    def elementwise(self, op: UnaryOp) -> str:
        """Want an unfused epilogue; its symbol."""
        symbol = f"boltgen_suite_bias_{op.value}"
        text = (_HERE / "elementwise.cu").read_text()
        return self._program(symbol, text.replace("SYMBOL", symbol).replace("ACTIVATION", op.value))

    def program(self, file: str, symbol: str) -> str:
        """Want one of CUTLASS's own programs, in `suspicions/`; its symbol."""
        header = (_HERE / "suspicions" / "device_gemm.h").read_text().replace("#pragma once\n", "")
        # As one text: it identifies the compiled program.
        text = (_HERE / "suspicions" / file).read_text()
        return self._program(symbol, text.replace('#include "device_gemm.h"\n', header))

    def _program(self, symbol: str, text: str) -> str:
        self.programs[symbol] = text
        return symbol


@lru_cache(maxsize=65536)
def _symbol(spec: KernelSpec) -> str:
    return kernel_symbol(spec)


def races(wanted: Wanted, section: str, problems: Mapping[str, Gemm | Conv2d]) -> Iterator[Item]:
    """Sections gemm and conv."""
    for name, problem in problems.items():
        product = wanted.product(Workload.of(problem))
        yield Race(section=section, name=name, problem=problem, product=product)


def spaces(wanted: Wanted, problems: Mapping[str, Gemm | Conv2d], part: int = _PART) -> list[Space]:
    """Section tune: whole spaces in parts, the likeliest configurations of every problem first."""
    found = [
        (number, Space(section="tune", name=f"{name}-{number}", product=one))
        for name, problem in problems.items()
        for number, one in enumerate(_parts(wanted.space(Workload.of(problem)), part), 1)
    ]
    return [space for _, space in sorted(found, key=lambda one: one[0])]


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
            problem=problem,
            activation=activation,
            fused=wanted.product(Workload.of(problem, shapes.bias_then(op))),
            behind=wanted.product(Workload.of(problem)),
            elementwise=wanted.elementwise(op),
        )


def back_to_back(wanted: Wanted, workloads: Mapping[str, Workload]) -> Iterator[Item]:
    """Section b2b: all layers as one kernel, and as one for each."""
    for name, workload in workloads.items():
        alone = (Workload(layers=(layer,)) for layer in workload.layers)
        yield BackToBack(
            section="b2b",
            name=name,
            fused=wanted.product(workload),
            layers=tuple(map(wanted.product, alone)),
        )


def paddings(wanted: Wanted, problems: Mapping[str, Conv2d]) -> Iterator[Item]:
    """Section padding."""
    for name, problem in problems.items():
        wide = shapes.aligned(problem)
        moved = Workload.of(padding_move(problem, wide))
        yield Padding(
            section="padding",
            name=name,
            problem=problem,
            unpadded=wanted.product(Workload.of(problem)),
            padded=wanted.product(Workload.of(wide)),
            move=wanted.want(kernel_spec(moved, MoveConfig(), wanted.arch.name)),
        )


def models(wanted: Wanted, shapes_by_name: Mapping[str, ModelShape]) -> Iterator[Item]:
    """Section models: whole models."""
    for name, shape in shapes_by_name.items():
        wanted.models[name] = shape
        yield WholeModel(
            section="models",
            name=name,
            model=shape.model,
            input_shape=shape.input_shape,
            is_tuned=name in wanted.logs,
            recipe=RECIPE.format(arch=wanted.arch.name, name=name),
        )


def tunings(wanted: Wanted, tasks_by_model: Mapping[str, Sequence[Task]]) -> Iterator[Item]:
    """Section models: boltgen's tuner on the products of models."""
    most = min(wanted.likeliest, _LIKELIEST_FUSED)
    for name, tasks in tasks_by_model.items():
        merged = distinct(tasks)
        for task in merged:
            wanted.kernels(task.workload, most)
        yield Tuning(section="models", name=f"tune-{name}", tasks=merged, most_s=_MOST_TUNING_S)


def full_items(wanted: Wanted) -> tuple[Item, ...]:
    """Everything that the suite measures."""
    raced = [
        *races(wanted, "gemm", shapes.gemms()),
        *races(wanted, "conv", shapes.convolutions()),
    ]
    problems = shapes.gemms() | shapes.convolutions()
    checked = [*checks(wanted, cases_for(wanted.arch))]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked),
        *raced,
        *fusions(wanted, shapes.fused()),
        *back_to_back(wanted, paper_chains()),
        *paddings(wanted, shapes.unaligned()),
        *models(wanted, shapes.models()),
        *tunings(wanted, {"resnet50-b32": resnet50_tasks(shapes.BATCH)}),
        *spaces(wanted, problems),  # last: they take longer than all else
    )


def quick_wanted(arch: Arch) -> Wanted:
    """Return the programs of `quick_items`: as few kernels as will do."""
    return Wanted(arch, None, likeliest=1, likeliest_plain=1)


def quick_items(wanted: Wanted) -> tuple[Item, ...]:
    """A few items of every section, in sizes for the virtual GPU."""
    problem = shapes.gemm(128, 128, 64)
    (fused,) = (case for case in all_chain_cases() if case.name == "rf-ragged")
    checked = [*checks(wanted, [single_case(split_k_cases()[0]), fused_case(fused)])]
    return (
        *checked,
        *suspicions(wanted),
        *sanitized(checked),
        *races(wanted, "gemm", {"128x128x64": problem}),
        *races(wanted, "conv", {"small": Conv2d(n=1, h=9, w=8, c=8, k=32, r=3, s=3)}),
        *spaces(wanted, {"128x128x64": problem}),
        next(fusions(wanted, {"gemm": problem})),
        *back_to_back(wanted, {"gemm": fused.chain}),
        *paddings(wanted, {"conv": Conv2d(n=1, h=8, w=8, c=6, k=32, r=3, s=3)}),
        *models(wanted, shapes.small_models()),
        *tunings(wanted, {"gemm": [Task(workload=Workload.of(problem))]}),
    )
