"""Import a torch.export program to a Relax module, with mends before TVM's importer.

TVM 0.27 writes every product with results in FP32 (`out_dtype="float32"` in its
`base_fx_graph_translator.py`) and everything else in the program's own types, so that a bias in
FP16 meets a product in FP32. A copy of the program is rewritten: a product's addend is widened,
and its result is cast back to the type that PyTorch gives it. A program in BF16 is widened to
FP32, in which each of its numbers is exact; how products are computed is the precision's affair.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import sym

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import first_line
from boltgen.frontend.onnx import Shapes, bind_extents, fix_shape, ranges_of
from boltgen.frontend.relax.equal_extents import ranges_of_formula
from boltgen.frontend.relax.symbols import (
    Ends,
    Ranges,
    extent_text,
    ranges_in,
    with_dimensions,
    with_ranges,
)
from boltgen.frontend.torch.archive import check_archive, register_operators
from boltgen.frontend.torch.attention import decompositions
from boltgen.frontend.torch.complex_numbers import refuse_complex_inputs, write_real
from boltgen.frontend.torch.compositions import compositions
from boltgen.frontend.torch.images import CONVERTERS as IMAGES
from boltgen.frontend.torch.images import compositions as resizes
from boltgen.frontend.torch.indices import converters
from boltgen.frontend.torch.module import quietly
from boltgen.frontend.torch.operators import CONVERTERS
from boltgen.frontend.torch.quantised import converters as quantisations
from boltgen.frontend.torch.quantised import kept_quantisations
from boltgen.frontend.torch.recurrent import CONVERTERS as RECURRENT
from boltgen.frontend.torch.recurrent import kept_operators
from boltgen.frontend.torch.reductions import CONVERTERS as REDUCTIONS
from boltgen.frontend.torch.types import (
    cast,
    drop_assertions,
    dtype_of,
    promote,
    type_products,
)
from boltgen.installation import install_command
from boltgen.ir.extent_text import formula_of, solve
from boltgen.passes.weights.checks import refuse_nan

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedProgram:
    """A Relax module whose `main` takes `inputs` and returns `outputs`, tensors in torch's order.

    `ranges` has the least and the greatest extent of each symbolic dimension, None if there is no
    greatest.
    """

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ranges: Mapping[str, tuple[int, int | None]]


def read_program(path: Path) -> Any:
    """Load the program that `torch.export.save` wrote; nothing in the file is run.

    Raises:
        ModelImportError: PyTorch is not installed, or the file is missing, no such program, or one
            that could run code.
    """
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise ModelImportError(
            f"reading a torch.export program needs PyTorch: {install_command('torch')}"
        ) from error
    if not path.is_file():
        raise ModelImportError(f"{path}: there is no such file")
    try:
        with quietly():
            check_archive(path)
            register_operators(path)
            program = torch.export.load(path)
    except ModelImportError:
        raise
    except Exception as error:  # torch raises whatever its unpickler met
        raise ModelImportError(
            f"{path}: not a program that torch.export.save wrote, or a truncated one "
            f"({path.stat().st_size} bytes). Save it again: torch.export.save(program, path)"
        ) from error
    program._guards_code = []  # source that torch would compile
    return program


def import_program(program: Any, *, allow_nonfinite: bool = False) -> ImportedProgram:
    """Import a `torch.export` program with its parameters as constants.

    Nested inputs and outputs are flattened in PyTorch's order; arguments that are no tensors are
    constants of the program, and no inputs of the module. Dimensions that the program leaves open
    stay symbolic.

    Raises:
        ModelImportError: TVM cannot import it, a parameter is NaN, or the program changes its own
            state when it runs.
    """
    from tvm.relax.frontend.torch import from_exported_program  # noqa: PLC0415

    if not allow_nonfinite:
        _check_parameters(program)
    refuse_complex_inputs(program)
    try:
        with quietly(), _views_as_reshapes(program):
            table = {**decompositions(), **compositions(), **resizes()}
            for kept in (*kept_operators(program), *kept_quantisations(program)):
                table.pop(kept, None)
            own = program.run_decompositions(table)
    except Exception as error:
        raise _failure(error) from error
    own._constants = dict(own.constants)  # the caller's program has the same dictionary
    _refuse_state(own.graph_signature)
    write_real(own)
    _drop_constants(own)
    _widen_bfloat16(own)
    for graph_module in _graph_modules(own):
        drop_assertions(graph_module.graph)
        promote(graph_module.graph)
        type_products(graph_module.graph)
    try:
        with quietly():
            module = from_exported_program(
                own,
                unwrap_unit_return_tuple=True,
                run_ep_decomposition=False,
                custom_convert_map={
                    **CONVERTERS,
                    **REDUCTIONS,
                    **IMAGES,
                    **RECURRENT,
                    **converters(own),
                    **quantisations(own),
                },
            )
    except Exception as error:
        raise _failure(error) from error
    signature = own.graph_signature
    module = with_ranges(module, _ranges_of_formulas(module, program))
    return ImportedProgram(
        module=module,
        inputs=tuple(signature.user_inputs),
        outputs=_distinct(signature.user_outputs),
        ranges=_ranges(module),
    )


def _failure(error: Exception) -> ModelImportError:
    return ModelImportError(f"TVM cannot import the torch.export program: {first_line(error)}")


def _check_parameters(program: Any) -> None:
    import torch  # noqa: PLC0415

    for name, tensor in program.state_dict.items():
        if tensor.device.type == "meta":
            raise ModelImportError(
                f"parameter {name!r} is on the device 'meta' and has no numbers: load the model's "
                "weights before it is exported"
            )
        if tensor.is_floating_point() or tensor.is_complex():
            own = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            array = own.detach().cpu().float().numpy()
            refuse_nan(f"parameter {name!r}", array)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return distinct names of results: a program may return one value in two places."""
    taken: list[str] = []
    for name in names:
        distinct, number = name, 1
        while distinct in taken:
            distinct, number = f"{name}_{number}", number + 1
        taken.append(distinct)
    return tuple(taken)


