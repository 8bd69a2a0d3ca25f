"""Find the compilers and headers that build kernels; give a reason for each unusable one.

nvcc is searched in PyPI's wheels, then CUDA_HOME, then PATH; the first usable one is taken.
`boltgen doctor` prints the rejected ones with reasons.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from boltgen.arch import Arch
from boltgen.codegen.nvcc import DeviceCode
from boltgen.errors import ToolchainError
from boltgen.installation import install_command
from boltgen.paths import resource_dir
from boltgen.settings import Settings

# CUTLASS 4.2 needs 11.4. Releases of the CUDA 12 line before this one are refused, because
# boltgen's kernels were never built with them.
OLDEST_NVCC = (12, 4)
# A major release removes architectures, and changes the host stubs that libraries link.
FIRST_UNKNOWN_NVCC = (14, 0)
# The release with which the test suite runs.
TESTED_NVCC = (13, 0)

_PROBE_SECONDS = 30


def _remedy() -> str:
    return (
        f"install boltgen with its dependencies (`{install_command()}` brings nvcc 13.0 from "
        "PyPI), or set CUDA_HOME to a toolkit, or put nvcc on PATH"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvcc:
    """A usable nvcc; `top` is its toolkit's folder, `origin` the place of the search."""

    path: Path
    origin: str
    version: tuple[int, int, int]
    top: Path
    include: Path
    runtime: Path

    @property
    def version_text(self) -> str:
        """The version as people write it: "13.0.88"."""
        return ".".join(map(str, self.version))

    def compiles_for(self, arch: Arch) -> bool:
        """Return whether this release knows the architecture."""
        return self.version[:2] >= arch.first_nvcc

    @property
    def note(self) -> str:
        """A note to the user about this release; may be empty."""
        if self.version[:2] == TESTED_NVCC:
            return ""
        return f"boltgen is tested with nvcc {TESTED_NVCC[0]}.{TESTED_NVCC[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A compiler that is missing or rejected, with the reason as a sentence for people."""

    origin: str
    path: Path | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCompiler:
    """The C++ compiler of host code; `version` is the first line of its version output."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A package of headers, with its folder and version."""

    include: Path
    version: str


Candidate: TypeAlias = Nvcc | Unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """All tools and headers that compile and link a kernel.

    `tvm_ffi` is None for TVM up to 0.19, which needs no such headers. `templates` is the folder of
    boltgen's headers; a unit's key covers the headers that it includes. `device_code` says whether
    kernels get SASS and PTX or PTX alone.
    """

    nvcc: Nvcc
    cxx: HostCompiler
    cutlass: Headers
    tvm_ffi: Headers | None
    templates: Path
    environment: tuple[tuple[str, str], ...]
    device_code: DeviceCode = DeviceCode.SASS_AND_PTX

    @property
    def cuda_identity(self) -> str:
        """The tools that determine nvcc's output, besides source, flags and boltgen's headers."""
        return f"nvcc {self.nvcc.version_text}; {self.cxx.version}; CUTLASS {self.cutlass.version}"

    @property
    def device_identity(self) -> str:
        """The tools that determine a kernel's device code, so without the host compiler."""
        return f"nvcc {self.nvcc.version_text}; CUTLASS {self.cutlass.version}"

    @property
    def host_identity(self) -> str:
        """The tools that determine the host compiler's output."""
        return (
            f"{self.cxx.version}; CUDA {self.nvcc.version_text}; "
            f"tvm-ffi {self.tvm_ffi.version if self.tvm_ffi else 'none'}"
        )


def find_toolchain(settings: Settings) -> Toolchain:
    """Return the first usable compilers and the headers of the installed packages.

    Raises:
        ToolchainError: a part is missing, too old or broken; the message names the part, the places
            of the search, and the remedy.
    """
    return Toolchain(
        nvcc=find_nvcc(settings),
        cxx=find_host_compiler(settings),
        cutlass=find_cutlass(),
        tvm_ffi=find_tvm_ffi() if _package_folder("tvm_ffi") else None,
        templates=find_templates(),
        environment=settings.compiler_environment,
        device_code=DeviceCode(settings.device_code),
    )


