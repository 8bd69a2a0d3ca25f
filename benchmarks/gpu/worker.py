"""The process that has the GPU: measures a slice's items, one after another, until time is up.

Started by `run_gpu_suite.py`, which starts another where this one dies: a kernel that takes the
device with it costs one item. Standard output is the table of what was done.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.gpu.checks import CONFIRMED, run_check, run_sanitized, run_suspicion
from benchmarks.gpu.compiling import (
    SHARE,
    NoCompilerError,
    OutOfShareError,
    SourceCompiler,
    find_nvcc,
)
from benchmarks.gpu.fusions import run_back_to_back, run_copy, run_fusion
from benchmarks.gpu.items import (
    ITEMS,
    KERNELS,
    SOURCE_HEADERS,
    BackToBack,
    Check,
    Copy,
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
from benchmarks.gpu.results import DONE, FAILED, ResultsError, Slice, open_slice
from benchmarks.gpu.rig import FatalError, Rig, UnusableError
from benchmarks.gpu.timing import Turns
from benchmarks.gpu.tuning import run_tuning
from benchmarks.gpu.vendor import NoVendorError, Vendor
from boltgen.measure.native import CudaError, Profiler, RefusedError
from boltgen.measure.operands import BudgetError
from boltgen.measure.worker import end_with_parent
from boltgen.tuning.outcome import DeviceIdentity, DeviceKind

# What run_gpu_suite.py makes of this process's status.
FINISHED, OUT_OF_TIME, UNUSABLE, AGAIN = 0, 3, 4, 5
CURRENT = "current-{number}-of-{count}.json"
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
# nvidia-smi can take a second, and an item less.
_STATE_S = 10.0

METHOD = (
    "One process; ours and the vendor's in turn, A B A B, launched by the same C++. Before each "
    "sample a buffer of four times the L2 cache is read; within it every launch has operands of "
    "its own, random and never zeros; launches are a CUDA graph between two events. Medians with "
    "the 95 % interval of order statistics; ratios round by round. A ratio whose interval has 1 "
    "in it, or that is within 1 % of it, is a tie. The vendor's best mode counts: cuBLAS through "
    "cublas and cublasLt with FP16 and with FP32 partial sums, cuDNN with NHWC in benchmark mode, "
    "torch.compile at max-autotune."
)

_RUNNERS: dict[type[Any], Callable[[Rig, Any], dict[str, Any]]] = {
    Race: run_race,
    Space: run_space,
    Fusion: run_fusion,
    BackToBack: run_back_to_back,
    Padding: run_padding,
    Copy: run_copy,
    Check: run_check,
    Suspicion: run_suspicion,
    Sanitized: run_sanitized,
    WholeModel: run_model,
    Tuning: run_tuning,
}


def run_item(rig: Rig, item: Item) -> tuple[str, dict[str, Any]]:
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
    now = int(time.monotonic() / _STATE_S)
    result["gpu"] = gpu_state(now) if not rig.turns.modelled else {}
    return status, result


@lru_cache(maxsize=1)
def gpu_state(period: int) -> dict[str, str]:
    """Clocks, temperature and power as nvidia-smi has them, read once in each `period` of time.

    Empty where there is no nvidia-smi.
    """
    fields = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "pstate")
    command = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = said.stdout.partition("\n")[0].split(", ")
    return dict(zip(fields, values, strict=False)) if said.returncode == 0 else {}


def open_rig(
    bundle: Path, unpacked: Path, arches: list[str], *, virtual: bool, vendor: bool
) -> Rig:
    """The process's device, with the bundle's kernels for it, which `unpacked` is for.

    Raises:
        UnusableError: there is no device, or none that the bundle has kernels for.
        CudaError: it has no memory left.
        NoVendorError: PyTorch is missing or sees no GPU.
    """
    torch = Vendor() if vendor else None
    try:
        runtime = _load_runtime(bundle)
        profiler = Profiler(bundle / "libboltgen_profiler.so", 0, with_nvml=not virtual)
    except (CudaError, OSError) as error:
        raise UnusableError(f"no GPU can be used: {error}") from error
    found = profiler.device
    if torch:
        torch.use_stream(found.stream)
    major, minor = found.compute_capability
    arch = f"sm_{major}{minor}"
    if arch not in arches:
        raise UnusableError(
            f"{found.name} is of {arch}; the bundle has kernels for {', '.join(arches)}: make one "
            f"with `make gpu-bundle ARCH={arch}`"
        )
    manifest = json.loads((bundle / "manifest.json").read_text())
    return Rig(
        bundle=bundle,
        folder=unpacked,
        kernels=json.loads((bundle / KERNELS.format(arch=arch)).read_text()),
        profiler=profiler,
        device=DeviceIdentity(
            kind=DeviceKind.VGPU if virtual else DeviceKind.CUDA,
            name=found.name,
            arch=arch,
            sm_count=found.sm_count,
            clock_mhz=found.clock_mhz,
            memory_clock_mhz=found.memory_clock_mhz,
            memory_bytes=found.memory_bytes,
            driver=found.driver,
        ),
        toolchain=manifest["toolchain"],
        budget_bytes=(4 << 30) if virtual else int(_SHARE_OF_FREE * profiler.free_bytes()),
        turns=Turns(modelled=virtual),
        vendor=torch,
        runtime=runtime,
    )


def _load_runtime(bundle: Path) -> ctypes.CDLL:
    """CUDA's runtime: PyTorch's or the virtual GPU's where it is in the process, else ours."""
    name = "libcudart.so.13"
    try:
        return ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError:
        return ctypes.CDLL(str(bundle / name), ctypes.RTLD_GLOBAL)


