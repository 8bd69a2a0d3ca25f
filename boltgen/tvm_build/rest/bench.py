"""Build candidate schedules of TVM's kernels with boltgen's nvcc, and time them in a TVM process.

Arrow: from trials of `tuning.rest.tasks` to outcomes. While one trial is timed, later ones compile.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx
from tvm.support.popen_pool import PopenWorker

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.errors import DeviceError, ToolchainError
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceKind, Failure, Fault, Outcome, Timing
from boltgen.running.loaded import last_line
from boltgen.tuning.rest.tasks import RestTrial
from boltgen.tvm_build.cuda_compiler import CudaCompiler
from boltgen.tvm_build.lowering.special_values import tir_pipeline
from boltgen.tvm_build.relax_link import cuda_target, export_library
from boltgen.tvm_build.rest import worker as rest_worker
from boltgen.tvm_build.rest.schedule import built_in, named, scheduled

# Time limit of a candidate in seconds; the virtual GPU is slow. Choices.
_MOST_S = {DeviceKind.CUDA: 30.0, DeviceKind.VGPU: 120.0}
# The number of samples, and the milliseconds of launches in each; modelled times do not vary.
_REPEATS = {DeviceKind.CUDA: (10, 20), DeviceKind.VGPU: (1, 0)}


class RestBench:
    """Time schedules of `functions`, by identity, on GPU number `ordinal` or the virtual GPU.

    A candidate's results are compared with the built-in schedule's results.

    Raises:
        DeviceError: a TVM process cannot use the device.
    """

    def __init__(
        self,
        functions: Mapping[str, tirx.PrimFunc],
        device: tuple[DeviceKind, int],
        arch: Arch,
        *,
        tools: Toolchain,
        cache: Cache,
        jobs: int,
    ) -> None:
        self._functions = functions
        self._kind, self._ordinal = device
        self._target = cuda_target(arch)
        self._tools = tools
        self._jobs = jobs
        self._compiler = CudaCompiler(arch, tools, cache)
        self._folder = tempfile.TemporaryDirectory(prefix="boltgen-rest-")
        self._worker = PopenWorker(
            rest_worker.begin,
            (self._kind.value, arch.name),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._worker.send(len, ((),))  # start the process
            self._worker.recv()
        except Exception as error:
            self.close()
            raise DeviceError(last_line(error)) from error

    def close(self) -> None:
        """Stop the process. A second call is harmless."""
        self._worker.kill()
        self._folder.cleanup()

    def run(self, trials: Sequence[RestTrial]) -> Generator[tuple[RestTrial, Outcome], None, None]:
        """Yield each trial with its outcome, in order."""
        registry = (tvm_ffi.get_global_func, tvm_ffi.register_global_func)
        with (
            self._compiler.installed(self._compiler.compile, *registry),
            ThreadPoolExecutor(max_workers=self._jobs) as pool,
        ):
            building = [pool.submit(self._build, each.task, each.config) for each in trials]
            try:
                for trial, future in zip(trials, building, strict=True):
                    yield trial, self._measure(trial, future.result())
            finally:
                for future in building:
                    future.cancel()

    def _build(self, task: str, config: str) -> Path | Failure:
        """Return the library of a scheduled kernel, or the failure."""
        path = Path(self._folder.name) / f"{task}-{digest(config)[:16]}.so"
        if path.exists():
            return path
        try:
            with self._target:
                made = named(scheduled(self._functions[task], config, self._target))
                executable = tvm.compile(made, target=self._target, tir_pipeline=tir_pipeline())
        except Exception as error:  # TVM raises any type for a schedule that it cannot lower
            return Failure(fault=Fault.COMPILE, reason=last_line(error))
        return export_library(executable, path, self._tools)

    def _measure(self, trial: RestTrial, library: Path | Failure) -> Outcome:
        function = self._functions[trial.task]
        reference = self._build(trial.task, built_in(function, self._target))
        if isinstance(library, Failure):
            return library
        if isinstance(reference, Failure):
            raise ToolchainError(f"{trial.name} does not compile as built in: {reference.reason}")
        arguments = (
            str(library),
            str(reference),
            _tensors(function),
            ("cuda", self._ordinal),
            _REPEATS[self._kind],
        )
        try:
            self._worker.send(rest_worker.times_us, arguments, timeout=_MOST_S[self._kind])
            return _timing(self._worker.recv(), modelled=self._kind is DeviceKind.VGPU)
        except ArithmeticError as error:
            return Failure(fault=Fault.WRONG_RESULT, reason=last_line(error))
        except TimeoutError:
            reason = f"no answer within {_MOST_S[self._kind]:g} s"
            return Failure(fault=Fault.TIMEOUT, reason=reason)
        except Exception as error:  # the worker re-raises any exception
            self._worker.kill()  # after a fault a device needs a new process
            fault = Fault.CRASH if isinstance(error, ChildProcessError) else Fault.LAUNCH
            return Failure(fault=fault, reason=last_line(error))


def _tensors(function: tirx.PrimFunc) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return the shape and the type of each argument."""
    return tuple((tuple(map(int, each.shape)), str(each.dtype)) for each in function.params)


def _timing(samples_us: Sequence[float], *, modelled: bool) -> Timing:
    if modelled:
        (once_us,) = samples_us
        return Timing.exact(once_us)
    p20, _, _, p80 = statistics.quantiles(samples_us, n=5, method="inclusive")
    return Timing(
        median_us=statistics.median(samples_us),
        p20_us=p20,
        p80_us=p80,
        low_us=min(samples_us),
        high_us=max(samples_us),
        repeats=len(samples_us),
        launches=1,
        cold_l2=False,
    )