def find_nvcc(settings: Settings) -> Nvcc:
    """Return the first usable nvcc.

    Raises:
        ToolchainError: no nvcc is usable; the message lists each with the reason. Or there is no
            host compiler, which nvcc needs.
    """
    passed_over: list[Unusable] = []
    for candidate in nvcc_candidates(settings):
        if isinstance(candidate, Nvcc):
            return candidate
        passed_over.append(candidate)
    if any(each.path and each.path.is_file() for each in passed_over):
        # Without a host compiler nvcc cannot report its version, so this error comes first.
        find_host_compiler(settings)
    seen = "\n".join(
        f"  {c.origin}: {f'{c.path}: ' if c.path else ''}{c.reason}" for c in passed_over
    )
    raise ToolchainError(f"no usable nvcc:\n{seen}\nRemedy: {_remedy()}")


def require_nvcc_for(arch: Arch, nvcc: Nvcc) -> None:
    """Check that `nvcc` knows `arch`.

    Raises:
        ToolchainError: it is too old.
    """
    if not nvcc.compiles_for(arch):
        first = ".".join(map(str, arch.first_nvcc))
        raise ToolchainError(
            f"{nvcc.path} is of release {nvcc.version_text}, and {arch.name} needs {first} or "
            f"newer; {_remedy()}"
        )


def nvcc_candidates(settings: Settings) -> Iterator[Candidate]:
    """Yield each nvcc, or the reason against it, in order of preference; probe lazily."""
    env = dict(settings.compiler_environment)
    compiler = shutil.which(settings.cxx, path=settings.search_path)
    wheel = [top / "bin" / "nvcc" for top in _wheel_toolkits()]
    absent = "the wheel nvidia-cuda-nvcc is not installed"
    yield from _probe_all("PyPI wheel", wheel, absent, env, compiler)
    if settings.cuda_home is None:
        yield Unusable(origin="CUDA_HOME", path=None, reason="not set")
    else:
        at_home = settings.cuda_home / "bin" / "nvcc"
        yield from _probe_all("CUDA_HOME", [at_home], "no nvcc there", env, compiler)
    found = shutil.which("nvcc", path=settings.search_path)
    on_path = [Path(found)] if found else []
    yield from _probe_all("PATH", on_path, "no nvcc in its folders", env, compiler)


def _wheel_toolkits() -> list[Path]:
    """Toolkit folders (`nvidia/cu13`, ...) of the NVIDIA wheels, newest first."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    tops = [top for root in roots or () for top in Path(root).glob("cu[0-9]*") if top.is_dir()]
    return sorted(tops, key=lambda top: top.name, reverse=True)


def _probe_all(
    origin: str,
    paths: list[Path],
    absent: str,
    environment: dict[str, str],
    compiler: str | None,
) -> Iterator[Candidate]:
    existing = [path for path in paths if path.is_file()]
    if not existing:
        yield Unusable(origin=origin, path=paths[0] if paths else None, reason=absent)
    for path in existing:
        yield probe_nvcc(path, origin, environment, compiler)


def probe_nvcc(
    path: Path, origin: str, environment: dict[str, str], compiler: str | None = None
) -> Candidate:
    """Ask the nvcc at `path` for its version and toolkit, and check that the parts exist.

    nvcc gets the host `compiler` that kernels are compiled with; without it, nvcc uses gcc.
    """
    host = ("-ccbin", compiler) if compiler else ()

    def unusable(reason: str) -> Unusable:
        return Unusable(origin=origin, path=path, reason=reason)

    try:
        answer = _run([str(path), "--version"], environment)
        layout = _run([str(path), "--dryrun", *host, "-x", "cu", "-c", "/dev/null"], environment)
    except ToolchainError as error:
        return unusable(f"broken: {error}")
    match = re.search(r"V(\d+)\.(\d+)\.(\d+)", answer)
    if not match:
        return unusable(f"broken: `--version` says {answer.strip()[:80]!r}, which names no version")
    version = (int(match[1]), int(match[2]), int(match[3]))
    shown = ".".join(map(str, version))
    if version[:2] < OLDEST_NVCC:
        oldest = ".".join(map(str, OLDEST_NVCC))
        return unusable(f"too old: version {shown}; boltgen needs {oldest} or newer")
    if version[:2] >= FIRST_UNKNOWN_NVCC:
        return unusable(f"too new: version {shown}; boltgen knows releases before 14.0")
    top_match = re.search(r"^#\$ TOP=(.+)$", layout, re.MULTILINE)
    top = Path(top_match[1].strip()) if top_match else path.resolve().parent.parent
    top = top.resolve()
    include = _first([top / "include", *top.glob("targets/*/include")], "cuda_runtime.h")
    soname = f"libcudart.so.{version[0]}"
    library = _first([top / "lib", top / "lib64", *top.glob("targets/*/lib")], soname)
    if include is None:
        return unusable(f"incomplete: no cuda_runtime.h under {top} (wheel nvidia-cuda-runtime)")
    if library is None:
        return unusable(f"incomplete: no {soname} under {top} (wheel nvidia-cuda-runtime)")
    if not (include / "crt" / "host_config.h").is_file():
        return unusable(f"incomplete: no crt/host_config.h in {include} (wheel nvidia-cuda-crt)")
    if not (top / "nvvm" / "bin" / "cicc").is_file():
        return unusable(f"incomplete: no nvvm/bin/cicc under {top} (wheel nvidia-nvvm)")
    return Nvcc(
        path=path,
        origin=origin,
        version=version,
        top=top,
        include=include,
        runtime=library / soname,
    )


def _first(folders: list[Path], name: str) -> Path | None:
    return next((folder for folder in folders if (folder / name).exists()), None)


def _run(command: list[str], environment: dict[str, str]) -> str:
    """Run a short command; return its standard output and error."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"no answer within {_PROBE_SECONDS} s") from error
    output = done.stdout + done.stderr
    if done.returncode:
        raise ToolchainError(
            f"`{' '.join(command[1:])}` ends with status {done.returncode}: {output.strip()[:200]}"
        )
    return output


