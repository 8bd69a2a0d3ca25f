"""Build candidates for TVM's kernels with boltgen's nvcc, and time them in a worker.

Arrow: from trials of `tuning.rest.tasks` to outcomes. While one trial is timed, later ones compile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import Toolchain
from boltgen.errors import DeviceError, ToolchainError
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceKind, Failure, Fault, Outcome, Timing
from boltgen.measure.channel import Channel, OpenChannel, local_worker
from boltgen.measure.conversation import Conversation, LostError, ask
from boltgen.measure.lines import to_line
from boltgen.measure.protocol import Refusal
from boltgen.running.loaded import last_line
from boltgen.tuning.rest.tasks import RestTrial
from boltgen.tvm_build.cuda_compiler import CudaCompiler
from boltgen.tvm_build.lowering.special_values import tir_pipeline
from boltgen.tvm_build.relax_link import cuda_target, export_library
from boltgen.tvm_build.rest.schedule import built_in, named, scheduled
from boltgen.tvm_build.rest.worker import FromWorker, Ready, Request, Setup, Tensor

WORKER = "boltgen.tvm_build.rest.worker"

# Seconds until the worker has loaded TVM and opened its device.
_START_S = 120.0
# A candidate is given so long; the virtual GPU takes its time. Choices.
_MOST_S = {DeviceKind.CUDA: 30.0, DeviceKind.VGPU: 120.0}


class RestBench:
    """Time schedules of `functions`, by identity, on GPU number `ordinal` or the virtual GPU.

    A candidate's results are compared with the built-in schedule's. `open_channel` starts a worker,
    on this machine by default.

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
        open_channel: OpenChannel | None = None,
    ) -> None:
        self._functions = functions
        self._kind, ordinal = device
        self._setup = Setup(device=self._kind.value, ordinal=ordinal, arch=arch.name)
        self._target = cuda_target(arch)
        self._tools = tools
        self._jobs = jobs
        self._compiler = CudaCompiler(arch, tools, cache)
        self._folder = tempfile.TemporaryDirectory(prefix="boltgen-rest-")
        self._conversation = Conversation(open_channel or local_worker(WORKER), self._greet)
        try:
            self._conversation.start()
        except DeviceError:
            self.close()
            raise

    def _greet(self, channel: Channel) -> None:
        try:
            message = ask(channel, partial(_line, self._setup), FromWorker, _START_S)
        except LostError as lost:
            raise DeviceError(
                f"the process that is to time TVM's kernels {lost.how} before it began\n{lost.said}"
            ) from lost
        if isinstance(message, Refusal):
            raise DeviceError(message.reason)
        assert isinstance(message, Ready)

    def close(self) -> None:
        """Stop the process; harmless when done twice."""
        self._conversation.stop()
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
        request = Request(
            library=str(library), reference=str(reference), tensors=_tensors(function)
        )
        try:
            answer = self._conversation.ask(
                partial(_line, request), FromWorker, _MOST_S[self._kind]
            )
        except LostError as lost:
            return lost.failure
        except DeviceError as error:
            return Failure(fault=Fault.DEVICE_LOST, reason=str(error))
        assert isinstance(answer, Timing | Failure)
        if isinstance(answer, Failure) and answer.fault is Fault.LAUNCH:
            self._conversation.stop()  # the worker ends
        return answer


def _line(message: Setup | Request, _: Channel) -> bytes:
    return to_line(type(message), message)


def _tensors(function: tirx.PrimFunc) -> tuple[Tensor, ...]:
    """Return the shape and the type of each argument."""
    return tuple(Tensor(tuple(map(int, each.shape)), str(each.dtype)) for each in function.params)
