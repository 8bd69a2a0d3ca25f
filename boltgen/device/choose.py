"""Choose once, at the start of a process, its CUDA driver: a GPU's or the virtual GPU's.

TVM's CUDA runtime and boltgen's kernels load `libcuda.so.1` and `libcudart.so.13`. The first loaded
libraries with these names serve the whole process until it ends. So a process uses either a GPU or
the virtual GPU; a request for the other one is an error.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from boltgen.build.progress import Reporter
from boltgen.build.toolchain import find_nvcc
from boltgen.build.vgpu import vgpu_libraries
from boltgen.device import relay_libraries, vgpu
from boltgen.device.vgpu import Vgpu
from boltgen.errors import DeviceError, ToolchainError, VgpuError
from boltgen.intake.numerals import shown
from boltgen.settings import Settings, settings_from

# The virtual GPU's architecture if a caller names none.
DEFAULT_ARCH = "sm_80"

_DRIVER = "libcuda.so.1"
_MAPS = Path("/proc/self/maps")


class DeviceKind(Enum):
    """The kinds of devices that execute models."""

    VGPU = "vgpu"
    CUDA = "cuda"


def device_kind(name: str) -> DeviceKind:
    """Return the device kind with this name.

    Raises:
        DeviceError: no device kind has this name.
    """
    try:
        return DeviceKind(name)
    except ValueError:
        known = " and ".join(f"'{kind.value}'" for kind in DeviceKind)
        raise DeviceError(f"unknown device {name!r}; the devices are {known}") from None


@dataclass(frozen=True, slots=True)
class ActiveDevice:
    """The device of this process; `vgpu` controls the virtual GPU, and is None for a GPU."""

    kind: DeviceKind
    vgpu: Vgpu | None = None

    def last_error(self) -> str:
        """Return the virtual GPU's last fault; empty if there was none."""
        return self.vgpu.last_error() if self.vgpu else ""


def activate(
    device: str,
    *,
    arch: str = DEFAULT_ARCH,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
) -> ActiveDevice:
    """Make `device` ("vgpu" or "cuda") the device of this process, and let TVM use it.

    `arch` is the architecture that the virtual GPU imitates; a GPU ignores it.

    Raises:
        DeviceError: the process already uses the other device, there is no GPU, BOLTGEN_VGPU has an
            unknown option, or a CUDA library is missing.
        ToolchainError: the virtual GPU cannot be built.
    """
    kind = device_kind(device)
    chosen = settings or settings_from()
    match kind:
        case DeviceKind.VGPU:
            folder = vgpu_libraries(chosen, reporter=reporter)
            _refuse_other_driver(kind, folder)
            _check_vgpu_options(folder, chosen.vgpu_options)
            active = ActiveDevice(kind, _load_vgpu(folder, arch))
        case DeviceKind.CUDA:
            _refuse_other_driver(kind, None)
            _load_gpu_driver()
            _load_gpu_runtime(chosen)
            active = ActiveDevice(kind)
    _load_tvm_cuda_runtime()
    return active


def provide_cuda_runtime(settings: Settings, reporter: Reporter | None = None) -> None:
    """Let TVM generate CUDA modules, with the machine's driver or else the virtual GPU's.

    Neither executes anything. Without a driver TVM would put CUDA source into the library, which
    would be compiled on each machine that runs it.
    """
    if loaded_driver() is None:
        try:
            ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
        except OSError:
            activate(DeviceKind.VGPU.value, settings=settings, reporter=reporter)
            return
    _load_gpu_runtime(settings)
    _load_tvm_cuda_runtime()


def loaded_driver() -> Path | None:
    """Return the file of the CUDA driver in this process, or None if none is loaded."""
    for line in _MAPS.read_text().splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith("libcuda.so"):
            return Path("/" + path)
    return None


def _check_vgpu_options(folder: Path, text: str) -> None:
    """Raise DeviceError for a mistyped option in BOLTGEN_VGPU, which the library would ignore."""
    try:
        vgpu.check_options(folder, text)
    except VgpuError as error:
        raise DeviceError(
            f"BOLTGEN_VGPU={shown(text)}: {error}; correct it, or unset it"
        ) from error


def _load_vgpu(folder: Path, arch: str) -> Vgpu:
    try:
        return vgpu.load(folder, arch, runtimes=(*vgpu.RUNTIMES, *relay_libraries.runtimes()))
    except RuntimeError as error:  # another CUDA runtime is in the process
        raise DeviceError(str(error)) from error


def _refuse_other_driver(kind: DeviceKind, folder: Path | None) -> None:
    loaded = loaded_driver()
    if loaded is None:
        return
    is_vgpu = (loaded.parent / "libvgpu.so").exists()
    if kind is DeviceKind.VGPU and loaded.parent != folder:
        raise DeviceError(
            f"this process already uses the driver {loaded}, so it cannot use the virtual GPU: "
            "use device 'vgpu' in a process of its own (`boltgen run`), or activate it before "
            "TVM is imported"
        )
    if kind is DeviceKind.CUDA and is_vgpu:
        raise DeviceError(
            "this process already uses the virtual GPU, so it cannot use a GPU: use device 'cuda' "
            "in a process of its own (`boltgen run`)"
        )


def _load_gpu_driver() -> None:
    remedy = "install NVIDIA's driver, or use the virtual GPU: device 'vgpu'"
    try:
        driver = ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceError(f"no GPU: {_DRIVER} cannot be loaded ({error}); {remedy}") from error
    count = ctypes.c_int()
    for status in (driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))):
        if status:
            text = ctypes.c_char_p()
            driver.cuGetErrorString(status, ctypes.byref(text))
            said = (text.value or b"unknown error").decode()
            raise DeviceError(f"no GPU: the driver reports {said} ({status}); {remedy}")
    if not count.value:
        raise DeviceError(f"no GPU: the driver knows none; {remedy}")


def _load_gpu_runtime(settings: Settings) -> None:
    """Load `libcudart.so.13` by the linker's search, else from PyPI's wheel beside nvcc."""
    if "libcudart.so.13" in _MAPS.read_text():
        return
    try:
        ctypes.CDLL("libcudart.so.13", ctypes.RTLD_GLOBAL)
    except OSError:
        try:
            ctypes.CDLL(str(find_nvcc(settings).runtime), ctypes.RTLD_GLOBAL)
        except (OSError, ToolchainError) as error:
            raise DeviceError(
                f"no CUDA runtime: libcudart.so.13 cannot be loaded ({error}); "
                "`pip install nvidia-cuda-runtime`"
            ) from error


def _load_tvm_cuda_runtime() -> None:
    """Load TVM's CUDA runtime, which TVM silently omits if it finds no driver."""
    if relay_libraries.is_needed():
        relay_libraries.load()
        return
    if "tvm" not in sys.modules:
        return  # its import will load it
    import tvm_ffi  # noqa: PLC0415

    if tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return
    spec = importlib.util.find_spec("tvm")
    if spec is None or spec.origin is None:
        raise DeviceError("TVM is not installed: `pip install apache-tvm`")
    library = Path(spec.origin).parent / "lib" / "libtvm_runtime_cuda.so"
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceError(f"TVM's CUDA runtime cannot be loaded: {error}") from error
