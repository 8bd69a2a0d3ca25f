"""The flags of nvcc for all generated kernels, defined only here."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from boltgen.arch import ARCHES


class DeviceCode(Enum):
    """The device code in a fat binary."""

    SASS_AND_PTX = "sass+ptx"  # a GPU runs the SASS, the virtual GPU the PTX
    PTX = "ptx"  # compiles three times as fast; enough for the virtual GPU


# `--no-compress`: the virtual GPU reads the PTX in the fat binary. `--expt-relaxed-constexpr`:
# CUTLASS calls constexpr host functions on the device.
LANGUAGE_FLAGS = ("-std=c++17", "-O3", "--no-compress", "--expt-relaxed-constexpr")

# An assertion of CUTLASS calls a function, and ptxas serialises every wgmma of a kernel that calls
# one (its message C7510). The second flag makes CUTLASS's kernels wait for the kernels before them,
# as `dependent_launch.h` demands. CUTLASS_ENABLE_GDC_FOR_SM90 would also let the next kernel start
# at the last tile, but stream-K's kernels do not compile with it (CUTLASS 4.2).
_WGMMA_FLAGS = ("-DNDEBUG", "-DCUTLASS_GDC_ENABLED")

# Flags of a single kernel: its object is linked into a shared library, which uses the process's
# CUDA runtime.
_OBJECT_FLAGS = ("-cudart=shared", "-Xcompiler=-fPIC")


def device_code_flag(arch: str, code: DeviceCode) -> tuple[str, str]:
    """Return nvcc's `-gencode` for `arch` ("sm_80")."""
    virtual = arch.replace("sm_", "compute_")
    real = f"[{arch},{virtual}]" if code is DeviceCode.SASS_AND_PTX else virtual
    return ("-gencode", f"arch={virtual},code={real}")


def every_device_flags(archs: Sequence[str]) -> tuple[str, ...]:
    """Return `-gencode` for SASS of all `archs`, and for PTX of the first one."""
    first, *rest = archs
    flags = [*device_code_flag(first, DeviceCode.SASS_AND_PTX)]
    for arch in rest:
        flags += ["-gencode", f"arch={arch.replace('sm_', 'compute_')},code={arch}"]
    return tuple(flags)


def device_flags(arch: str, code: DeviceCode) -> tuple[str, ...]:
    """Return the flags that determine device code."""
    # TVM's users may compile for architectures without a row, which have no kernels of boltgen.
    has_wgmma = arch in ARCHES and ARCHES[arch].cutlass_api >= 3
    return (
        *LANGUAGE_FLAGS,
        *(_WGMMA_FLAGS if has_wgmma else ()),
        *device_code_flag(arch, code),
    )


def kernel_flags(arch: str, code: DeviceCode) -> tuple[str, ...]:
    """Return all flags of a generated kernel except folders and the host compiler."""
    return ("-c", *device_flags(arch, code), *_OBJECT_FLAGS)


def kernel_command(arch: str, source: str) -> str:
    """Return the command that compiles a generated file; `$CUTLASS` is CUTLASS's header folder."""
    flags = " ".join(kernel_flags(arch, DeviceCode.SASS_AND_PTX))
    return f"nvcc {flags} -I templates/include -I $CUTLASS {source}"
