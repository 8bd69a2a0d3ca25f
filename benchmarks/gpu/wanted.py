"""Makes items, and collects the kernels that they need, in the order in which they ask for them.

Arrow: shapes to items and kernel specs, without a compiler. `plan` puts them in order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from benchmarks.gpu import shapes
from benchmarks.gpu.items import (
    RECIPE,
    Attend,
    BackToBack,
    Choice,
    Fusion,
    Item,
    Padding,
    Product,
    Race,
    Raced,
    Space,
    Tuning,
    WholeModel,
)
from benchmarks.gpu.padding import padding_move
from benchmarks.gpu.shapes import AttentionShape, ModelShape
from boltgen.arch import Arch
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.cutlass3.config import Cutlass3Config
from boltgen.families.family import Config
from boltgen.families.move import MoveConfig
from boltgen.families.registry import candidates, compiled, kernel_spec, order, predict
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import Layout
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task, distinct

# Kernels of each family for a workload, the likeliest: more for a plain one, whose kernels serve
# every shape. They are compiled where the GPU is, in the GPU's time.
_LIKELIEST, _LIKELIEST_PLAIN = 1, 3
# The bundle has more kernels of a workload's only family, by this factor, and of the families that
# lead on sm_90a: `cutlass3`'s kernels differ in cluster and schedule too, and the model does not
# tell `attention_sm90`'s apart.
_TIMES_ALONE = 3
_TIMES = {Cutlass3Config.family: 3, AttentionSm90Config.family: 8}
# Activations change which of `cutlass3`'s tiles is fastest, and the model does not know how much.
_TIMES_FUSED = {Cutlass3Config.family: 6, AttentionSm90Config.family: 8}
# Kernels of `cutlass3` with one tile and scheduler, so that records have several tiles.
_MOST_OF_TILE = 2
# Launches of one kernel that are tried: they differ in raster order, swizzle and split of K.
_MOST_LAUNCHES = 3
# A sweep's kernels of one GEMM, and how many of these share a tile.
_SWEPT, _SWEPT_OF_A_TILE = 10, 3
# A part of section tune: well within the time that a worker may spend on an item.
_PART = 64
_HERE = Path(__file__).resolve().parent
# Of a task's kernels with its epilogue, those that are in the bundle: the tuner's round two wants
# those that led its round one, and finds as many as the analytical model is right about. A session
# may take well beyond what is aimed at, and two of them fit into an item's time.
_LIKELIEST_FUSED, _MOST_TUNING_S = 2, 90.0


def _first_launches(
    times: Mapping[Config, float], has_room: Callable[[Config], bool]
) -> dict[Config, float]:
    """Keep the first launches of each kernel for which there is room when its first one comes."""
    kept: dict[Config, float] = {}
    launches: Counter[Config] = Counter()
    for config, time in times.items():
        kernel = compiled(config)
        if kernel not in launches and not has_room(config):
            continue
        launches[kernel] += 1
        if launches[kernel] <= _MOST_LAUNCHES:
            kept[config] = time
    return kept


@dataclass(slots=True)
class Wanted:
    """The kernels that a bundle is to have for `arch`.

    `specs` are boltgen's kernels and `programs` the sources of others, by symbol. `logs` are the
    folders of MetaSchedule's, by model. Items of models that are not in `built` are left out.
    """

    arch: Arch
    likeliest: int = _LIKELIEST
    likeliest_plain: int = _LIKELIEST_PLAIN
    specs: dict[str, KernelSpec] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    models: dict[str, ModelShape] = field(default_factory=dict)
    logs: Mapping[str, Path] = field(default_factory=dict)
    _times: dict[Workload, dict[Config, float]] = field(default_factory=dict)

    def product(self, workload: Workload) -> Product:
        """Choose a workload's likeliest kernels of each family: back to back, of each residence."""
        is_plain = not workload.is_fused and workload == workload.plain
        most = self.likeliest_plain if is_plain else self.likeliest
        considered = self._considered(workload)
        is_alone = len({config.family for config in considered}) == 1
        kernels: Counter[object] = Counter()
        of_tile: Counter[object] = Counter()

        def has_room(config: Config) -> bool:
            residence = config.residence if isinstance(config, B2bConfig) else None
            group = config.family, residence
            times = (_TIMES if is_plain else _TIMES_FUSED).get(config.family, 1)
            if is_plain and is_alone:
                times = _TIMES_ALONE
            if kernels[group] == most * times:
                return False
            if isinstance(config, Cutlass3Config):
                tile = config.threadblock, config.scheduler
                if of_tile[tile] == _MOST_OF_TILE:
                    return False
                of_tile[tile] += 1
            kernels[group] += 1
            return True

        return self._product(workload, _first_launches(considered, has_room))

    def space(self, workload: Workload) -> Product:
        """Choose all kernels that are wanted already and compute the workload, each once."""
        times: dict[Config, float] = {}
        kernels: set[Config] = set()
        for config, predicted_us in self._considered(workload).items():
            kernel = compiled(config)
            if kernel in kernels:
                continue
            if _symbol(kernel_spec(workload, config, self.arch.name)) in self.specs:
                kernels.add(kernel)
                times[config] = predicted_us
        return self._product(workload, times)

    def swept(self, workload: Workload, measured: Config | None) -> Product:
        """Choose many kernels of `cutlass3`: that of `measured`, and the likeliest of several
        tiles.
        """
        considered = self._considered(workload)
        if measured in considered:
            considered = {measured: considered[measured]} | considered
        of_tile: Counter[str] = Counter()

        def has_room(config: Config) -> bool:
            if not isinstance(config, Cutlass3Config) or of_tile.total() == _SWEPT:
                return False
            if of_tile[config.tile] == _SWEPT_OF_A_TILE:
                return False
            of_tile[config.tile] += 1
            return True

        return self._product(workload, _first_launches(considered, has_room))

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

    def kernels(self, workload: Workload, most: int) -> tuple[str, ...]:
        """Want the kernels of a workload's likeliest configurations, at most so many."""
        found = dict.fromkeys(map(compiled, self._considered(workload)))
        return tuple(
            self.want(kernel_spec(workload, config, self.arch.name))
            for config in itertools.islice(found, most)
        )

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
        # In one text: what is compiled is known by it.
        text = (_HERE / "suspicions" / file).read_text()
        return self._program(symbol, text.replace('#include "device_gemm.h"\n', header))

    def _program(self, symbol: str, text: str) -> str:
        self.programs[symbol] = text
        return symbol


