"""TVM's hook: `relay.build` calls `relay.ext.boltgen` with one region after the other.

The kernels of a whole module are built before, in parallel; the hook then only hands them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relay

from boltgen.frontend.relay.patterns import lower_all
from boltgen.ir.dtypes import DType
from boltgen.ir.key import canonical
from boltgen.ir.region import Convention
from boltgen.pipeline import BuiltRegions, PipelineOptions, build_regions

# A region's function says with these attributes how it is to be built.
ARCH = "boltgen_arch"
ACCUMULATE = "boltgen_accumulate"


@dataclass(frozen=True, slots=True)
class _Objects:
    """What one region is linked from: its adapter, and the archives of its kernel and moves."""

    adapter: Path
    archives: tuple[Path, ...]


# By architecture and region: what was built in this process.
_built: dict[str, _Objects] = {}


def _key(arch: str, region: object) -> str:
    return canonical((arch, region))


def remember(built: BuiltRegions) -> None:
    """Let the hook hand out these regions."""
    plan = built.plan
    symbols = [kernel.symbol for kernel in plan.kernels] + [move.symbol for move in plan.moves]
    archives = dict(zip(symbols, built.archives, strict=True))
    for launch, adapter in zip(plan.launches, built.adapters, strict=True):
        kernels = [plan.kernel_of(launch).symbol]
        kernels += [move.symbol for move in plan.moves_of(launch)]
        objects = _Objects(adapter, tuple(archives[symbol] for symbol in kernels))
        _built[_key(plan.arch, launch.region)] = objects


def module_of(symbol: str, objects: _Objects) -> tvm.runtime.Module:
    """The module that TVM links.

    Kernels are in archives: regions share them, and a linker takes each archive's member once,
    however often the archive is named.
    """
    module = tvm.runtime.load_static_library(str(objects.adapter), [symbol])
    for path in objects.archives:
        module.import_module(tvm.runtime.load_static_library(str(path), []))
    return module


def generate(function: relay.Function) -> tvm.runtime.Module:
    """What `relay.build` calls for each region.

    Raises:
        BoltgenError: the region cannot be lowered, or its kernel cannot be chosen or compiled.
    """
    module = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    (typed,) = (f for f in module.functions.values() if isinstance(f, relay.Function))
    (region,) = lower_all([typed.with_attr("global_symbol", function.attrs["global_symbol"])])
    arch = str(function.attrs[ARCH])
    accumulate = DType(str(function.attrs[ACCUMULATE]))
    key = _key(arch, region.accumulating_in(accumulate))
    if key not in _built:  # a module that another process has partitioned
        is_planned = isinstance(function.body, relay.Tuple)
        options = PipelineOptions(accumulate=accumulate, planned_workspaces=is_planned)
        remember(build_regions([region], arch, options, Convention.RELAY))
    return module_of(region.symbol, _built[key])


def _no_constants(function: relay.Function, symbol: str) -> dict[str, object]:
    """The constants of a region that TVM must keep: none, its kernel is generated with them.

    TVM would add them to the model's parameters, which its ahead-of-time executor then refuses.
    """
    del function, symbol
    return {}


def register() -> None:
    """Make the hooks known to TVM; doing so again replaces them."""
    tvm.register_func("relay.ext.boltgen", generate, override=True)
    tvm.register_func("relay.ext.boltgen.constant_updater", _no_constants, override=True)


def marked(function: relay.Function, arch: str, accumulate: DType) -> relay.Function:
    """A region that is to be built for `arch`, its products summed in `accumulate`."""
    marks = {ARCH: arch, ACCUMULATE: accumulate.value}
    for name, value in marks.items():
        function = function.with_attr(name, tvm.runtime.String(value))
    return function
