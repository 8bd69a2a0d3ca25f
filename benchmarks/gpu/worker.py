"""The process that has the GPU: measures a slice's items, one after another, until time is up.

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

from benchmarks.gpu.checks import CONFIRMED, run_check, run_sanitized, run_suspicion
from benchmarks.gpu.fusions import run_back_to_back, run_fusion
from benchmarks.gpu.items import (
    CONTENTS,
    ITEMS,
    KERNELS,
    BackToBack,
    Check,
    Fusion,
    Item,
    Padding,
    Race,
    Sanitized,
    Space,
    Suspicion,
    Tuning,
    WholeModel,
    key_of,
    read_items,
)
from benchmarks.gpu.models_run import run_model
from benchmarks.gpu.padding import run_padding
from benchmarks.gpu.races import run_race, run_space
from benchmarks.gpu.rig import MODELLED, SELECTION, FatalError, Rig, UnusableError
from benchmarks.gpu.timing import Turns
from benchmarks.gpu.tuning import run_tuning
from benchmarks.gpu.vendor import NoVendorError, Vendor
from boltgen.arch import best_name
from boltgen.bench.slices import DONE, FAILED, Form, ResultsError, Slice, open_slice
from boltgen.ir.outcome import DeviceIdentity
from boltgen.measure.native import CudaError, RefusedError
from boltgen.measure.operands import BudgetError
from boltgen.measure.protocol import Setup
from boltgen.measure.worker import end_with_parent, open_device

# The exit statuses of this process that run_gpu_suite.py knows.
FINISHED, OUT_OF_TIME, UNUSABLE, AGAIN = 0, 3, 4, 5
# No item begins with less than this left, and PyTorch needs room beside our operands.
_LEAST_LEFT_S = 10.0
# A worker that does not come back from an item is killed, and the item has failed. PyTorch takes
# minutes to compile a model.
_MOST_ITEM_S = 240.0
_MOST_S: dict[type[Any], float] = {WholeModel: 480.0}
# For which PyTorch compiles: they begin where so much is left, or first in a process; else what was
# done of them when time is up would be lost, and others would have fitted in.
_WANTED_S: dict[type[Any], float] = {WholeModel: 180.0, Fusion: 90.0}
_SHARE_OF_FREE = 0.45
RUNTIME = "libcudart.so.13"

METHOD = (
    "One process; ours and the vendor's in turn, A B A B, launched by the same C++. Before each "
    "sample a buffer of four times the L2 cache is read; within it every launch has operands of "
    "its own, random and never zeros; launches are a CUDA graph between two events. Medians with "
    "the 95 % interval of order statistics; ratios round by round. A ratio whose interval has 1 "
    "in it, or that is within 1 % of it, is a tie. The vendor's best mode counts: cuBLAS through "
    "cublas and cublasLt with FP16 and with FP32 partial sums, cuDNN with NHWC in benchmark mode, "
    "torch.compile at max-autotune."
)

_RUNNERS: dict[type[Any], Callable[[Rig, Any], Form]] = {
    Race: run_race,
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
    result["seconds"] = round(time.monotonic() - started, 3)
    result["at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return status, result


def open_rig(bundle: Path, unpacked: Path, manifest: Form, *, virtual: bool, vendor: bool) -> Rig:
    """Open the process's device, with the bundle's kernels for it, which `unpacked` is for.

    Raises:
        UnusableError: there is no device, or none that the bundle has kernels for.
        CudaError: it has no memory left.
        NoVendorError: PyTorch is missing or sees no GPU.
    """
    torch = Vendor() if vendor else None
    setup = Setup(
        ordinal=0,
        profiler=str(bundle / "libboltgen_profiler.so"),
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
    if torch:
        torch.use_stream(profiler.device.stream)
    device = replace(device, arch=packed_arch(device, manifest["arches"]))
    place.budget_bytes = (4 << 30) if virtual else int(_SHARE_OF_FREE * profiler.free_bytes())
    return Rig(
        bundle=bundle,
        folder=unpacked,
        kernels=json.loads((bundle / KERNELS.format(arch=device.arch)).read_text()),
        contents=json.loads((bundle / CONTENTS.format(arch=device.arch)).read_text()),
        profiler=profiler,
        device=device,
        toolchain=manifest["toolchain"],
        turns=Turns(modelled=virtual),
        vendor=torch,
        # PyTorch's or the virtual GPU's where it is in the process, else the bundle's.
        runtime=ctypes.CDLL(RUNTIME),
        places=[place],
    )


def packed_arch(device: DeviceIdentity, arches: Sequence[str]) -> str:
    """Choose the architecture of the bundle's kernels: the one that makes the most of the device.

    Raises:
        UnusableError: the bundle has none for it.
    """
    most = best_name(device.arch)
    for arch in (most, device.arch):
        if arch in arches:
            return arch
    raise UnusableError(
        f"{device.name} is of {device.arch}; the bundle has kernels for {', '.join(arches)}: make "
        f"one with `make gpu-bundle ARCH={most}`"
    )


def about(rig: Rig, manifest: Form) -> Form:
    """Say what a slice's numbers were measured on, and how."""
    device = rig.device
    names = ("arch", "driver", "sm_count", "clock_mhz", "memory_bytes")
    return {
        "gpu": device.name,
        **{name: getattr(device, name) for name in names},
        "virtual": rig.turns.modelled,
        "l2_bytes": rig.profiler.device.l2_bytes,
        "vendor": rig.vendor.versions if rig.vendor else None,
        "python": sys.version.split()[0],
        "toolchain": rig.toolchain,
        "commit": manifest["commit"],
        "figures": manifest["figures"],
        "method": METHOD,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--unpacked", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sections", default="")
    parser.add_argument("--only", default="", help="only these items, with commas between")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--no-vendor", action="store_true")
    options = parser.parse_args()
    end_with_parent()
    deadline = time.monotonic() + options.seconds
    manifest = json.loads((options.bundle / "manifest.json").read_text())
    vendor = not (options.no_vendor or options.virtual)
    try:
        rig = open_rig(
            options.bundle, options.unpacked, manifest, virtual=options.virtual, vendor=vendor
        )
        kept = open_slice(options.out, options.number, options.count)
        kept.about = about(rig, manifest)
        kept.write()
        items = read_items(options.bundle / ITEMS.format(arch=rig.device.arch))
        sections = _sections(options.sections, items)
        # Every so many-th, so that a slice has some of every section.
        wanted = [
            item
            for item in items[options.number - 1 :: options.count]
            if item.section in sections
            if not options.only or key_of(item) in options.only.split(",")
        ]
        return run_slice(rig, wanted, kept, deadline)
    except (ResultsError, UnusableError, NoVendorError, CudaError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE


def _sections(wanted: str, items: tuple[Item, ...]) -> set[str]:
    """Return the sections named in `wanted`, with commas between; all if none is named.

    Raises:
        UnusableError: there is no such section.
    """
    known = {item.section for item in items}
    named = set(wanted.split(",")) if wanted else known
    if unknown := named - known:
        raise UnusableError(
            f"--sections: the bundle has no {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(known))}"
        )
    return named


def run_slice(rig: Rig, items: list[Item], kept: Slice, deadline: float) -> int:
    """Measure what is missing; the process's status."""
    current = kept.path.with_name(f"current-{kept.number}-of-{kept.count}.json")
    missing = [item for item in items if key_of(item) not in kept.items]
    ended = FINISHED
    for item in missing:
        key, left_s = key_of(item), deadline - time.monotonic()
        if left_s < _LEAST_LEFT_S:
            return OUT_OF_TIME
        if rig.vendor and item is not missing[0] and left_s < _WANTED_S.get(type(item), 0.0):
            ended = OUT_OF_TIME
            continue
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
            return AGAIN
        kept.record(key, status, result)
        current.unlink()
        ratios = (f"{name} {r['ratio']:.3f}x" for name, r in result.get("ratios", {}).items())
        print(f"{key}: {status} in {result['seconds']} s", *ratios, flush=True)
    return ended


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the farewells of libraries: after a fault on the device they hang, or crash.
    os._exit(status)
