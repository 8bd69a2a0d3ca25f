"""Compilers that are shell scripts: a build in milliseconds, that fails as it is told to."""

from __future__ import annotations

import os
from pathlib import Path

from boltgen.build.toolchain import Headers, HostCompiler, Nvcc, Toolchain, find_templates
from boltgen.build.unit import TranslationUnit

# The output's name is the last argument of every command line.
SUCCEED = 'for last; do :; done; cat *.cu > "$last"'
FAIL = """echo 'warning: unimportant'
echo 'k.cu(7): error: identifier "x" is undefined' >&2
echo 'k.cu(9): error: expected a ";"' >&2
exit 2"""


def write_script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def write_toolkit(top: Path, body: str = SUCCEED, version: str = "13.0.88") -> Path:
    """A toolkit's folder with an nvcc that answers questions and else runs `body`; its nvcc."""
    for name in ("include/cuda_runtime.h", "include/crt/host_config.h", "nvvm/bin/cicc"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    (top / "lib").mkdir(exist_ok=True)
    (top / "lib" / f"libcudart.so.{version.partition('.')[0]}").touch()
    questions = (
        'case "$1" in\n'
        f"--version) echo 'Cuda compilation tools, release 13.0, V{version}'; exit 0;;\n"
        f"--dryrun) echo '#$ TOP={top}/bin/..' >&2; exit 0;;\n"
        "esac\n"
    )
    return write_script(top / "bin" / "nvcc", questions + body)


def fake_toolchain(top: Path, body: str = SUCCEED) -> Toolchain:
    nvcc = write_toolkit(top, body)
    headers = Headers(include=top / "include", version="1")
    return Toolchain(
        nvcc=Nvcc(
            path=nvcc,
            origin="a test",
            version=(13, 0, 88),
            top=top,
            include=top / "include",
            runtime=top / "lib" / "libcudart.so.13",
        ),
        cxx=HostCompiler(path=Path("/usr/bin/g++"), version="g++ 12"),
        cutlass=headers,
        tvm_ffi=headers,
        templates=find_templates(),
        environment=(("PATH", os.environ["PATH"]),),
    )


def fake_unit(tools: Toolchain, name: str = "k", text: str = "kernel") -> TranslationUnit:
    return TranslationUnit(
        kind="kernel",
        name=name,
        text=text,
        suffix=".cu",
        output="kernel.o",
        compiler=tools.nvcc.path,
        flags=("-c",),
        include=(),
        identity=tools.cuda_identity,
        environment=tools.environment,
    )
