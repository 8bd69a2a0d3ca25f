"""Several models in one library for sm_80, run on the virtual GPU.

TVM's code for the host and nvcc's start take longer than a small model's kernels; together they
take that time once. Models with boltgen's kernels have a library each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from boltgen.arch import arch_named
from boltgen.artifact.metadata import DimensionInfo, TensorInfo
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.codegen.nvcc import DeviceCode
from boltgen.device.choose import activate
from boltgen.errors import BoltgenError
from boltgen.frontend import relax as frontend
from boltgen.pipeline import PipelineOptions, build_regions
from boltgen.running.inputs import check_inputs
from boltgen.settings import settings_from
from boltgen.tvm_build import relax_link as link
from boltgen.tvm_build.model import import_model, partition

Arrays: TypeAlias = "Sequence[np.ndarray[Any, Any]]"
ARCH = "sm_80"
# A function that TVM registers only for Python: a deployed library does not find it.
_PYTHON_ONLY = ("nonzero", "unique", "shape_to_tensor", "print", "assert_op")


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a model, and whether it computes in FP16 where its author has FP32."""

    outputs: Arrays
    has_fp16: bool


Outcome: TypeAlias = "Ran | Exception"


def results(models: Mapping[str, tuple[object, Arrays]]) -> dict[str, Outcome]:
    """Return the results of each model (a path or program, with inputs), or its exception."""
    settings = replace(settings_from(), device_code=DeviceCode.PTX.value)
    cache = Cache(settings.cache_dir)
    tools = find_toolchain(settings)
    options = PipelineOptions(settings=settings, toolchain=tools, cache=cache)
    for name in _PYTHON_ONLY:
        tvm_ffi.registry.remove_global_func(f"relax.run.{name}")
    found: dict[str, Outcome] = {}
    together: dict[str, tvm.IRModule] = {}
    same: dict[str, str] = {}
    known: dict[object, str] = {}
    for name, (source, inputs) in models.items():
        try:
            model = import_model(source, options)
            check_inputs(
                tuple(TensorInfo(name=x.name, shape=x.shape, dtype=x.dtype) for x in model.inputs),
                {x.name: array for x, array in zip(model.inputs, inputs, strict=True)},
                tuple(
                    DimensionInfo(name=name, low=low, high=high)
                    for name, (low, high) in model.dimensions.items()
                ),
            )
            partition(model, ARCH, options)
            plain = model.partitioned.module({})
            key = (tvm_ffi.structural_hash(plain), *(each.tobytes() for each in inputs))
            first = known.setdefault(key, name)
            if first != name:  # two operator sets may give one module
                same[name] = first
                continue
            built = build_regions(model.regions, ARCH, options)
            module = frontend.attach(
                model.partitioned, built.objects, built.symbols, built.plan.workspaces
            )
            if not model.regions:
                together[name] = module
                continue
            found[name] = _run(_built({name: module}, options), name, inputs, module)
        except Exception as error:
            found[name] = error
    found |= _run_all(together, {name: models[name][1] for name in together}, options)
    return found | {name: found[first] for name, first in same.items()}


def _run_all(
    modules: Mapping[str, tvm.IRModule], inputs: Mapping[str, Arrays], options: PipelineOptions
) -> dict[str, Outcome]:
    """Return the results of each module; halve modules that do not compile together."""
    if not modules:
        return {}
    names = list(modules)
    try:
        machine = _built(modules, options)
    except Exception as error:
        if len(names) == 1:
            return {names[0]: error}
        half = len(names) // 2
        parts = [{each: modules[each] for each in part} for part in (names[:half], names[half:])]
        return _run_all(parts[0], inputs, options) | _run_all(parts[1], inputs, options)
    found: dict[str, Outcome] = {}
    for name in names:
        try:
            found[name] = _run(machine, name, inputs[name], modules[name])
        except Exception as error:
            found[name] = error
    return found


def _run(machine: relax.VirtualMachine, name: str, inputs: Arrays, module: tvm.IRModule) -> Ran:
    given = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in inputs]
    result = machine[_entry(name)](*given)
    fields = list(result) if isinstance(result, (list, tuple, tvm.ir.Array)) else [result]
    text = module["main"].script()
    # A region may have FP16 inside and FP32 at its border.
    return Ran([field.numpy() for field in fields], "float16" in text or "call_dps_packed" in text)


def _built(modules: Mapping[str, tvm.IRModule], options: PipelineOptions) -> relax.VirtualMachine:
    assert options.toolchain is not None and options.cache is not None
    functions: dict[ir.GlobalVar, Any] = {}
    attributes: dict[str, Any] = {}
    for name, module in modules.items():
        functions |= _Renamed(module, name).functions()
        attributes |= dict(module.attrs.items()) if module.attrs else {}
    whole = tvm.IRModule(functions, attrs=ir.make_node("ir.DictAttrs", **attributes))
    executable, _ = link.build_library(whole, arch_named(ARCH), options.toolchain, options.cache)
    activate("vgpu", arch=ARCH)
    return relax.VirtualMachine(executable, tvm.cuda(0))


def _entry(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name) + "__main"


@relax.expr_functor.mutator
class _Renamed(relax.PyExprMutator):  # type: ignore[misc]
    """A module's functions under names that no other module has."""

    def __init__(self, module: tvm.IRModule, name: str) -> None:
        super().__init__(module)
        self._module = module
        prefix = _entry(name).removesuffix("main")
        self._names = {}
        for gvar in module.get_global_vars():
            self._names[gvar] = ir.GlobalVar(f"{prefix}{gvar.name_hint}")
            relax.expr._update_type(self._names[gvar], gvar.ty)

    def visit_global_var_(self, gvar: ir.GlobalVar) -> ir.GlobalVar:
        return self._names[gvar]

    def functions(self) -> dict[ir.GlobalVar, Any]:
        return {
            self._names[gvar]: self._renamed(function, self._names[gvar].name_hint)
            for gvar, function in self._module.functions_items()
        }

    def _renamed(self, function: Any, name: str) -> Any:
        if not isinstance(function, relax.Function):
            return function
        made = self.visit_expr(function)
        has_symbol = made.attrs and "global_symbol" in made.attrs
        return made.with_attr("global_symbol", name) if has_symbol else made


def said(error: Exception) -> tuple[str, str]:
    """The status of a model that raises: refused by name, or failed; and why."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or ["no message"]
    status = "refused" if isinstance(error, BoltgenError) else "failed"
    return status, f"{type(error).__name__}: {lines[-1] if status == 'failed' else lines[0]}"[:300]
