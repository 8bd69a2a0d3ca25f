"""The process that has the GPU: measures what is built, the most valuable first, until time is up.

Started by `run_gpu_suite.py`, which starts another where this one dies: a kernel that takes the
device with it costs one item. Standard output is the table of what was done.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu.building import PROFILER
from benchmarks.gpu.built import Builders, State
from benchmarks.gpu.checks import CONFIRMED, run_check, run_sanitized, run_suspicion
from benchmarks.gpu.fusions import run_back_to_back, run_fusion
from benchmarks.gpu.items import (
    ITEMS,
    Attend,
    BackToBack,
    Check,
    Fusion,
    Item,
    Overlap,
    Padding,
    Race,
    Sanitized,
    Space,
    Suspicion,
    Tuning,
    WholeModel,
    chosen,
    key_of,
    needs_of,
    read_items,
)
from benchmarks.gpu.models_run import run_model
from benchmarks.gpu.padding import run_padding
from benchmarks.gpu.races import run_attention, run_overlap, run_race, run_space
from benchmarks.gpu.rig import MODELLED, SELECTION, FatalError, Rig, UnusableError
from benchmarks.gpu.timing import Turns
from benchmarks.gpu.tuning import run_tuning
from benchmarks.gpu.vendor import NoVendorError, Vendor
from boltgen.arch import best_name
from boltgen.bench.results import (
    DONE,
    FAILED,
    FILE,
    Form,
    Results,
    ResultsError,
    open_results,
    packed,
    read_form,
)
from boltgen.ir.outcome import DeviceIdentity
from boltgen.measure.lines import end_with_parent
from boltgen.measure.native import CudaError, RefusedError
from boltgen.measure.operands import BudgetError
from boltgen.measure.protocol import Setup
from boltgen.measure.worker import open_device
from boltgen.tuning.database.records import to_line

# The file of the item at hand; and what run_gpu_suite.py makes of this process's status.
CURRENT = "current-item.json"
FINISHED, OUT_OF_TIME, UNUSABLE, AGAIN = 0, 3, 4, 5
# No item begins with less than this left, and PyTorch needs room beside our operands.
_LEAST_LEFT_S = 10.0
# A worker that does not come back from an item is killed, and the item has failed. PyTorch takes
# minutes to compile a model.
_MOST_ITEM_S = 60.0
_MOST_S: dict[type[Any], float] = {
    WholeModel: 330.0,
    Fusion: 150.0,
    Sanitized: 90.0,
    Tuning: 240.0,
}
# For which PyTorch compiles: they begin where so much is left, or first in a process; else what was
# done of them when time is up would be lost, and others would have fitted in.
_WANTED_S: dict[type[Any], float] = {WholeModel: 180.0, Fusion: 90.0}
_SHARE_OF_FREE = 0.45
# Launched from Python between two events, or processes of their own: compilers always make a
# difference.
_NEVER_BESIDE_COMPILERS = (WholeModel, Tuning, Sanitized, Overlap)
# Whose times are records for the tuner and the analytical model.
_RECORDED = (Race, Attend, Space, Fusion, BackToBack)
_POLL_S = 0.1
_WINDOW = 12
RUNTIME = "libcudart.so.13"

METHOD = (
    "One process; ours and the vendor's in turn, A B A B, launched by the same C++. Before each "
    "sample a buffer of four times the L2 cache is read; within it every launch has operands of "
    "its own, random and never zeros; launches are a CUDA graph between two events. Medians with "
    "the 95 % interval of order statistics; ratios round by round. A ratio whose interval has 1 "
    "in it, or that is within 1 % of it, is a tie. The vendor's best mode counts: cuBLAS through "
    "cublas and cublasLt with FP16 and with FP32 partial sums, cuDNN with NHWC in benchmark mode, "
    "torch.compile at max-autotune; models have torch.compile in default mode, too; attention by "
    "PyTorch's backends flash, cudnn and efficient."
)

_RUNNERS: dict[type[Any], Callable[[Rig, Any], Form]] = {
    Overlap: run_overlap,
    Race: run_race,
    Attend: run_attention,
    Space: run_space,
    Fusion: run_fusion,
    BackToBack: run_back_to_back,
    Padding: run_padding,
    Check: run_check,
    Suspicion: run_suspicion,
    Sanitized: run_sanitized,
    WholeModel: run_model,
    Tuning: run_tuning,
}


def run_item(rig: Rig, item: Item) -> tuple[str, Form]:
    """An item's status and result.

    Raises:
        FatalError: the device is of no more use to this process.
        ResultsError: the disk is full.
    """
    started = time.monotonic()
    rig.records.clear()
    try:
        result, status = _RUNNERS[type(item)](rig, item), DONE
    except (UnusableError, BudgetError, RefusedError) as error:
        result, status = {"error": str(error)}, FAILED
    except CudaError as error:
        raise FatalError(str(error)) from error
    except (FatalError, ResultsError):
        raise
    except Exception as error:  # whatever else an item meets is its own: the next ones are tried
        result, status = {"error": f"{type(error).__name__}: {error}"[:2000]}, FAILED
    if rig.records and isinstance(item, _RECORDED):
        result["records"] = packed("\n".join(map(to_line, rig.records)).encode())
    result["seconds"] = round(time.monotonic() - started, 3)
    result["at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return status, result


def open_rig(
    bundle: Path,
    builders: Builders,
    manifest: Form,
    *,
    virtual: bool,
    vendor: Vendor | None,
    deadline: float,
) -> Rig:
    """Open the process's device.

    Raises:
        UnusableError: there is no device, or it is not of the bundle's architecture; the profiler
            was not built.
        CudaError: it has no memory left.
    """
    profiler_built = builders.state.find(PROFILER)
    if profiler_built is None or profiler_built.error:
        said = profiler_built.error if profiler_built else "the builder ended before"
        raise UnusableError(f"the profiler was not built: {said}")
    setup = Setup(
        ordinal=0,
        profiler=profiler_built.path,
        runtime=str(bundle / RUNTIME),
        policy=MODELLED if virtual else SELECTION,
    )
    try:
        place, greeting = open_device(setup)
    except (CudaError, OSError) as error:
        raise UnusableError(
            f"no GPU with a driver for CUDA 13 can be used: {error}; without one, try the suite on "
            "the virtual GPU: `boltgen vgpu run -- python3 run_gpu_suite.py --virtual ...`"
        ) from error
    device, profiler = greeting.device, place.profiler
    if vendor:
        vendor.use_stream(profiler.device.stream)
    device = replace(device, arch=packed_arch(device, manifest["arch"]))
    place.budget_bytes = (4 << 30) if virtual else int(_SHARE_OF_FREE * profiler.free_bytes())
    return Rig(
        bundle=bundle,
        work=builders.state.folder,
        state=builders.state,
        builders=builders,
        profiler=profiler,
        device=device,
        turns=Turns(modelled=virtual),
        vendor=vendor,
        # PyTorch's or the virtual GPU's where it is in the process, else the bundle's.
        runtime=ctypes.CDLL(RUNTIME),
        places=[place],
        deadline=deadline,
    )


def packed_arch(device: DeviceIdentity, arch: str) -> str:
    """Check that the bundle's kernels, of `arch`, are for the device.

    Raises:
        UnusableError: they are not.
    """
    most = best_name(device.arch)
    if arch in (most, device.arch):
        return arch
    raise UnusableError(
        f"{device.name} is of {device.arch}; the bundle is for {arch}: make one with "
        f"`make gpu-bundle ARCH={most}`"
    )


def about(rig: Rig, manifest: Form, no_vendor: str) -> Form:
    """Say what the numbers were measured on, and how."""
    device = rig.device
    names = ("arch", "driver", "sm_count", "clock_mhz", "memory_bytes")
    return {
        "gpu": device.name,
        **{name: getattr(device, name) for name in names},
        "virtual": rig.turns.modelled,
        "l2_bytes": rig.profiler.device.l2_bytes,
        "vendor": rig.vendor.versions if rig.vendor else None,
        "no_vendor": no_vendor,
        "python": sys.version.split()[0],
        "toolchain": manifest["toolchain"],
        "commit": manifest["commit"],
        "figures": manifest["figures"],
        "method": METHOD,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--builder", type=int, default=0, help="the builder's process")
    parser.add_argument("--jobs", type=int, default=1, help="compilers that it runs at once")
    parser.add_argument("--before", type=Path, action="append", default=[])
    parser.add_argument("--sections", default="")
    parser.add_argument("--only", default="", help="only these items, with commas between")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--no-vendor", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    manifest = json.loads((options.bundle / "manifest.json").read_text())
    builders = Builders(options.builder, State(options.work), options.jobs)
    end_with_parent(builders.end)
    try:
        items = read_items(options.bundle / ITEMS.format(arch=manifest["arch"]))
        done = {key for folder in options.before for key in _done(folder)}
        asked = chosen(items, options.sections, options.only)
        wanted = [item for item in asked if key_of(item) not in done]
        vendor, no_vendor = _vendor(
            wanted=not (options.no_vendor or options.virtual), compiles=not options.no_compile
        )
        _wait_for(PROFILER, builders, deadline)
        rig = open_rig(
            options.bundle,
            builders,
            manifest,
            virtual=options.virtual,
            vendor=vendor,
            deadline=deadline,
        )
        kept = open_results(options.out)
        kept.belong_to(about(rig, manifest, no_vendor))
        kept.write()
        return measure_all(rig, wanted, kept, deadline)
    except (ResultsError, UnusableError, CudaError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    finally:
        builders.resume()


def _vendor(*, wanted: bool, compiles: bool) -> tuple[Vendor | None, str]:
    """PyTorch, or why there are no columns of it: ours is measured all the same."""
    if not wanted:
        return None, "not asked for"
    try:
        return Vendor(compiles=compiles), ""
    except NoVendorError as error:
        print(f"without the vendor's columns: {error}", file=sys.stderr, flush=True)
        return None, str(error)


def _wait_for(symbol: str, builders: Builders, deadline: float) -> None:
    """Wait until something is built, or will never be."""
    while not builders.have_ended and not builders.state.find(symbol):
        if time.monotonic() >= deadline:
            return
        time.sleep(_POLL_S)


def _done(folder: Path) -> list[str]:
    """The keys of what an earlier run finished.

    Raises:
        ResultsError: the folder has no results.
    """
    items = read_form(folder / FILE)["items"]
    return [key for key, item in items.items() if item["status"] == DONE]


def measure_all(rig: Rig, items: Sequence[Item], kept: Results, deadline: float) -> int:
    """Measure what is missing, and return the process's status.

    Of the next few items the first that is built is measured: one that is worth less would keep
    compilers from what is worth more.
    """
    missing = [item for item in items if key_of(item) not in kept.items]
    builders, first, ended = rig.builders, True, FINISHED
    builders.may_overlap = any(item.get("overlap", False) for item in kept.items.values())
    while missing:
        left_s = deadline - time.monotonic()
        if left_s < _LEAST_LEFT_S:
            return OUT_OF_TIME
        # Read first: what was built before the builder ended is then seen.
        has_ended = builders.have_ended
        ready = (item for item in missing[:_WINDOW] if is_ready(item, builders.state))
        item = next(ready, missing[0] if has_ended else None)
        if item is None:
            builders.resume()
            time.sleep(_POLL_S)
            continue
        missing.remove(item)
        compiles = rig.vendor is not None and rig.vendor.compiles
        if compiles and not first and left_s < _WANTED_S.get(type(item), 0.0):
            ended = OUT_OF_TIME
            continue
        if not builders.may_overlap or isinstance(item, _NEVER_BESIDE_COMPILERS):
            builders.stop()
        else:
            builders.resume()
        if not measure(rig, item, kept):
            return AGAIN
        first = False
    return ended


def is_ready(item: Item, state: State) -> bool:
    """Whether everything that the item launches was built, or will not be."""
    return all(state.find(symbol) for symbol in needs_of(item))


def measure(rig: Rig, item: Item, kept: Results) -> bool:
    """Measure an item and keep its result; whether the device can be used after it."""
    current, key = kept.path.with_name(CURRENT), key_of(item)
    most_s = _MOST_S.get(type(item), _MOST_ITEM_S)
    current.write_text(json.dumps({"key": key, "began": time.time(), "most_s": most_s}))
    try:
        status, result = run_item(rig, item)
    except FatalError as error:
        result = {"error": str(error), "seconds": 0.0}
        if isinstance(item, Suspicion) and not item.is_control:
            result["verdict"] = f"{CONFIRMED}: {error}"
        kept.record(key, FAILED, result)
        current.unlink()
        return False
    kept.record(key, status, result)
    current.unlink()
    rig.builders.may_overlap |= bool(result.get("overlap"))
    ratios = (f"{name} {r['ratio']:.3f}x" for name, r in result.get("ratios", {}).items())
    print(f"{key}: {status} in {result['seconds']} s", *ratios, flush=True)
    return True


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the farewells of libraries: after a fault on the device they hang, or crash.
    os._exit(status)