def find_host_compiler(settings: Settings) -> HostCompiler:
    """Return the C++ compiler in CXX, else g++.

    Raises:
        ToolchainError: the compiler does not exist or does not answer.
    """
    found = shutil.which(settings.cxx, path=settings.search_path)
    remedy = "install it (Debian and Ubuntu: `apt install g++`), or set CXX to a C++ compiler"
    if not found:
        raise ToolchainError(f"no host compiler: {settings.cxx!r} is not on PATH; {remedy}")
    try:
        answer = _run([found, "--version"], dict(settings.compiler_environment))
    except ToolchainError as error:
        raise ToolchainError(f"host compiler {found} is broken: {error}; {remedy}") from error
    return HostCompiler(path=Path(found), version=answer.partition("\n")[0].strip())


def find_cutlass() -> Headers:
    """Return CUTLASS's headers in the package nvidia-cutlass.

    Raises:
        ToolchainError: the package is not installed or has no headers.
    """
    package = _package_folder("cutlass_library")
    include = package / "source" / "include" if package else None
    if include is None or not (include / "cutlass" / "version.h").is_file():
        raise ToolchainError(
            "no CUTLASS headers: the package nvidia-cutlass is not installed or has none; "
            "Remedy: `pip install nvidia-cutlass==4.2.0.0`"
        )
    text = (include / "cutlass" / "version.h").read_text()
    parts = [
        re.search(rf"#define CUTLASS_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    return Headers(include=include, version=".".join(m[1] if m else "?" for m in parts))


def find_tvm_ffi() -> Headers:
    """Return the headers of TVM's foreign function interface, without importing the package.

    Raises:
        ToolchainError: the package is not installed.
    """
    package = _package_folder("tvm_ffi")
    include = package / "include" if package else None
    if include is None or not (include / "tvm" / "ffi" / "c_api.h").is_file():
        raise ToolchainError(
            "no TVM FFI headers: the package apache-tvm-ffi is not installed; "
            "Remedy: `pip install apache-tvm-ffi`"
        )
    import importlib.metadata  # noqa: PLC0415 (as long as many of boltgen's own modules)

    return Headers(include=include, version=importlib.metadata.version("apache-tvm-ffi"))


def find_templates() -> Path:
    """Return the folder of boltgen's own C++ headers."""
    return resource_dir("templates") / "include"


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None
