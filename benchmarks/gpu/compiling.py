"""Compiles kernels on the GPU's machine, where nvcc is: those that a bundle has the sources of.

Arrow: a bundle's sources -> shared libraries beside the results, which later runs find again.
"""

from __future__ import annotations

import ctypes
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.items import SOURCE, SOURCE_HEADERS
from boltgen.build.children import Children
from boltgen.codegen.nvcc import DeviceCode, device_flags

# Of a run's time: what is compiled goes on being of use, what is not measured is nothing.
SHARE = 0.25
# The runtime that the bundle has, and what nvcc's host code expects.
_RELEASE, _RUNTIME = 13, "libcudart.so.13"
_LONGEST_ERROR = 1000
# Whether nvcc finds a compiler for the host that it likes, and its output a runtime.
_PROBE = '__global__ void kernel() {}\nextern "C" void probe() { kernel<<<1, 1>>>(); }\n'


class NoCompilerError(Exception):
    """There is no nvcc that could be used; the message says why."""


class OutOfShareError(Exception):
    """Compiling has had its share of the time."""


def find_nvcc() -> Path:
    """The compiler on PATH.

    Raises:
        NoCompilerError: there is none, or it is of another release than the bundle's runtime.
    """
    found = shutil.which("nvcc")
    if found is None:
        raise NoCompilerError("no nvcc on PATH")
    try:
        command = [found, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise NoCompilerError(f"{found} cannot be started ({error.strerror})") from error
    release = re.search(r"release (\d+)\.(\d+)", said)
    if release is None or int(release[1]) != _RELEASE:
        shown = release[0] if release else "of no known release"
        raise NoCompilerError(f"{found} is {shown}; release {_RELEASE} is wanted")
    return Path(found)


@dataclass(slots=True)
class SourceCompiler:
    """nvcc with the bundle's sources; `left_s` is what it may still take, `folder` for its output.

    `errors` says of each source that does not compile why.
    """

    bundle: Path
    nvcc: Path
    arch: str
    folder: Path
    left_s: float
    errors: dict[str, str] = field(default_factory=dict)

    def library(self, source: str) -> Path:
        """Where the kernels of a source are when they are compiled."""
        return self.folder / (Path(source).name.removesuffix(SOURCE) + ".so")

    def try_out(self) -> None:
        """Compile a kernel that does nothing, and load it.

        Raises:
            NoCompilerError: that fails; so would all others, which are not to count as tried.
        """
        text, library = self.folder / "probe.cu", self.folder / "probe.so"
        log = text.with_suffix(".log")
        if not library.is_file():
            text.write_text(_PROBE)
            command = self._command(text.name, "probe.tmp", self.folder)
            environment = dict(os.environ)
            if Children().run(command, folder=self.folder, environment=environment, log=log):
                said = log.read_text(errors="replace").strip()[-_LONGEST_ERROR:]
                raise NoCompilerError(f"{self.nvcc} compiles nothing here ({said})")
            (self.folder / "probe.tmp").replace(library)
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            raise NoCompilerError(
                f"what {self.nvcc} compiles cannot be loaded ({error})"
            ) from error

    def compile(self, sources: Iterable[str]) -> None:
        """Compile what is missing of `sources` on all cores.

        Raises:
            OutOfShareError: there was not enough time for all of them; what is done is kept.
        """
        missing = [
            source
            for source in dict.fromkeys(sources)
            if not self.library(source).is_file() and source not in self.errors
        ]
        if not missing:
            return
        started = time.monotonic()
        headers = self._headers()
        children = Children()
        alarm = threading.Timer(max(self.left_s, 0.0), children.stop)
        alarm.start()
        try:
            with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
                for _ in pool.map(lambda source: self._compile(source, headers, children), missing):
                    pass
        finally:
            alarm.cancel()
            self.left_s -= time.monotonic() - started
        if children.stopped:
            raise OutOfShareError(f"compiling has had its share of the time ({SHARE:.0%})")

    def _headers(self) -> Path:
        """boltgen's and CUTLASS's headers, unpacked once."""
        folder = self.folder / "include"
        if not folder.is_dir():
            staged = self.folder / f"include-{os.getpid()}"
            staged.mkdir()
            with tarfile.open(self.bundle / SOURCE_HEADERS) as archive:
                for member in archive:
                    file, content = staged / member.name, archive.extractfile(member)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content.read() if content else b"")
            staged.rename(folder)
        return folder

    def _compile(self, source: str, headers: Path, children: Children) -> None:
        if children.stopped:
            return
        output = self.library(source)
        text, staged = output.with_suffix(".cu"), output.with_suffix(".tmp")
        text.write_bytes(lzma.decompress((self.bundle / source).read_bytes()))
        command = self._command(text.name, staged.name, headers)
        log = output.with_suffix(".log")
        status = children.run(command, folder=self.folder, environment=dict(os.environ), log=log)
        if status == 0:
            staged.replace(output)
        elif not children.stopped:
            self.errors[source] = log.read_text(errors="replace")[-_LONGEST_ERROR:]

    def _command(self, text: str, output: str, headers: Path) -> tuple[str, ...]:
        return (
            *(str(self.nvcc), "-shared", *device_flags(self.arch, DeviceCode.SASS_AND_PTX)),
            *("-cudart=none", "-Xcompiler=-fPIC", f"-I{headers}", text, "-o", output),
            *("-Xlinker=--no-as-needed", f"-L{self.bundle}", f"-l:{_RUNTIME}"),
        )
