"""A translation unit, and the kinds of units that boltgen compiles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from boltgen.arch import ARCHES
from boltgen.build.nvcc.headers import included_digest, kernel_headers_digest, lean_folders
from boltgen.build.toolchain import Toolchain, require_nvcc_for
from boltgen.codegen.nvcc import DeviceCode, device_flags, kernel_flags
from boltgen.families.source import KernelSource
from boltgen.ir.key import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationUnit:
    """A source text with its kind, compiler and flags.

    `flags` determine the output and are part of the key. The `include` folders and the compiler's
    path are not, because `identity` names the versions of their contents. `kind` is the folder in
    the cache and the name in progress reports. `about` is stored beside the output as `about.json`.
    """

    kind: str
    name: str
    text: str
    suffix: str
    output: str
    compiler: Path
    flags: tuple[str, ...]
    include: tuple[Path, ...]
    machine_flags: tuple[str, ...] = ()
    identity: str
    environment: tuple[tuple[str, str], ...]
    about: str = ""

    @property
    def key(self) -> str:
        """The identity of the output."""
        return digest(self.kind, self.text, self.suffix, self.flags, self.identity)

    @property
    def source_name(self) -> str:
        """The source's file name, which is short and safe in a shell for any `name`."""
        return safe_name(self.name) + self.suffix

    @property
    def command(self) -> tuple[str, ...]:
        """Return the compiler's command line, which runs in the folder of the source."""
        folders = tuple(f"-I{folder}" for folder in self.include)
        tail = (self.source_name, "-o", self.output)
        return (str(self.compiler), *self.flags, *self.machine_flags, *folders, *tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledObject:
    """A unit's output; `seconds` is 0 if it was in the cache."""

    unit: TranslationUnit
    path: Path
    source: Path
    log: Path
    cached: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFailure:
    """A compiler run that failed: its first error, its command, and the stored files."""

    unit: TranslationUnit
    error: str
    command: tuple[str, ...]
    source: Path
    log: Path

    @property
    def message(self) -> str:
        """The failure for people, in four lines."""
        return (
            f"{self.unit.compiler.name} failed on {self.unit.kind} {self.unit.name!r}: "
            f"{self.error}\n"
            f"  command: {' '.join(self.command)}\n"
            f"  source:  {self.source}\n"
            f"  log:     {self.log}"
        )


_LONGEST_NAME = 80


def safe_name(name: str) -> str:
    """Return a file name of letters, digits, `_`, `.` and `-` that resembles `name`.

    Names of a model's nodes may contain quotes, newlines or shell characters. Two names may become
    equal; a caller that must tell them apart adds a key.
    """
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_LONGEST_NAME].lstrip(".-")
    return kept or "unnamed"


# Makes ptxas report each kernel's resources (see `build.nvcc.usage`); the output stays the same.
_TELL_USAGE = ("-Xptxas=-v",)


def kernel_unit(
    source: KernelSource,
    tools: Toolchain,
    code: DeviceCode | None = None,
) -> TranslationUnit:
    """Return the unit that compiles a rendered kernel to an object.

    The object contains `code`, by default the toolchain's.

    Raises:
        ToolchainError: nvcc is too old for the kernel's architecture.
    """
    return object_unit(source.symbol, source.text, source.arch, tools, code)


def object_unit(
    symbol: str, text: str, arch: str, tools: Toolchain, code: DeviceCode | None = None
) -> TranslationUnit:
    """Return the unit that compiles the text of kernel `symbol`, as `kernel_unit` does.

    Raises:
        ToolchainError: nvcc is too old for `arch`.
    """
    _require(arch, tools)
    return TranslationUnit(
        kind="kernel",
        name=symbol,
        text=text,
        suffix=".cu",
        output="kernel.o",
        compiler=tools.nvcc.path,
        flags=kernel_flags(arch, code or tools.device_code),
        include=_kernel_includes(text, tools),
        machine_flags=(*_TELL_USAGE, "-ccbin", str(tools.cxx.path)),
        identity=with_kernel_headers(tools.cuda_identity, text, tools),
        environment=tools.environment,
    )


def library_unit(name: str, text: str, arch: str, about: str, tools: Toolchain) -> TranslationUnit:
    """Return the unit that compiles kernels of a library to a shared library for a worker.

    One machine may compile it and another use it, so its identity names no host compiler.

    Raises:
        ToolchainError: nvcc is too old for `arch`.
    """
    _require(arch, tools)
    runtime = tools.nvcc.runtime
    return TranslationUnit(
        kind="library",
        name=name,
        text=text,
        suffix=".cu",
        output="kernels.so",
        compiler=tools.nvcc.path,
        flags=(
            "-shared",
            *device_flags(arch, tools.device_code),
            "-cudart=none",
            "-Xcompiler=-fPIC",
        ),
        include=_kernel_includes(text, tools),
        machine_flags=(
            *_TELL_USAGE,
            *("-ccbin", str(tools.cxx.path)),
            # --no-as-needed keeps the CUDA runtime, which stands before the objects that need it.
            *("-Xlinker=--no-as-needed", f"-L{runtime.parent}", f"-l:{runtime.name}"),
        ),
        identity=with_kernel_headers(tools.device_identity, text, tools),
        environment=tools.environment,
        about=about,
    )


def adapter_unit(name: str, text: str, tools: Toolchain) -> TranslationUnit:
    """Return the unit that compiles an adapter, the TVM functions of regions, to an object."""
    return TranslationUnit(
        kind="adapter",
        name=name,
        text=text,
        suffix=".cc",
        output="adapter.o",
        compiler=tools.cxx.path,
        # -O1: the code only passes arguments on, and delays every first compilation.
        flags=("-c", "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden"),
        include=(
            tools.templates,
            *((tools.tvm_ffi.include,) if tools.tvm_ffi else ()),
            tools.nvcc.include,
        ),
        identity=f"{tools.host_identity}; headers {included_digest(text, tools.templates)}",
        environment=tools.environment,
    )


def _kernel_includes(text: str, tools: Toolchain) -> tuple[Path, ...]:
    return (*lean_folders(text, tools.templates), tools.templates, tools.cutlass.include)


def with_kernel_headers(identity: str, text: str, tools: Toolchain) -> str:
    """Extend `identity` by the contents of boltgen's headers that the kernels in `text` need."""
    return f"{identity}; headers {kernel_headers_digest(text, tools.templates)}"


def fatbin_unit(name: str, text: str, arch: str, tools: Toolchain) -> TranslationUnit:
    """Return the unit that compiles TVM's CUDA source to a fat binary for the driver.

    Raises:
        ToolchainError: nvcc is too old for `arch`.
    """
    _require(arch, tools)
    return TranslationUnit(
        kind="fatbin",
        name=name,
        text=text,
        suffix=".cu",
        output="device.fatbin",
        compiler=tools.nvcc.path,
        flags=("--fatbin", *device_flags(arch, tools.device_code)),
        include=(),
        machine_flags=("-ccbin", str(tools.cxx.path)),
        identity=tools.cuda_identity,
        environment=tools.environment,
    )


def _require(arch: str, tools: Toolchain) -> None:
    # TVM's users may compile for architectures without a row; nvcc itself rejects unknown ones.
    if arch in ARCHES:
        require_nvcc_for(ARCHES[arch], tools.nvcc)
