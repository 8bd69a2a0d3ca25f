"""Section models: whole models of boltgen's beside TVM without it and PyTorch."""

from __future__ import annotations

import copy
import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.capture import Capturing, Replay
from benchmarks.gpu.items import MODEL_ALONE, MODEL_OURS, MODEL_TUNED, WholeModel
from benchmarks.gpu.rig import Launched, Rig, UnusableError
from benchmarks.gpu.tvm_runtime import TvmModel
from benchmarks.gpu.vendor import DEFAULT_MODE, MAX_AUTOTUNE, Vendor
from boltgen.bench.results import Form, ResultsError
from boltgen.ir.outcome import DeviceKind
from boltgen.measure.native import CudaError
from models.parameters import FloatArray, Normal, periodic

# Where TVM's runtime lies, and a recipe's part that a log of MetaSchedule's says of itself.
RUNTIME, METASCHEDULE = "packages/tvm_runtime", "metaschedule"
_IMAGE_DIMENSIONS = 4
# A product's weights, and its output, are rounded to FP16, each element by half an ulp at most.
# To first order the errors of products one behind the other add, where none amplifies what is
# before it: a bound, of which a model as a rule uses a tenth.
_ERROR_OF_PRODUCT = 2.0**-10
_HALF_BYTES = 2
# Columns of TVM's without boltgen: its default schedules, and those of a log of MetaSchedule's.
TVM, TUNED = "tvm", "tvm_metaschedule"
# PyTorch's compiled columns, and their modes. The cheap one is first: it stands if time is up.
_COMPILED = MappingProxyType({"compiled_default_mode": DEFAULT_MODE, "compiled": MAX_AUTOTUNE})
_NO_LOG = "no tuned log is recorded"
_VIRTUAL_LOG = "its schedules were tuned on the virtual GPU, whose times are modelled"
# What PyTorch may take to choose its libraries' algorithms for a model, and to compile and tune it.
_MOST_BESIDE_S = 240.0
_SEED = 20

Outputs = NDArray[np.float32]


def run_model(rig: Rig, item: WholeModel) -> Form:
    """Ours from a CUDA graph, and launched; TVM's; PyTorch eager and compiled.

    Raises:
        UnusableError: an output is wrong, or there is no PyTorch to tell.
    """
    recipe = json.loads((rig.bundle / item.recipe).read_text())
    x = np.random.default_rng(_SEED).standard_normal(item.input_shape).astype(np.float16)
    if importlib.util.find_spec("torch") is None:
        raise UnusableError("a model is compared with PyTorch's: install it, for the CPU at least")
    torch = cache(partial(TorchModel, item.model, parameters(recipe), x))
    reference, missing = reference_output(rig, torch)
    bound = _ERROR_OF_PRODUCT * sum(len(shape) > 1 for shape, _, _ in recipe["parameters"].values())
    ours = _loaded(rig, MODEL_OURS.format(name=item.name), x)
    found = _output(rig, ours)
    errors = {"boltgen": _difference(found, reference)}
    if not errors["boltgen"] <= bound:
        raise UnusableError(
            f"the output differs from FP32's by {errors['boltgen']:.2g} of its norm; FP16 may make "
            f"it {bound:.2g}"
        )
    samplers = {
        "boltgen": _replayed(rig, ours, found),
        "boltgen_launched": rig.calling(ours.run),
    }
    log = recipe.get(METASCHEDULE)
    symbols, others_missing = tvm_columns(item, log, virtual=rig.device.kind is DeviceKind.VGPU)
    missing |= others_missing
    for column, symbol in symbols.items():
        try:
            model = _loaded(rig, symbol, x)
            beside = _output(rig, model)
            samplers[column] = _replayed(rig, model, beside)
            errors[column] = _difference(beside, reference)
        except (CudaError, ResultsError):
            raise
        except Exception as error:  # TVM's own, of whatever kind: ours is measured still
            missing[column] = f"{type(error).__name__}: {error}"[:1000]
    compiling_s: dict[str, float] = {}
    theirs, vendor_errors = rig.beside(
        lambda vendor: replays(torch(vendor.device), vendor, compiling_s), most_s=_MOST_BESIDE_S
    )
    timed = rig.timed(samplers | theirs)
    others = {column: column for column in (*symbols, *theirs) if column in timed.medians}
    if theirs:
        others["vendor"] = min(theirs, key=timed.us)
    return {
        **timed.form,
        "errors": errors,
        "error_bound": bound,
        "vendor_errors": vendor_errors | missing,
        "compile_s": {**recipe["compile_s"], **compiling_s},
        "kernels": _kernels(rig, ours, torch),
        "ratios": {label: timed.ratio(name) for label, name in others.items()},
        **({METASCHEDULE: log} if log else {}),
    }


def reference_output(
    rig: Rig, torch: Callable[[str], TorchModel]
) -> tuple[Outputs, dict[str, str]]:
    """Compute the output in FP32, on the GPU if PyTorch can; say why if it cannot.

    The CPU gives the same reference, so no failure of PyTorch's on the GPU costs our column.
    """
    errors: dict[str, str] = {}
    if rig.vendor:
        try:
            with rig.vendor.untuned():
                return torch(rig.vendor.device).reference(), errors
        except Exception as error:  # PyTorch's own, of whatever kind: the CPU computes it
            errors["reference"] = f"computed on the CPU: {rig.forgotten(error)}"
    return torch("cpu").reference(), errors


