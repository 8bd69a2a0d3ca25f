"""Records what MetaSchedule, TVM's tuner, finds for models on a GPU.

    python -m benchmarks.gpu.metaschedule resnet50-b32 --arch sm_90 --trials 20000 --minutes 120

tunes each model as section models runs it without boltgen: FP16, NHWC, batch norms folded. Each
kernel's best schedule goes to `benchmarks/recorded/<gpu>/metaschedule/<model>/`, from where `make
gpu-bundle` takes it.
"""

from __future__ import annotations

import argparse
import getpass
import importlib.util
import os
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import tvm

from benchmarks.choices import add_choice
from benchmarks.gpu import shapes
from benchmarks.gpu.device_process import DeviceProcess
from benchmarks.gpu.metaschedule_tune import Effort, Search, tune
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.tuned_log import COMMAND, RECORDED, About, LogError, TunedLog, write_log
from benchmarks.record import commit
from boltgen.arch import Arch, arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter, reporter_for
from boltgen.build.toolchain import find_toolchain
from boltgen.build.vgpu import vgpu_libraries
from boltgen.errors import BoltgenError
from boltgen.runtime.device import DeviceKind, provide_cuda_runtime
from boltgen.settings import Settings, settings_from


def record(
    name: str,
    shape: ModelShape,
    arch: Arch,
    effort: Effort,
    *,
    device: DeviceKind,
    recorded: Path,
    settings: Settings,
    cache: Cache,
    reporter: Reporter,
) -> TunedLog:
    """Tune a model on a device, and keep what was found in a folder of `recorded`.

    Compiled candidates go to `cache`.

    Raises:
        LogError: there is no such device, or a package is missing, or nothing runs.
        BoltgenError: a compiler is missing.
    """
    _check_packages(effort.search)
    if device is DeviceKind.VGPU:
        vgpu_libraries(settings, reporter=reporter)  # its process has less time than building takes
    process = DeviceProcess(device, arch.name)
    try:
        facts = process.facts()
        if facts.arch != arch.name:
            raise LogError(f"{facts.name} is {facts.arch}, not {arch.name}: give that --arch")
        provide_cuda_runtime(settings)
        tools = find_toolchain(settings)
        with tempfile.TemporaryDirectory() as folder:
            tuned = tune(
                shape,
                arch,
                effort,
                device=process,
                folder=Path(folder),
                tools=tools,
                cache=cache,
                reporter=reporter,
            )
            if not tuned.tuned:
                raise LogError(
                    f"none of {tuned.trials} candidates for {name} runs: give more --trials or "
                    "--minutes"
                )
            about = About(
                model=name,
                gpu=facts.name,
                arch=arch.name,
                virtual=device is DeviceKind.VGPU,
                tvm=tvm.__version__,
                search=effort.search.value,
                trials=tuned.trials,
                tuning_s=round(tuned.seconds, 1),
                kernels=tuned.kernels,
                tuned=tuned.tuned,
                date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
                by=_user(),
                commit=commit(),
            )
            return write_log(recorded, about, Path(folder))
    finally:
        process.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _check_packages(search: Search) -> None:
    if search is Search.EVOLUTIONARY and importlib.util.find_spec("xgboost") is None:
        raise LogError(
            "MetaSchedule's cost model is XGBoost's, which is not installed: `pip install "
            "'boltgen[metaschedule]'`"
        )


def main() -> int:
    known = shapes.models() | shapes.small_models()
    settings = settings_from()
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="+", choices=known, metavar="MODEL", help=", ".join(known))
    parser.add_argument("--arch", required=True, help="the GPU's, such as sm_90")
    parser.add_argument("--trials", type=int, default=20000, help="of each model; default 20000")
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="for each model at most; default 120"
    )
    searches = "MetaSchedule's own, which is the default, or candidates drawn at random"
    add_choice(parser, "--search", Search.EVOLUTIONARY, searches)
    devices = "cuda, or the virtual GPU, to try this: its logs are never taken for a GPU's"
    add_choice(parser, "--device", DeviceKind.CUDA, devices)
    parser.add_argument(
        "--per-round", type=int, default=64, help="trials of a kernel before the next; default 64"
    )
    parser.add_argument("--jobs", type=int, default=settings.jobs, help="compilers at once")
    parser.add_argument("--out", type=Path, default=RECORDED, help="default: benchmarks/recorded")
    options = parser.parse_args()
    effort = Effort(
        trials=options.trials,
        minutes=options.minutes,
        per_round=options.per_round,
        search=options.search,
        jobs=options.jobs,
    )
    try:
        for name in options.model:
            # Thousands of candidates, of which nobody asks again.
            with tempfile.TemporaryDirectory() as folder:
                log = record(
                    name,
                    known[name],
                    arch_named(options.arch),
                    effort,
                    device=options.device,
                    recorded=options.out,
                    settings=settings,
                    cache=Cache(Path(folder)),
                    reporter=reporter_for(),
                )
            about = log.about
            print(
                f"{name}: {about.tuned} of {about.kernels} kernels have a schedule, of "
                f"{about.trials} tried in {about.tuning_s:.0f} s on {about.gpu}: {log.folder}"
            )
    except BoltgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