@lru_cache(maxsize=65536)
def _symbol(spec: KernelSpec) -> str:
    return kernel_symbol(spec)


def races(wanted: Wanted, section: str, problems: Mapping[str, Raced]) -> Iterator[Item]:
    """Sections gemm, conv, depthwise, groups and recurrent."""
    for name, problem in problems.items():
        product = wanted.product(Workload.of(problem))
        yield Race(section=section, name=name, problem=problem, product=product)


def sweeps(
    wanted: Wanted, problems: Mapping[str, Gemm], measured: Mapping[Workload, Config]
) -> Iterator[Item]:
    """Section gemm with more kernels of `cutlass3` than a race has, and `measured` among them."""
    for name, problem in problems.items():
        workload = Workload.of(problem)
        # Few shapes were measured with a row-major B: others take the column-major one's kernel.
        column = Workload.of(replace(problem, b_layout=Layout.COLUMN))
        product = wanted.swept(workload, measured.get(workload, measured.get(column)))
        yield Race(section="gemm", name=name, problem=problem, product=product)


def attentions(wanted: Wanted, problems: Mapping[str, AttentionShape]) -> Iterator[Item]:
    """Section attention."""
    for name, shape in problems.items():
        yield Attend(
            section="attention",
            name=name,
            heads=shape.heads,
            rows=shape.rows,
            keys=shape.keys,
            depth=shape.depth,
            is_causal=shape.is_causal,
            product=wanted.product(shape.workload),
        )


def spaces(wanted: Wanted, problems: Mapping[str, Gemm | Conv2d], part: int = _PART) -> list[Space]:
    """Section tune: all kernels of the bundle on each problem, the likeliest of each first."""
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


def paddings(wanted: Wanted, problems: Mapping[str, Conv2d]) -> Iterator[Padding]:
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
        symbols = [one for task in merged for one in wanted.kernels(task.workload, most)]
        yield Tuning(
            section="models",
            name=f"tune-{name}",
            tasks=merged,
            most_s=_MOST_TUNING_S,
            kernels=tuple(dict.fromkeys(symbols)),
        )