def _kernels(rig: Rig, ours: TvmModel, torch: Callable[[str], TorchModel]) -> Form:
    """List the kernels of our model, and of PyTorch's eager one, with their times."""
    if not rig.vendor:
        return {}
    device = rig.vendor.device
    calls: dict[str, Callable[[], Callable[[], object]]] = {
        "boltgen": lambda: ours.run,
        "eager": lambda: partial(torch(device).half(), torch(device).x),
    }
    found: Form = {}
    for column, prepared in calls.items():
        try:
            call = prepared()
            with rig.vendor.torch.inference_mode():
                call()
                found[column] = rig.vendor.kernels(call)
        except Exception as error:  # the profiler's own, of whatever kind: times are there still
            found[column] = f"{type(error).__name__}: {error}"[:1000]
    return found


def tvm_columns(
    item: WholeModel, log: Mapping[str, Any] | None, *, virtual: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose TVM's libraries that can be had on this device; say why not the others.

    `log` says how MetaSchedule's was recorded, and on what; `virtual` is this device.
    """
    symbols = {TVM: MODEL_ALONE.format(name=item.name)}
    if not item.is_tuned or log is None:
        return symbols, {TUNED: _NO_LOG}
    if log["virtual"] and not virtual:
        return symbols, {TUNED: _VIRTUAL_LOG}
    return {**symbols, TUNED: MODEL_TUNED.format(name=item.name)}, {}


def parameters(recipe: dict[str, Any]) -> dict[str, FloatArray]:
    """A model's parameters by name, as its ONNX graph has them: rounded to FP16."""
    return {
        name: periodic(name, tuple(shape), Normal(mean=mean, std=std))
        .astype(np.float16)
        .astype(np.float32)
        for name, (shape, mean, std) in recipe["parameters"].items()
    }


def _loaded(rig: Rig, symbol: str, x: NDArray[np.float16]) -> TvmModel:
    """Load a model and run it once."""
    stream = rig.profiler.device.stream
    model = TvmModel(rig.work / RUNTIME, rig.built(symbol).path, x, stream)
    # TVM copied weights and inputs on another stream than the one that the model is run on.
    if code := rig.runtime.cudaDeviceSynchronize():
        raise CudaError(code, "copying a model to the device failed")
    model.run()
    return model


def _output(rig: Rig, model: TvmModel) -> Outputs:
    """Read the model's output, once what was launched is done.

    Raises:
        UnusableError: it is not finite.
    """
    array = rig.download(*model.output())
    if not np.isfinite(array).all():
        raise UnusableError("an output is not finite")
    return array.astype(np.float32)


def _difference(found: Outputs, expected: Outputs) -> float:
    """The norm of the difference by that of `expected`."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _replayed(rig: Rig, model: TvmModel, expected: Outputs) -> Launched:
    """Capture a CUDA graph of an inference, which must give the same bits.

    A run keeps its output until the next one has its own: two runs before, and TVM's allocator has
    all that a third one wants, for no memory is allocated while a stream is captured.
    """
    model.run()
    graph = rig.calling(model.run, captured=True)
    address, *_ = model.output()
    rig.profiler.poison(address, expected.size * _HALF_BYTES)
    graph.sample_us(1)
    if not np.array_equal(_output(rig, model), expected):
        raise UnusableError("a CUDA graph of the model gives other results than its launches")
    return graph


class TorchModel:
    """A model as PyTorch runs it on `device`, with our parameters, and its input `x`."""

    def __init__(
        self, name: str, arrays: dict[str, FloatArray], x: NDArray[np.float16], device: str
    ) -> None:
        import torch  # noqa: PLC0415 (a machine for ours alone may have none)

        from benchmarks.gpu.torch_models import torch_model  # noqa: PLC0415

        is_images = x.ndim == _IMAGE_DIMENSIONS
        form = torch.channels_last if is_images else torch.contiguous_format
        self.x: Any = torch.from_numpy(x).to(device, memory_format=form)
        self._model: Any = torch_model(name, arrays).to(device, memory_format=form)

    def reference(self) -> Outputs:
        """Compute the output in FP32."""
        found: Outputs = self._model(self.x.float()).cpu().numpy()
        return found

    def half(self) -> Callable[[Any], Any]:
        """Make the model in FP16, to be called with `x`."""
        found: Callable[[Any], Any] = copy.deepcopy(self._model).half()
        return found


def replays(model: TorchModel, vendor: Vendor, compiling_s: dict[str, float]) -> Capturing:
    """FP16, channels last: eager, and compiled in each mode; the time goes to `compiling_s`."""
    half = cache(model.half)

    def captured(call: Callable[[Any], Any]) -> Replay:
        with vendor.torch.inference_mode():
            return vendor.captured([partial(call, model.x)])

    def compiled(column: str, mode: str) -> Replay:
        started = time.monotonic()
        replay = captured(vendor.compiled(half(), mode))
        compiling_s[f"torch_{column}"] = round(time.monotonic() - started, 1)
        return replay

    eager = {"eager": lambda: captured(half())}
    modes = _COMPILED if vendor.compiles else {}
    return eager | {column: partial(compiled, column, mode) for column, mode in modes.items()}
