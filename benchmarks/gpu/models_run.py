"""Section models: whole models of boltgen's beside TVM without it and PyTorch."""

from __future__ import annotations

import copy
import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.items import WholeModel
from benchmarks.gpu.rig import PACKED, Launched, Rig, UnusableError
from benchmarks.gpu.timing import compare
from benchmarks.gpu.tvm_runtime import LIBRARIES, TvmError, TvmModel, TvmRuntime
from benchmarks.gpu.vendor import Capturing, Replay, Vendor
from boltgen.measure.native import CudaError
from boltgen.tuning.outcome import DeviceKind
from models.parameters import FloatArray, Normal, periodic

# Where a bundle has a library of `tvm_runtime`.
RUNTIME = f"tvm/{{name}}{PACKED}"
_IMAGE_DIMENSIONS = 4
# A product's weights, and its output, are rounded to FP16, each element by half an ulp at most.
# To first order the errors of products one behind the other add, where none amplifies what is
# before it: a bound, of which a model as a rule uses a tenth.
_ERROR_OF_PRODUCT = 2.0**-10
_STATUS_OK = 0
# Columns of TVM's without boltgen: its default schedules, and those of a log of MetaSchedule's.
TVM, TUNED = "tvm", "tvm_metaschedule"
# Where a model's recipe, and its item, have what the log says of itself.
METASCHEDULE = "metaschedule"
_NO_LOG = "no tuned log is recorded"
_VIRTUAL_LOG = "its schedules were tuned on the virtual GPU, whose times are modelled"
# What PyTorch may take to choose its libraries' algorithms for a model, and to compile and tune it.
_MOST_BESIDE_S = 390.0
_SEED = 20

Outputs = NDArray[np.float32]


def run_model(rig: Rig, item: WholeModel) -> dict[str, Any]:
    """Ours from a CUDA graph, and launched; TVM's; PyTorch eager and compiled.

    Raises:
        UnusableError: an output is wrong, or there is no PyTorch to tell.
        TvmError: a library cannot be loaded or run.
    """
    recipe = json.loads((rig.bundle / item.recipe).read_text())
    x = np.random.default_rng(_SEED).standard_normal(item.input_shape).astype(np.float16)
    if importlib.util.find_spec("torch") is None:
        raise UnusableError("a model is compared with PyTorch's: install it, for the CPU at least")
    torch = TorchModel(item.model, parameters(recipe), x, "cuda" if rig.vendor else "cpu")
    with rig.vendor.untuned() if rig.vendor else nullcontext():
        reference = torch.reference()
    bound = _ERROR_OF_PRODUCT * sum(len(shape) > 1 for shape, _, _ in recipe["parameters"].values())
    ours = _loaded(rig, rig.library(item.ours), x)
    found = _output(rig, ours)
    errors = {"boltgen": _difference(found, reference)}
    if not errors["boltgen"] <= bound:
        raise UnusableError(
            f"the output differs from FP32's by {errors['boltgen']:.2g} of its norm; FP16 may make "
            f"it {bound:.2g}"
        )
    samplers = {
        "boltgen": _replayed(rig, ours, found),
        "boltgen_launched": _launches(rig, ours, captured=False),
    }
    log = recipe.get(METASCHEDULE)
    symbols, missing = tvm_columns(item, log, virtual=rig.device.kind is DeviceKind.VGPU)
    for column, symbol in symbols.items():
        try:
            model = _loaded(rig, rig.library(symbol), x)
            beside = _output(rig, model)
            samplers[column] = _replayed(rig, model, beside)
            errors[column] = _difference(beside, reference)
        except (TvmError, UnusableError) as error:  # TVM's own: ours is measured still
            missing[column] = str(error)
    compiling_s: dict[str, float] = {}
    theirs, vendor_errors = rig.beside(
        replays(torch, rig.vendor, compiling_s) if rig.vendor else {}, most_s=_MOST_BESIDE_S
    )
    timed = rig.timed(samplers | theirs)
    columns = timed["columns"]
    others = {column: column for column in symbols if column in samplers}
    if theirs:
        others["vendor"] = min(theirs, key=lambda name: float(columns[name]["median_us"]))
    return {
        "columns": columns,
        "clocks_mhz": timed["clocks_mhz"],
        "errors": errors,
        "error_bound": bound,
        "vendor_errors": vendor_errors | missing,
        "compile_s": {**recipe["compile_s"], **compiling_s},
        "ratios": {
            label: compare(timed, "boltgen", name, rig.turns) for label, name in others.items()
        },
        **({METASCHEDULE: log} if log else {}),
    }


