"""Which configurations a session tries: the field of round one, and the finalists of round two.

Bolt (Xing et al., section 3.2.2) times generic kernels and takes the best. Here they only rank the
field: what is chosen was timed as it ships, with its epilogue, swizzle and split of K.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from boltgen.arch import Arch
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Problem
from boltgen.space.config import Cutlass2Config
from boltgen.space.enumerate import enumerate_configs
from boltgen.space.legality import Violation, kernel_traits, violations
from boltgen.space.library import Level, level_configs
from boltgen.tune.cost_model import predict

# Kernels of each task that reach round two, and launches of them that are timed there. Choices:
# the best fused kernel is rarely beyond the third best plain one, and each is seconds of compiling.
FINALISTS = 3
FINAL_TRIALS = 12


class Launches:
    """The legal configurations of one problem by their kernels, and what the model says of them.

    Of the kernels those that a library of `level` holds; all where it holds none that fits.
    """

    def __init__(self, problem: Problem, arch: Arch, level: Level) -> None:
        self._problem = problem
        self._arch = arch
        by_kernel: dict[Cutlass2Config, list[Cutlass2Config]] = defaultdict(list)
        for config in enumerate_configs(problem, arch):
            by_kernel[config.kernel].append(config)
        held = set(level_configs(kernel_traits(problem), arch, level)) & by_kernel.keys()
        self._by_kernel = {kernel: by_kernel[kernel] for kernel in sorted(held or by_kernel)}

    def predicted_us(self, config: Cutlass2Config, epilogue: ElementwiseGraph) -> float:
        """The analytical model's time."""
        return predict(self._problem, epilogue, config, self._arch).time_us

    def violations(self, config: Cutlass2Config) -> tuple[Violation, ...]:
        """The rules that a configuration breaks."""
        return violations(self._problem, config, self._arch)

    def field(self) -> tuple[Cutlass2Config, ...]:
        """Every kernel unswizzled, with one slice of K and with as many as the model likes best.

        Slices and swizzles are arguments of the launch: they cost a measurement, but no compiler.
        Swizzles are left to round two, which has fewer kernels. The predicted fastest come first.
        """
        plain = ElementwiseGraph()
        predicted: dict[Cutlass2Config, float] = {}
        for launches in self._by_kernel.values():
            unswizzled = [config for config in launches if config.swizzle == 1]
            times = {config: self.predicted_us(config, plain) for config in unswizzled}
            likeliest = min(times, key=lambda config: (times[config], config))
            whole = [config for config in unswizzled if config.split_k == 1]
            predicted |= {config: times[config] for config in {likeliest, *whole}}
        return tuple(sorted(predicted, key=lambda config: (predicted[config], config)))

    def finalists(
        self, epilogue: ElementwiseGraph, field_us: Mapping[Cutlass2Config, float]
    ) -> tuple[Cutlass2Config, ...]:
        """What round two times: launches of the kernels that were fastest in the field.

        `field_us` are times with the plain epilogue. Where fewer than `FINALISTS` kernels have one
        the analytical model names the others. A launch is expected to take its kernel's time in
        the field, times what the model says of the difference; the likeliest come first, one of
        each kernel before the second of any.
        """
        kernel_us, measured = self._kernel_times(field_us)
        chosen = sorted(measured, key=lambda kernel: (kernel_us[kernel], kernel))[:FINALISTS]
        if len(chosen) < FINALISTS:
            others = sorted(
                self._by_kernel.keys() - set(chosen),
                key=lambda kernel: (self.predicted_us(kernel, epilogue), kernel),
            )
            chosen += others[: FINALISTS - len(chosen)]
        expected = []
        for kernel in chosen:
            base = measured.get(kernel)
            scale = kernel_us[kernel] / self.predicted_us(base, ElementwiseGraph()) if base else 1.0
            launches = self._by_kernel[kernel]
            timed = sorted((scale * self.predicted_us(each, epilogue), each) for each in launches)
            expected.append(timed)
        return _interleaved(expected)[:FINAL_TRIALS]

    def _kernel_times(
        self, field_us: Mapping[Cutlass2Config, float]
    ) -> tuple[dict[Cutlass2Config, float], dict[Cutlass2Config, Cutlass2Config]]:
        """The best time of each kernel in the field, and the launch that had it."""
        best: dict[Cutlass2Config, float] = {}
        launch: dict[Cutlass2Config, Cutlass2Config] = {}
        for config, time_us in sorted(field_us.items()):
            kernel = config.kernel
            if kernel in self._by_kernel and time_us < best.get(kernel, float("inf")):
                best[kernel], launch[kernel] = time_us, config
        return best, launch


def _interleaved(
    expected: Sequence[Sequence[tuple[float, Cutlass2Config]]],
) -> tuple[Cutlass2Config, ...]:
    """The first of each list, then the rest, each by its expected time."""
    first = sorted(launches[0] for launches in expected)
    rest = sorted(each for launches in expected for each in launches[1:])
    return tuple(config for _, config in (*first, *rest))
