"""TVM's hook: RunCodegen calls `relax.ext.boltgen` with every region of a module at once.

The regions are lowered and built, and come back as static libraries for TVM to link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from boltgen import pipeline
from boltgen.frontend.relax.patterns import lower_all

# Options of RunCodegen's target "boltgen". With OBJECTS and SYMBOLS the regions are built already.
ARCH = "arch"
OBJECTS = "objects"
SYMBOLS = "symbols"


def libraries(objects: Sequence[Path], symbols: Sequence[str]) -> list[tvm.runtime.Module]:
    """Modules that TVM links into the library it exports; the first one carries all symbols."""
    return [
        tvm.runtime.load_static_library(str(path), list(symbols) if not position else [])
        for position, path in enumerate(objects)
    ]


def generate(
    functions: Sequence[relax.Function],
    options: Mapping[str, Any],
    constant_names: Mapping[object, str],
) -> list[tvm.runtime.Module]:
    """What RunCodegen calls: `options` are its target options, `constant_names` is empty.

    Raises:
        BoltgenError: a region cannot be lowered, or its kernel cannot be chosen or compiled.
    """
    del constant_names  # weights are arguments, never part of a region
    if OBJECTS in options:
        objects = [Path(str(path)) for path in options[OBJECTS]]
        return libraries(objects, [str(symbol) for symbol in options[SYMBOLS]])
    # Nobody adds workspaces to the calls behind RunCodegen's back.
    unplanned = pipeline.PipelineOptions(planned_workspaces=False)
    built = pipeline.build_regions(lower_all(functions), str(options[ARCH]), unplanned)
    return libraries(built.objects, built.symbols)


def register() -> None:
    """Make the hook known to TVM; doing so again replaces it."""
    tvm_ffi.register_global_func("relax.ext.boltgen", generate, override=True)