def tvm_columns(
    item: WholeModel, log: Mapping[str, Any] | None, *, virtual: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The libraries of the columns of TVM's that can be had on this device; why not the others.

    `log` says how MetaSchedule's was recorded, and on what; `virtual` is this device.
    """
    symbols = {TVM: item.alone}
    if item.tuned is None or log is None:
        return symbols, {TUNED: _NO_LOG}
    if log["virtual"] and not virtual:
        return symbols, {TUNED: _VIRTUAL_LOG}
    return {**symbols, TUNED: item.tuned}, {}


def parameters(recipe: dict[str, Any]) -> dict[str, FloatArray]:
    """A model's parameters by name, as its ONNX graph has them: rounded to FP16."""
    return {
        name: periodic(name, tuple(shape), Normal(mean=mean, std=std))
        .astype(np.float16)
        .astype(np.float32)
        for name, (shape, mean, std) in recipe["parameters"].items()
    }


def _loaded(rig: Rig, library: str, x: NDArray[np.float16]) -> TvmModel:
    """A model that has been run once."""
    if rig.tvm is None:
        paths = [Path(rig.unpacked(RUNTIME.format(name=name))) for name in LIBRARIES]
        rig.tvm = TvmRuntime(paths)
        rig.tvm.use_stream(rig.profiler.device.stream)
    model = TvmModel(rig.tvm, Path(library))
    model.set_inputs([x])
    # TVM copied weights and inputs on another stream than the one that the model is run on.
    if code := rig.runtime.cudaDeviceSynchronize():
        raise CudaError(code, "copying a model to the device failed")
    model.run()
    return model


def _output(rig: Rig, model: TvmModel) -> Outputs:
    """The model's one output, once what was launched is done.

    Raises:
        UnusableError: it is not finite.
    """
    (output,) = model.outputs()
    array = np.empty(output.shape, output.dtype)
    rig.profiler.copy(array.ctypes.data, output.address, output.size_bytes)
    if not np.isfinite(array).all():
        raise UnusableError("an output is not finite")
    return array.astype(np.float32)


def _difference(found: Outputs, expected: Outputs) -> float:
    """The norm of the difference by that of `expected`."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _launches(rig: Rig, model: TvmModel, *, captured: bool) -> Launched:
    def enqueue(index: int, status: int) -> int:
        model.run()
        return _STATUS_OK

    return Launched(rig, enqueue, 1, captured=captured)


def _replayed(rig: Rig, model: TvmModel, expected: Outputs) -> Launched:
    """A CUDA graph of an inference, which must give the same bits.

    A run keeps its output until the next one has its own: two runs before, and TVM's allocator has
    all that a third one wants, for no memory is allocated while a stream is captured.
    """
    model.run()
    graph = _launches(rig, model, captured=True)
    (output,) = model.outputs()
    rig.profiler.poison(output.address, output.size_bytes)
    graph.sample_us(1)
    if not np.array_equal(_output(rig, model), expected):
        raise UnusableError("a CUDA graph of the model gives other results than its launches")
    return graph


class TorchModel:
    """A model as PyTorch runs it on `device`, with our parameters."""

    def __init__(
        self, name: str, arrays: dict[str, FloatArray], x: NDArray[np.float16], device: str
    ) -> None:
        import torch  # noqa: PLC0415 (a machine for ours alone may have none)

        from benchmarks.gpu.torch_models import torch_model  # noqa: PLC0415

        self._torch: Any = torch
        self._device = device
        is_images = x.ndim == _IMAGE_DIMENSIONS
        self._format = torch.channels_last if is_images else torch.contiguous_format
        self._model = torch_model(name, arrays)
        self.x = torch.from_numpy(x).to(device, memory_format=self._format)

    def reference(self) -> Outputs:
        """The output in FP32."""
        with self._torch.inference_mode():
            found: Outputs = self._in(self._torch.float32)(self.x.float()).cpu().numpy()
        return found

    def half(self) -> Callable[[Any], Any]:
        """The model in FP16, to be called with `x`."""
        return self._in(self._torch.float16)

    def _in(self, dtype: Any) -> Callable[[Any], Any]:
        model: Callable[[Any], Any] = copy.deepcopy(self._model).to(
            self._device, dtype, memory_format=self._format
        )
        return model


def replays(model: TorchModel, vendor: Vendor, compiling_s: dict[str, float]) -> Capturing:
    """FP16, channels last: eager, and compiled; how long that took goes to `compiling_s`."""
    half = cache(model.half)

    def captured(call: Callable[[Any], Any]) -> Replay:
        with vendor.torch.inference_mode():
            return vendor.captured([partial(call, model.x)])

    def compiled() -> Replay:
        started = time.monotonic()
        replay = captured(vendor.compiled(half()))
        compiling_s["torch"] = round(time.monotonic() - started, 1)
        return replay

    return {"eager": lambda: captured(half()), "compiled": compiled}