def _refuse_state(signature: Any) -> None:
    """Refuse a program that writes to its buffers or inputs: a compiled model keeps no state."""
    changed = {
        **dict.fromkeys(signature.buffers_to_mutate.values(), "buffer"),
        **dict.fromkeys(signature.parameters_to_mutate.values(), "parameter"),
        **dict.fromkeys(signature.user_inputs_to_mutate.values(), "input"),
    }
    if changed:
        name, role = next(iter(changed.items()))
        raise ModelImportError(
            f"the torch.export program changes its {role} {name!r} when it runs, and a compiled "
            "model keeps nothing between runs: export the module in eval mode "
            "(module.eval()), and give what it carries on as inputs and outputs"
        )


@contextmanager
def _views_as_reshapes(program: Any) -> Iterator[None]:
    """Turn PyTorch's views into reshapes for the `with` block: a decomposed value may have other
    strides.

    PyTorch's attention keeps the heads of a row side by side, so that `transpose` and `view` join
    them without a copy; attention by matmuls does not.
    """
    import torch  # noqa: PLC0415

    view, reshape = torch.ops.aten.view.default, torch.ops.aten.reshape.default
    modules = list(_graph_modules(program))
    nodes = [node for module in modules for node in module.graph.nodes if node.target is view]

    def becomes(target: Any) -> None:
        for node in nodes:
            node.target = target
        for module in modules:
            module.recompile()

    becomes(reshape)
    try:
        yield
    finally:
        becomes(view)


def _graph_modules(program: Any) -> list[Any]:
    """Return the program's graph, and the graphs of its branches and bodies."""
    import torch  # noqa: PLC0415

    modules = program.graph_module.modules()
    return [module for module in modules if isinstance(module, torch.fx.GraphModule)]


def _drop_constants(program: Any) -> None:
    """Drop arguments and results that are no tensors from the signature.

    torch.export has put the values that the arguments had into the program already.
    """
    from torch.export.graph_signature import TensorArgument  # noqa: PLC0415

    signature, graph = program.graph_signature, program.graph
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    for spec in list(signature.input_specs):
        if spec.kind.name == "USER_INPUT" and not isinstance(spec.arg, TensorArgument):
            if placeholders[spec.arg.name].users:
                raise ModelImportError(
                    f"input {spec.arg.name!r} of the torch.export program is no tensor, and is "
                    "computed with: make it a tensor, or a constant of the module"
                )
            graph.erase_node(placeholders[spec.arg.name])
            signature.input_specs.remove(spec)
    output = graph.output_node()
    pairs = list(zip(output.args[0], signature.output_specs, strict=True))
    kept = [(value, spec) for value, spec in pairs if isinstance(spec.arg, TensorArgument)]
    if not kept:
        raise ModelImportError("the torch.export program returns no tensor")
    output.args = (tuple(value for value, _ in kept),)
    signature.output_specs[:] = [spec for _, spec in kept]


def _widen_bfloat16(program: Any) -> None:
    """Compute in FP32 what the program computes in BF16; its inputs and outputs keep their types.

    Weights and inputs are widened exactly. Nothing in between is rounded to BF16 then, so results
    are at least as exact as the program's own.
    """
    import torch  # noqa: PLC0415

    for named in (program.state_dict, program.constants):
        for name, tensor in named.items():
            if isinstance(tensor, torch.Tensor):
                is_narrow = tensor.dtype is torch.bfloat16
                own = tensor.detach().cpu()
                named[name] = own.float() if is_narrow else own
    graphs = [module.graph for module in _graph_modules(program)]
    nodes = [node for graph in graphs for node in graph.nodes]
    if not any(dtype_of(node) is torch.bfloat16 for node in nodes):
        return
    _log.warning(
        "the torch.export program computes in BF16: it is widened to FP32, whose products are "
        "computed in the precision that is asked for, by default FP16; inputs and outputs stay BF16"
    )

    def widened(argument: Any) -> Any:
        return torch.float32 if argument is torch.bfloat16 else argument

    graph = program.graph
    narrow = {node for node in nodes if dtype_of(node) is torch.bfloat16}
    user_inputs = set(program.graph_signature.user_inputs)
    inputs = [node for node in graph.nodes if node in narrow and node.name in user_inputs]
    for node in nodes:
        node.args = torch.fx.node.map_aggregate(node.args, widened)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, widened)
        if node in narrow and node not in inputs:
            node.meta["val"] = node.meta["val"].float()
    output = graph.output_node()
    with graph.inserting_before(output):
        output.args = (
            tuple(
                cast(graph, value, torch.bfloat16) if value in narrow else value
                for value in output.args[0]
            ),
        )
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in inputs:
        with graph.inserting_before(first):
            wide = cast(graph, node, torch.float32)
        node.replace_all_uses_with(wide, delete_user_cb=lambda user, w=wide: user is not w)


