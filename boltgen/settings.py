"""The settings from the environment: the only module that reads environment variables.

BOLTGEN_CACHE_DIR   folder for compiled kernels; default: the user's cache folder
BOLTGEN_DATA_DIR    folder for measurements; default: the user's data folder
BOLTGEN_JOBS        compilers that run at once, 1 to 4096; default: the processor cores available
BOLTGEN_DEVICE_CODE  machine code in kernels: "sass+ptx" (default), or "ptx", which compiles three
                    times as fast and is all that the virtual GPU needs; a GPU's driver compiles
                    such kernels when they are loaded, and nothing audits the machine code
BOLTGEN_LIBRARIES   folders of compiled kernels, with a colon between them, that `compile` copies
                    objects from (`boltgen library export`); they are only read; default: none
BOLTGEN_VERIFY_GRAPHS  1: check the graph of a model between all passes, as `compile --trace` does;
                    default: 0
CUDA_HOME           a CUDA toolkit; used where PyPI's wheels hold no nvcc (also: CUDA_PATH)
CXX                 the host compiler; default: g++
PATH                where nvcc, g++ and make are looked for last
BOLTGEN_TRUSTED_KEYS  public keys, PEM files with a colon between them: a compiled model that none
                    of them has signed is not loaded; default: no signature is asked for
OTEL_...            OpenTelemetry's: where the server's traces go; default: nowhere
BOLTGEN_VGPU        options of the virtual GPU (vgpu/README.md), for the programs it runs
BOLTGEN_VGPU_ISAS   instruction sets that the virtual GPU is compiled for, with spaces between them:
                    avx512, avx2, generic; default: the best one that this CPU has
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from boltgen.errors import BoltgenError
from boltgen.intake.numerals import MOST_JOBS, shown, whole_number

# They change what a compiler emits without being on its command line, so a cached object would not
# be what its key says.
_COMPILER_VARIABLES = (
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_CCBIN",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "MAKEFLAGS",
    "MFLAGS",
)


# Kinds of machine code: the values of `codegen.nvcc.DeviceCode`.
DEVICE_CODES = ("sass+ptx", "ptx")
_MOST_COLUMNS = 10_000
_OTLP = "OTEL_EXPORTER_OTLP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's choices.

    Compilers are started with `compiler_environment`: the user's environment without the variables
    that change a compiler's output, and with messages in English. `trace_protocol` is the protocol
    of traces, or None without a receiver.
    """

    cache_dir: Path
    data_dir: Path
    jobs: int
    cuda_home: Path | None
    cxx: str
    search_path: str
    compiler_environment: tuple[tuple[str, str], ...]
    device_code: str = DEVICE_CODES[0]
    libraries: tuple[Path, ...] = ()
    trusted_keys: tuple[Path, ...] = ()
    trace_protocol: str | None = None
    vgpu_isas: tuple[str, ...] = ()
    vgpu_options: str = ""

    def program_environment(
        self, *, preload: Sequence[Path], libraries: Path, vgpu_options: Mapping[str, str]
    ) -> dict[str, str]:
        """The environment of a program that is to run on the virtual GPU in `libraries`."""
        env = dict(os.environ)
        before = {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": (libraries,)}
        for name, paths in before.items():
            kept = (env[name],) if env.get(name) else ()
            env[name] = ":".join((*map(str, paths), *kept))
        # The last one of a name counts.
        named = ",".join(f"{name}={value}" for name, value in vgpu_options.items())
        env["BOLTGEN_VGPU"] = ",".join(filter(None, (env.get("BOLTGEN_VGPU"), named)))
        return env


def forget_odd_terminal_sizes() -> None:
    """Remove invalid terminal sizes from the environment: rich and typer trust them."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        try:
            whole_number(os.environ.get(name, "1"), 1, _MOST_COLUMNS)
        except ValueError:
            del os.environ[name]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _jobs(text: str | None) -> int:
    if text is None or not text.strip():
        return _cores()
    try:
        return whole_number(text, 1, MOST_JOBS)
    except ValueError as error:
        raise BoltgenError(
            f"BOLTGEN_JOBS={shown(text)} is not a number of jobs: {error}; unset it, or give one"
        ) from None


def _device_code(text: str | None) -> str:
    code = (text or "").strip() or DEVICE_CODES[0]
    if code not in DEVICE_CODES:
        raise BoltgenError(
            f"BOLTGEN_DEVICE_CODE={shown(code)} is no kind of machine code: unset it, or give "
            f"{' or '.join(DEVICE_CODES)}"
        )
    return code


def verifies_graphs() -> bool:
    """Whether graphs are checked between all passes.

    Raises:
        BoltgenError: BOLTGEN_VERIFY_GRAPHS is neither 0 nor 1.
    """
    text = os.environ.get("BOLTGEN_VERIFY_GRAPHS", "").strip() or "0"
    if text not in {"0", "1"}:
        raise BoltgenError(f"BOLTGEN_VERIFY_GRAPHS={shown(text)} is neither 0 nor 1: unset it")
    return text == "1"


def _folder(env: Mapping[str, str], variable: str, default: Callable[[], str]) -> Path:
    """The absolute folder that `variable` names, else the `default`."""
    text = env.get(variable) or ""
    try:
        return Path(text or default()).expanduser().absolute()
    except (OSError, RuntimeError) as error:
        # There is no such home, or the folder that we are in was removed.
        said = f"{variable}={shown(text)} names no folder" if text else "there is no default folder"
        raise BoltgenError(f"{said} ({error}): set {variable} to an absolute path") from error


def _paths(env: Mapping[str, str], variable: str) -> tuple[Path, ...]:
    return tuple(Path(name) for name in env.get(variable, "").split(os.pathsep) if name.strip())


def settings_from(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that `environment` (default: the process's own) asks for.

    Raises:
        BoltgenError: BOLTGEN_JOBS is no number of jobs, BOLTGEN_DEVICE_CODE no kind of machine
            code, or a folder's path has no meaning: there is no home folder, or no current one.
    """
    env = dict(os.environ if environment is None else environment)
    home = next((name for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)), None)
    kept = {k: v for k, v in env.items() if k not in _COMPILER_VARIABLES} | {"LC_ALL": "C"}
    return Settings(
        cache_dir=_folder(env, "BOLTGEN_CACHE_DIR", lambda: platformdirs.user_cache_dir("boltgen")),
        data_dir=_folder(env, "BOLTGEN_DATA_DIR", lambda: platformdirs.user_data_dir("boltgen")),
        jobs=_jobs(env.get("BOLTGEN_JOBS")),
        cuda_home=_folder(env, home, str) if home else None,
        cxx=env.get("CXX") or "g++",
        search_path=env.get("PATH") or os.defpath,
        compiler_environment=tuple(sorted(kept.items())),
        device_code=_device_code(env.get("BOLTGEN_DEVICE_CODE")),
        libraries=_paths(env, "BOLTGEN_LIBRARIES"),
        trusted_keys=_paths(env, "BOLTGEN_TRUSTED_KEYS"),
        trace_protocol=_trace_protocol(env),
        vgpu_isas=tuple(env.get("BOLTGEN_VGPU_ISAS", "").split()),
        vgpu_options=env.get("BOLTGEN_VGPU", ""),
    )


def _trace_protocol(env: Mapping[str, str]) -> str | None:
    """Source: OpenTelemetry's specification of the OTLP exporter's variables."""

    def said(name: str) -> str | None:
        return next(filter(None, map(env.get, (f"{_OTLP}_TRACES_{name}", f"{_OTLP}_{name}"))), None)

    if not said("ENDPOINT") or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return said("PROTOCOL") or "http/protobuf"