def about(rig: Rig, manifest: dict[str, Any], virtual: bool) -> dict[str, Any]:
    """What a slice's numbers were measured on, and how."""
    device = rig.device
    return {
        "virtual": virtual,
        "gpu": device.name,
        "arch": device.arch,
        "driver": device.driver,
        "sm_count": device.sm_count,
        "clock_mhz": device.clock_mhz,
        "l2_bytes": rig.profiler.device.l2_bytes,
        "memory_bytes": device.memory_bytes,
        "vendor": rig.vendor.versions if rig.vendor else None,
        "python": sys.version.split()[0],
        "toolchain": rig.toolchain,
        "commit": manifest["commit"],
        "method": METHOD,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def _compiler(options: argparse.Namespace, arch: str, headers: str) -> SourceCompiler | None:
    """nvcc, for what only it makes measurable; None, and a line that says so, without one.

    Its folder has the digest of `headers` in its name: another bundle's kernels are others.
    """
    folder = options.out.resolve() / f"kernels-{arch}-{headers[:12]}"
    try:
        compiler = SourceCompiler(
            bundle=options.bundle,
            nvcc=find_nvcc(),
            arch=arch,
            folder=folder,
            left_s=SHARE * options.seconds,
        )
        folder.mkdir(parents=True, exist_ok=True)
        compiler.try_out()
    except NoCompilerError as error:
        print(f"{error}: kernels that the bundle has no machine code of are left out", flush=True)
        return None
    return compiler


def _needs_compiler(item: Item) -> bool:
    return isinstance(item, Space) and item.is_beyond


def _compile(rig: Rig, item: Item, deadline: float) -> None:
    """Compile what an item needs.

    Raises:
        OutOfShareError: there is not enough time.
        ResultsError: the disk is full, or the folder of results cannot be written.
    """
    if rig.compiler and isinstance(item, Space) and item.is_beyond:
        left_s = deadline - time.monotonic() - _LEAST_LEFT_S
        rig.compiler.left_s = min(rig.compiler.left_s, left_s)
        try:
            rig.compiler.compile(rig.kernels[choice.kernel] for choice in item.product.choices)
        except OSError as error:
            raise ResultsError(
                f"kernels cannot be compiled in {rig.compiler.folder}: {error.strerror or error}"
            ) from error


def slice_items(items: tuple[Item, ...], number: int, count: int) -> list[Item]:
    """Every `count`-th item, from the `number`-th on: a slice has some of every section."""
    return list(items[number - 1 :: count])


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
    try:
        rig = open_rig(
            options.bundle,
            options.unpacked,
            manifest["arches"],
            virtual=options.virtual,
            vendor=not (options.no_vendor or options.virtual),
        )
    except (UnusableError, NoVendorError, CudaError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    try:
        headers = manifest["files"][SOURCE_HEADERS]
        rig.compiler = _compiler(options, rig.device.arch, headers)
        kept = open_slice(options.out, options.number, options.count)
        kept.about = about(rig, manifest, options.virtual)
        kept.write()
        items = read_items(options.bundle / ITEMS.format(arch=rig.device.arch))
        sections = _sections(options.sections, items)
        wanted = [
            item
            for item in slice_items(items, options.number, options.count)
            if item.section in sections
            if not options.only or key_of(item) in options.only.split(",")
            if rig.compiler or not _needs_compiler(item)
        ]
        return run_slice(rig, wanted, kept, deadline)
    except (ResultsError, UnusableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE


def _sections(wanted: str, items: tuple[Item, ...]) -> set[str]:
    """Those named in `wanted`, with commas between; all where none is.

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
    current = kept.path.with_name(CURRENT.format(number=kept.number, count=kept.count))
    missing = [item for item in items if key_of(item) not in kept.items]
    ended = FINISHED
    for item in missing:
        key, left_s = key_of(item), deadline - time.monotonic()
        if left_s < _LEAST_LEFT_S:
            return OUT_OF_TIME
        if rig.vendor and item is not missing[0] and left_s < _WANTED_S.get(type(item), 0.0):
            ended = OUT_OF_TIME
            continue
        try:
            _compile(rig, item, deadline)
        except OutOfShareError as error:
            print(f"{key}: {error}", flush=True)
            return OUT_OF_TIME
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
        print(f"{key}: {status} in {result['seconds']} s", flush=True)
    return ended


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the farewells of libraries: after a fault on the device they hang, or crash.
    os._exit(status)