def _ranges(module: tvm.IRModule) -> dict[str, tuple[int, int | None]]:
    attributes = dict((module["main"].attrs or {}).items())
    upper = attributes.get("tir_var_upper_bound", {})
    lower = attributes.get("tir_var_lower_bound", {})
    return {
        str(name): (int(least), int(upper[name]) if name in upper else None)
        for name, least in lower.items()
    }


def _ranges_of_formulas(module: tvm.IRModule, program: Any) -> Ranges:
    """Return the ranges of dimensions whose formulas, such as 2*h, are extents of inputs.

    torch.export takes the dimension of a formula for 2 or more, whatever its author says; the
    formula has the author's range.
    """
    alone = {e.name for each in module["main"].params for e in each.ty.shape if _is_alone(e)}
    known = {name: ends for name, ends in ranges_in(module["main"]).items() if name in alone}
    # A dimension of which nothing else is known is 1 or more.
    found: dict[str, Ends] = {}
    for expr in program.range_constraints:
        formula = formula_of(str(expr))
        if not formula.is_name:
            found |= {name: (1, None) for name in formula.names if name not in alone}
    for expr, ends in program.range_constraints.items():
        text = str(expr)
        formula = formula_of(text)
        if formula.is_name:
            continue
        low, high = (None if math.isinf(float(e)) else int(e) for e in (ends.lower, ends.upper))
        low = max(low or 1, 1)
        least = {name: known.get(name, (1, None))[0] for name in formula.names}
        if high is None and low <= formula.at(least):
            continue
        found |= ranges_of_formula(text, (low, high), text, known | found)
    return found


def _is_alone(extent: object) -> bool:
    return isinstance(extent, tvm.tirx.Var)


def with_shapes(program: ImportedProgram, shapes: Shapes) -> tvm.IRModule:
    """Return the module with the given shapes; every other dimension stays symbolic.

    Raises:
        ModelImportError: a shape names no input, does not fit the program, or is outside of the
            range that it was exported for.
    """
    declared = _declared(program.module, program.inputs)
    values, ranges = _of_dimensions(
        bind_extents(declared, shapes),
        ranges_of(declared, shapes),
        ranges_in(program.module["main"]),
    )
    ends = {**{name: (value,) for name, value in values.items()}, **ranges}
    for name, shape in shapes.items():
        fix_shape(name, declared[name], tuple(shape))
        for symbol in ends.keys() & set(declared[name]):
            for end in filter(None, ends[str(symbol)]):
                _check_range(name, str(symbol), end, program.ranges)
    module = with_ranges(with_dimensions(program.module, values), ranges)
    for name, bound in _declared(module, program.inputs).items():
        wanted = shapes.get(name, bound)
        if any(h != w for h, w in zip(bound, wanted, strict=True) if isinstance(w, int)):
            raise ModelImportError(
                f"the shape {tuple(wanted)} given for input {name!r} does not fit the program's "
                f"({', '.join(map(str, bound))})"
            )
    return module


def _of_dimensions(
    values: Mapping[str, int], ranges: Ranges, known: Ranges
) -> tuple[dict[str, int], Ranges]:
    """Return values and ranges of dimensions, from values and ranges of their formulas."""
    found = {name: value for name, value in values.items() if formula_of(name).is_name}
    solve(((formula_of(text), value) for text, value in values.items()), found)
    limits: dict[str, Ends] = {}
    for text, ends in ranges.items():
        limits |= ranges_of_formula(text, ends, text, {**known, **limits})
    return found, limits


def _declared(module: tvm.IRModule, names: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """Return the inputs' shapes; an extent that is computed from dimensions is their formula."""
    analyzer = sym.Analyzer()
    shapes = [map(analyzer.simplify, param.ty.shape) for param in module["main"].params]
    return {
        name: tuple(
            int(extent.value) if isinstance(extent, tvm.tirx.IntImm) else extent_text(extent)
            for extent in shape
        )
        for name, shape in zip(names, shapes, strict=True)
    }


def _check_range(
    name: str, symbol: str, value: int, ranges: Mapping[str, tuple[int, int | None]]
) -> None:
    least, most = ranges.get(symbol, (0, None))
    if value < least or (most is not None and value > most):
        raise ModelImportError(
            f"the extent {value} given for the dimension {symbol!r} of input {name!r} is outside "
            f"of the range that the program was exported for, {least} to "
            f"{'any' if most is None else most}: export it with another torch.export.Dim"
        )
