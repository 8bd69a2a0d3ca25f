"""The bench of a device: compile trials, then check and time them in a worker, one by one.

The same code, kernels and profiler serve a GPU (`open_cuda`) and the virtual GPU (`open_vgpu`),
whose events give modelled times.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from boltgen.arch import arch_named, arch_of_device, device_for
from boltgen.build.cache import Cache
from boltgen.build.gpu_probe import device_architecture
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.nvcc.children import Children
from boltgen.build.nvcc.ptx import stored_content
from boltgen.build.profiler import profiler_library
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.errors import BoltgenError, DeviceError, UnknownArchError
from boltgen.families.registry import FAMILIES
from boltgen.families.source import kernel_symbol
from boltgen.families.trial import Trial
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.outcome import NOT_COMPILED, DeviceIdentity, DeviceKind, Failure, Outcome
from boltgen.measure.channel import local_worker
from boltgen.measure.client import WORKER, Worker
from boltgen.measure.kernels import KernelMaker, Made
from boltgen.measure.protocol import Policy, Request, Setup
from boltgen.settings import Settings, settings_from

# Seconds for each candidate, and FLOP per further second. The FP64 reference takes longest: a T4
# does some 1e10 FLOP/s, the virtual GPU 3e8. Estimates, with room for a busy machine.
_CUDA_TIMEOUT_S, _CUDA_FLOPS_PER_S = 30.0, 1e9
_VGPU_TIMEOUT_S, _VGPU_FLOPS_PER_S = 60.0, 1e7
# The virtual GPU's device memory is host memory.
_VGPU_BUDGET_BYTES = 4 << 30


@dataclass(slots=True, kw_only=True)
class WorkerBench:
    """A `Bench` whose worker process owns the device.

    A candidate gets `timeout_s`, and one second more per `flops_per_s` operations of its problem.
    """

    worker: Worker
    maker: KernelMaker
    jobs: int
    arch: str
    timeout_s: float
    flops_per_s: float
    _made: dict[KernelSpec, Made] = field(default_factory=dict, init=False)

    @property
    def device(self) -> DeviceIdentity:
        """The device that is measured."""
        return self.worker.greeting.device

    @property
    def toolchain(self) -> str:
        """The toolchain that compiles the kernels."""
        return toolchain_text(self.maker.tools)

    @property
    def lock_name(self) -> str | None:
        """The name of the lock: a GPU's UUID; None for a virtual GPU, which no process shares."""
        is_gpu = self.device.kind is DeviceKind.CUDA
        return self.worker.greeting.uuid if is_gpu else None

    def close(self) -> None:
        """Stop the worker."""
        self.worker.close()

    def run(self, trials: Sequence[Trial]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Yield each trial with its outcome, as they finish; other trials compile meanwhile."""
        queue = _Queue(trials, self.arch, self._made)
        shared = {trial.spec(self.arch) for trial in trials if _is_shared(trial)}
        made = self.maker.on_shelf(shared)
        for spec, path in made.items():
            queue.kernel_made(spec, path)
        missing = [spec for spec in queue.specs if spec not in made]
        children = Children()
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            compiling = self.maker.start(missing, shared, pool, children)
            try:
                while True:
                    _take_finished(compiling, queue, block=not queue.has_ready)
                    if queue.has_ready:
                        trial, kernel = queue.next()
                        yield trial, self._measure(trial, kernel)
                    elif not compiling:
                        return
            finally:
                for future in compiling:
                    future.cancel()
                children.stop()

    def kernel(self, trial: Trial) -> str:
        """Return the content of the kernel of a trial that `run` has yielded.

        Raises:
            KernelContentError: see `build.nvcc.ptx.kernel_content`.
        """
        spec = trial.spec(self.arch)
        made = self._made[spec]
        if isinstance(made, Failure):
            return NOT_COMPILED
        return stored_content(made, kernel_symbol(spec), self.maker.cache)

    def _measure(self, trial: Trial, kernel: Made) -> Outcome:
        if isinstance(kernel, Failure):
            return kernel
        request = Request.of(trial, str(kernel), kernel_symbol(trial.spec(self.arch)))
        return self.worker.measure(
            request, self.timeout_s + trial.workload.flops / self.flops_per_s
        )


def _is_shared(trial: Trial) -> bool:
    """Return whether a library may hold the kernel: it is timed to rank kernels."""
    return FAMILIES.of(trial.config).ranking(trial.workload) == trial.workload


def _take_finished(
    compiling: set[Future[dict[KernelSpec, Made]]], queue: _Queue, *, block: bool
) -> None:
    done, _ = wait(compiling, timeout=None if block else 0, return_when=FIRST_COMPLETED)
    for future in done:
        compiling.remove(future)
        for spec, made in future.result().items():
            queue.kernel_made(spec, made)


class _Queue:
    """Trials that wait for kernels, and trials that can be measured; fills `made`."""

    def __init__(self, trials: Sequence[Trial], arch: str, made: dict[KernelSpec, Made]) -> None:
        self._made = made
        self._waiting: dict[KernelSpec, list[Trial]] = {}
        self._ready: list[tuple[Trial, Made]] = []
        self._last: Trial | None = None
        for trial in trials:
            self._waiting.setdefault(trial.spec(arch), []).append(trial)
        self.specs = list(self._waiting)

    def kernel_made(self, spec: KernelSpec, made: Made) -> None:
        """Mark the kernel's trials as ready."""
        self._made[spec] = made
        self._ready += [(trial, made) for trial in self._waiting.pop(spec)]

    @property
    def has_ready(self) -> bool:
        """Whether a trial can be measured."""
        return bool(self._ready)

    def next(self) -> tuple[Trial, Made]:
        """Return a ready trial, preferably of the last workload, whose operands are in place."""
        index = 0
        if self._last is not None:
            same = self._last.workload
            index = next((i for i, (t, _) in enumerate(self._ready) if t.workload == same), 0)
        found = self._ready.pop(index)
        self._last = found[0]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of both benches; `settings`, `tools` and `cache` default to the environment's.

    `budget_bytes` limits the device memory of a worker.
    """

    settings: Settings = field(default_factory=settings_from)
    tools: Toolchain | None = None
    cache: Cache | None = None
    jobs: int | None = None
    reporter: Reporter | None = None
    budget_bytes: int | None = None
    timeout_s: float | None = None


def open_cuda(
    options: BenchOptions | None = None, *, arch: str | None = None, ordinal: int = 0
) -> WorkerBench:
    """Open a bench of GPU number `ordinal`, for kernels of `arch`.

    The default is the architecture with the most features of that GPU.

    Raises:
        DeviceError: there is no such GPU, or boltgen does not know its architecture.
        UnknownArchError: `arch` is not in the table.
        ToolchainError: a compiler is missing.
    """
    chosen = options or BenchOptions()
    # Check the GPU before the profiler is built, which takes minutes.
    device_architecture(ordinal, "measure on the virtual GPU: --device vgpu")
    return _open(
        chosen,
        arch=arch,
        policy=Policy(),
        ordinal=ordinal,
        environment=None,
        budget_bytes=chosen.budget_bytes,
        timeout_s=chosen.timeout_s or _CUDA_TIMEOUT_S,
    )


def open_vgpu(arch: str, options: BenchOptions | None = None) -> WorkerBench:
    """Open a bench of the virtual GPU as a device of `arch`.

    Raises:
        UnknownArchError: `arch` is not in the table.
        ToolchainError: a compiler is missing, or the virtual GPU cannot be built.
    """
    chosen = options or BenchOptions()
    model = device_for(arch_named(arch).name)
    libraries = vgpu_libraries(chosen.settings, chosen.cache, chosen.reporter)
    bench = _open(
        chosen,
        arch=arch,
        policy=Policy(modelled=True),
        ordinal=0,
        environment=vgpu_environment(chosen.settings, libraries, {"device": model}),
        budget_bytes=chosen.budget_bytes or _VGPU_BUDGET_BYTES,
        timeout_s=chosen.timeout_s or _VGPU_TIMEOUT_S,
    )
    # Modelled times depend on the virtual GPU's sources: times of other versions do not compare.
    greeting = bench.worker.greeting
    driver = f"{greeting.device.driver}, vgpu {libraries.name[:12]}"
    bench.worker.greeting = replace(greeting, device=replace(greeting.device, driver=driver))
    return bench


def _open(
    options: BenchOptions,
    *,
    arch: str | None,
    policy: Policy,
    ordinal: int,
    environment: Mapping[str, str] | None,
    budget_bytes: int | None,
    timeout_s: float,
) -> WorkerBench:
    tools = options.tools or find_toolchain(options.settings)
    cache = options.cache or Cache(options.settings.cache_dir)
    profiler: Path = profiler_library(
        tools, cache, options.reporter, jobs=options.jobs or options.settings.jobs
    )
    worker = Worker(
        Setup(
            ordinal=ordinal,
            profiler=str(profiler),
            runtime=str(tools.nvcc.runtime),
            budget_bytes=budget_bytes,
            policy=policy,
        ),
        local_worker(WORKER, environment),
    )
    try:
        device = _compiled_for(arch, worker.greeting.device)
    except BoltgenError:
        worker.close()
        raise
    worker.greeting = replace(worker.greeting, device=device)
    return WorkerBench(
        worker=worker,
        maker=KernelMaker(tools=tools, cache=cache),
        jobs=options.jobs or options.settings.jobs,
        arch=device.arch,
        timeout_s=timeout_s,
        flops_per_s=_VGPU_FLOPS_PER_S if policy.modelled else _CUDA_FLOPS_PER_S,
    )


def _compiled_for(arch: str | None, device: DeviceIdentity) -> DeviceIdentity:
    """Return `device` with the architecture of kernels: `arch` if the device runs it, or its best.

    A driver reports a compute capability, which sm_90 and sm_90a share, though kernels differ.

    Raises:
        DeviceError: boltgen does not know the device's architecture.
        UnknownArchError: `arch` is not in the table.
    """
    try:
        most = arch_of_device(device.arch)
    except UnknownArchError as error:
        raise DeviceError(f"{device.name}: {error}") from error
    if arch is not None and arch_of_device(arch) == most:
        return replace(device, arch=arch)
    return replace(device, arch=most.name)
