"""Builds what the plan needs, in its order, on the GPU machine: `run_gpu_suite.py` starts it.

Arrow: a bundle's sources to libraries, through boltgen's cache, with all cores. `worker` measures
meanwhile, and stops this process and its compilers where they would change what it measures.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.built import Built, Progress, State, fault_of, no_room
from benchmarks.gpu.items import ITEMS, KERNELS, PACKED, SOURCES, chosen, needs_of, read_items
from boltgen.arch import arch_named
from boltgen.bench.results import ResultsError
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.nvcc.children import Children
from boltgen.build.nvcc.ptx import kernel_content
from boltgen.build.profiler import profiler_library
from boltgen.build.toolchain import Toolchain, find_toolchain
from boltgen.build.unit import CompileFailure, library_unit
from boltgen.errors import BoltgenError
from boltgen.measure.lines import end_with_parent
from boltgen.settings import settings_from

# The profiler, among the kernels; and the folder of headers that CUTLASS's example 13 has.
PROFILER, EXAMPLE = "boltgen_profiler", "packages/cutlass_library/source/examples/13"
_MOST_SAID = 1000


@dataclass(slots=True)
class Builder:
    """Build the kernels of a bundle in a working folder."""

    bundle: Path
    work: Path
    manifest: Mapping[str, Any]
    tools: Toolchain
    cache: Cache
    jobs: int
    state: State = field(init=False)
    children: Children = field(default_factory=Children)
    sources: dict[str, dict[str, Any]] = field(init=False)
    carried: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(self.work)
        arch = self.manifest["arch"]
        packed = (self.bundle / SOURCES.format(arch=arch)).read_bytes()
        self.sources = json.loads(lzma.decompress(packed))
        self.carried = json.loads((self.bundle / KERNELS.format(arch=arch)).read_text())

    def build(self, symbol: str) -> None:
        """Build a kernel, unless it is built, and say what became of it."""
        if self.state.find(symbol):
            return
        try:
            built = self._profiler() if symbol == PROFILER else self._kernel(symbol)
        except BoltgenError as error:
            built = Built(error=str(error)[:_MOST_SAID])
        self.state.keep(symbol, built)

    def _profiler(self) -> Built:
        if PROFILER in self.carried:
            return Built(path=str(self._unpacked(self.carried[PROFILER])))
        path = profiler_library(
            self.tools, self.cache, jobs=self.jobs, only=arch_named(self.manifest["arch"])
        )
        return Built(path=str(path))

    def _kernel(self, symbol: str) -> Built:
        source = self.sources.get(symbol)
        if source and source["fault"]:
            return Built(error=source["fault"])
        if symbol in self.carried:
            path = self._unpacked(self.carried[symbol])
            toolchain = str(self.manifest["toolchain"])
        elif source is None:
            return Built(error="the bundle has neither a source of it nor a library")
        else:
            unit = library_unit(
                source["name"], source["text"], self.manifest["arch"], "", self.tools
            )
            unit = replace(unit, include=(*unit.include, self.work / EXAMPLE))
            outcome = compile_unit(unit, self.cache, self.children)
            if isinstance(outcome, CompileFailure):
                return Built(error=outcome.message[:_MOST_SAID])
            # CUTLASS's own programs are measured as they are.
            if source["is_ours"] and (fault := fault_of(outcome.path, symbol)):
                return Built(error=fault)
            path, toolchain = outcome.path, toolchain_text(self.tools)
        content = kernel_content(path, symbol) if source and source["is_recorded"] else ""
        return Built(path=str(path), content=content, toolchain=toolchain)

    def _unpacked(self, name: str) -> Path:
        """Decompress a file of the bundle."""
        return unpack(self.bundle / name, self.work / Path(name).name.removesuffix(PACKED))


def unpack(packed: Path, path: Path) -> Path:
    """Decompress a file, unless that was done before.

    Raises:
        ResultsError: there is no room for it.
    """
    if not path.is_file():
        staged = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(lzma.decompress(packed.read_bytes()))
            staged.replace(path)
        except OSError as error:
            raise no_room(path, error) from error
    return path


def build_all(builder: Builder, sections: str = "", only: str = "") -> None:
    """Build what the items need: what was carried is unpacked first; then the plan's order counts.

    Raises:
        ResultsError: the disk is full, or the bundle lacks a named section or item.
        CacheError: the cache cannot be used.
    """
    items = read_items(builder.bundle / ITEMS.format(arch=builder.manifest["arch"]))
    asked = chosen(items, sections, only)
    needed = dict.fromkeys([PROFILER, *(one for item in asked for one in needs_of(item))])
    symbols = sorted(needed, key=lambda symbol: symbol not in builder.carried)
    lock = threading.Lock()
    running, left = 0, len(symbols)

    def run(symbol: str) -> None:
        nonlocal running, left
        with lock:
            running += 1
            builder.state.tell(Progress(running=running, left=left))
        try:
            builder.build(symbol)
        finally:
            with lock:
                running, left = running - 1, left - 1
                builder.state.tell(Progress(running=running, left=left))

    with ThreadPoolExecutor(max_workers=builder.jobs) as pool:
        futures = [pool.submit(run, symbol) for symbol in symbols]
        try:
            for future in futures:
                future.result()
        except BaseException:
            builder.children.stop()
            for future in futures:
                future.cancel()
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=0, help="compilers at once; 0: all cores")
    parser.add_argument("--sections", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    # While this process is stopped the worker ends it, and its compilers with it.
    end_with_parent()
    state = State(options.work)
    manifest = json.loads((options.bundle / "manifest.json").read_text())
    try:
        settings = settings_from()
        builder = Builder(
            bundle=options.bundle,
            work=options.work,
            manifest=manifest,
            tools=find_toolchain(settings),
            cache=Cache(settings.cache_dir),
            jobs=options.jobs or settings.jobs,
        )
        state.tell(Progress(left=1))
        build_all(builder, options.sections, options.only)
    except (BoltgenError, ResultsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        state.tell(Progress(has_ended=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
