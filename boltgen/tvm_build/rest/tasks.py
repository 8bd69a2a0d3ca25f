"""TVM's kernels as tasks of a tuning session, and the tuned schedules in a model's build.

Arrow: from models to `tuning.rest.tasks`, and back. A kernel is identified by its structure, not by
its model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence

import tvm
from tvm.target import Target

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.toolchain import Toolchain
from boltgen.families.constants import model_constants
from boltgen.ir.outcome import DeviceKind, Outcome
from boltgen.running.loaded import last_line
from boltgen.tuning.rest.records import RestTimes
from boltgen.tuning.rest.tasks import BUILT_IN, RestTrial, fastest, rest_toolchain, short_name
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.tvm_build.rest.bench import RestBench
from boltgen.tvm_build.rest.relax_kernels import RestFunction, rest_functions
from boltgen.tvm_build.rest.schedule import built_in, identity, scheduled
from boltgen.tvm_build.rest.search import RestSearch, RestTask, load_tuner

_log = logging.getLogger(__name__)


def toolchain(tools: Toolchain) -> str:
    """Return the toolchain's name in records of TVM's kernels."""
    return rest_toolchain(toolchain_text(tools), tvm.__version__)


class TvmRest:
    """A `tuning.rest.Rest`: the kernels of several models with weights, on a device.

    Raises:
        TuningError: a package that TVM's tuner needs is missing.
        DeviceError: a TVM process cannot use the device.
    """

    def __init__(
        self,
        models: Sequence[tuple[Sequence[RestFunction], float]],
        device: tuple[DeviceKind, int],
        arch: Arch,
        tools: Toolchain,
        cache: Cache,
        *,
        jobs: int,
        seed: int,
        warn: Callable[[str], None],
    ) -> None:
        tasks = _tasks(models, arch)
        target = cuda_target(arch)
        model = load_tuner().cost_model.XGBModel()
        self.toolchain = toolchain(tools)
        self.searches = [RestSearch(each, target, model, seed=seed, warn=warn) for each in tasks]
        functions = {each.identity: each.function for each in tasks}
        self._bench = RestBench(functions, device, arch, tools=tools, cache=cache, jobs=jobs)

    def run(self, trials: Sequence[RestTrial]) -> Generator[tuple[RestTrial, Outcome], None, None]:
        """Yield each trial with its outcome, in order."""
        return self._bench.run(trials)

    def close(self) -> None:
        """Stop the process that times candidates. A second call is harmless."""
        self._bench.close()


def _tasks(models: Sequence[tuple[Sequence[RestFunction], float]], arch: Arch) -> list[RestTask]:
    """Return a task for each kernel, with its launches by each model."""
    constants = model_constants(arch)
    found: dict[str, RestFunction] = {}
    uses: dict[str, list[float]] = {}
    for index, (functions, weight) in enumerate(models):
        for each in functions:
            key = identity(each.function)
            found.setdefault(key, each)
            uses.setdefault(key, [0.0] * len(models))[index] += weight * each.kernel.count
    return [
        RestTask(
            name=each.kernel.name,
            identity=key,
            function=each.function,
            uses=tuple(uses[key]),
            expected_us=each.kernel.time_us(arch, constants) / each.kernel.count,
            flops=each.kernel.flops,
        )
        for key, each in found.items()
    ]


def with_tuned(
    module: tvm.IRModule, target: Target, times_of: Callable[[str], RestTimes | None]
) -> tuple[tvm.IRModule, Mapping[str, str]]:
    """Return `module` with the tuned kernels that were measured to be faster.

    Also return, by name, each measured kernel's schedule and the reason.
    """
    said: dict[str, str] = {}
    made: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    for each in rest_functions(module):
        name = each.kernel.name
        times = times_of(identity(each.function))
        now = built_in(each.function, target) if times else ""
        chosen = fastest(times.by_config, now) if times else None
        if times is None or chosen is None:
            continue
        if not chosen.startswith(BUILT_IN):
            try:
                made[module.get_global_var(name)] = scheduled(each.function, chosen, target)
            except Exception as error:  # TVM raises any type for a foreign trace
                _log.warning("the tuned schedule of %s is not used: %s", name, last_line(error))
                continue
        said[name] = _why(times, chosen, now)
    changed = tvm.IRModule({**dict(module.functions_items()), **made}, module.attrs)
    return (changed if made else module), said


def _why(times: RestTimes, chosen: str, now: str) -> str:
    how = {DeviceKind.VGPU: "modelled"}.get(times.device.kind, "measured")
    beside = "" if chosen == now else f", built in {times.by_config[now]:.1f} us"
    return (
        f"{short_name(chosen)}: {times.by_config[chosen]:.1f} us{beside}, {how} on "
        f"{times.device.name}"
    )
