"""The host side of a library: each region as a TVM function that calls its kernel.

The host compiler compiles this C++ in a second or two, without CUTLASS. The text contains the
problem's sizes, checks every tensor against them at run time, and passes pointers to the kernel's C
entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from boltgen.codegen.adapter_memory import CallMemory, a_call, d_call
from boltgen.codegen.adapter_tensors import (
    Field,
    operand_fields,
    result_fields,
    result_name,
)
from boltgen.codegen.adapter_views import (
    b_call,
    b_rows,
    ends_call,
    further_calls,
    rows_call,
    tensor_shape,
    viewed_sizes,
)
from boltgen.codegen.cpp_text import comment_field, comment_lines, identifier, string_literal
from boltgen.codegen.render import render
from boltgen.codegen.views import (
    AdapterRegion,
    AdapterTable,
    AdapterView,
    ArgumentField,
    KernelDeclaration,
)
from boltgen.errors import InvalidProblemError
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import Symbol, symbolic
from boltgen.ir.kernel import Launch
from boltgen.problems.problem import describe, gathered
from boltgen.problems.region import Convention, Region
from boltgen.problems.workload import Workload

_HEADERS = {Convention.RELAX: "relax_adapter.h", Convention.RELAY: "relay_adapter.h"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The kernel's C symbol and the launch's arguments for the sizes in `cell`."""

    cell: Workload
    kernel: str
    launch: Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLaunch:
    """The kernels and launches of a region, for all of its sizes, in the order of its cells.

    `memory` has the layout transforms of A and D before and after the kernel, if TVM's form
    differs.

    Raises:
        InvalidProblemError: the region's symbol is no C++ identifier, or its kernels have different
            argument structs.
    """

    region: Region
    choices: tuple[Choice, ...]
    memory: CallMemory

    def __post_init__(self) -> None:
        identifier(self.region.symbol)
        structs = sorted({choice.launch.struct for choice in self.choices})
        if len(structs) != 1:
            raise InvalidProblemError(
                f"{self.region.symbol}: its kernels take {' and '.join(structs)}; kernels of "
                "one region take the same"
            )

    @property
    def struct(self) -> str:
        """The argument struct of all its kernels."""
        return self.choices[0].launch.struct

    @property
    def kernels(self) -> tuple[str, ...]:
        """The C symbols of its kernels, without repetitions."""
        return tuple(dict.fromkeys(choice.kernel for choice in self.choices))

    def fields(self, launch: Launch) -> Iterator[Field]:
        """Yield the fields of the argument struct, and their C++ values, for one launch."""
        region = self.region
        first, last = region.workload.first.problem, region.workload.last.problem
        for name, size in viewed_sizes(region, launch.sizes).items():
            yield name, str(size)
        yield "a", a_call(region, first)
        yield "d", d_call(region, last)
        for index, (roles, layer) in enumerate(
            zip(region.layers, region.workload.layers, strict=True)
        ):
            where = launch.of_layer(index)
            who = f"layer {index} " if region.workload.is_fused else ""
            b = b_call(roles, f"{who}B", layer.problem)
            if b is not None:
                yield f"{where}b", b
            ends = ends_call(roles, f"{who}ends", layer.problem)
            if ends is not None:
                yield f"{where}ends", ends
            rows = rows_call(roles, f"{who}rows of A", layer.problem)
            if rows is not None:
                yield f"{where}taken", rows
            for name, value in further_calls(roles, layer.problem):
                yield where + name, value
            for name, value in operand_fields(layer, roles.operands, who, region.heads):
                yield where + name, value
            for name, value in result_fields(layer, region.parameter_count + 1):
                yield where + name, value


def render_adapter(
    launches: Sequence[RegionLaunch],
    convention: Convention = Convention.RELAX,
    *,
    planned: bool = True,
) -> str:
    """Return the `.cc` file that exports every region's symbol as a function for TVM.

    Its arguments are the region's parameters in order, then the output and further results, then
    the workspace if the region needs one and it is `planned`, so that TVM passes it.

    Raises:
        InvalidProblemError: two regions have the same symbol.
    """
    symbols = [launch.region.symbol for launch in launches]
    repeated = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
    if repeated:
        raise InvalidProblemError(f"regions with one symbol: {', '.join(repeated)}")
    declarations = dict.fromkeys(
        KernelDeclaration(symbol=kernel, args_type=launch.struct)
        for launch in launches
        for kernel in launch.kernels
    )
    declarations |= dict.fromkeys(
        KernelDeclaration(symbol=planned_move.kernel, args_type="boltgen_move_args")
        for launch in launches
        for planned_move in launch.memory.moves
    )
    banner = [
        f"The TVM functions of {len(launches)} regions. Generated by boltgen.",
        "Sizes are those of the model; kernels take any that their alignments allow.",
    ]
    return render(
        AdapterView(
            banner=comment_lines(banner),
            header=_HEADERS[convention],
            kernels=tuple(declarations),
            regions=tuple(_region(launch, planned=planned) for launch in launches),
        )
    )


def _laid_out(value: str) -> str:
    """Return a right-hand side for the line of its `=`, or for the next line if it is long."""
    return f" {value}" if len(value) < 70 else f"\n      {value}"


def _region(launch: RegionLaunch, *, planned: bool) -> AdapterRegion:
    region, memory = launch.region, launch.memory
    comment = [*comment_field("Operators", region.label), *_comment(region)]
    for text in memory.describe():
        comment += comment_field("Move", text)
    parameters = [f"TensorView const& p{i}" for i in range(region.parameter_count)]
    parameters.append("TensorView const& output")
    further = region.workload.last.further
    parameters += [f"TensorView const& {result_name(i)}" for i in range(len(further))]
    if planned and memory.workspace_bytes:
        parameters.append("TensorView const& workspace")
    by_choice = [dict(launch.fields(choice.launch)) for choice in launch.choices]
    shared = {
        name: value
        for name, value in by_choice[0].items()
        if all(fields.get(name) == value for fields in by_choice)
    }
    own = sorted({name for fields in by_choice for name in fields if name not in shared})
    has_rows = len(launch.choices) > 1
    return AdapterRegion(
        symbol=region.symbol,
        label=string_literal(" ".join(region.label.split())),  # one line of a message
        comment=comment_lines(comment),
        parameters=",\n    ".join(parameters),
        extents=tuple(source.statement for source in symbol_sources(region)),
        args_type=launch.struct,
        fields=_fields(shared.items()),
        workspace=tuple(memory.statements(planned=planned)),
        kernel=launch.choices[0].kernel,
        table=_table(launch.choices, by_choice, own) if has_rows else None,
    )


def _fields(fields: Iterable[Field]) -> tuple[ArgumentField, ...]:
    return tuple(ArgumentField(name=name, value=_laid_out(value)) for name, value in fields)


def _table(
    choices: Sequence[Choice], by_choice: Sequence[Mapping[str, str]], own: Sequence[str]
) -> AdapterTable:
    """Return the rows by which a call chooses a kernel.

    A row has the greatest sizes of a choice, its kernel and its `own` fields.
    """
    rows = []
    for choice, fields in zip(choices, by_choice, strict=True):
        values = [fields.get(name, "0") for name in own]
        if not all(value.isdecimal() for value in values):
            raise InvalidProblemError(f"{choice.kernel}: the fields {values} are no numbers")
        ends = [str(symbol.high) for symbol in choice.cell.symbols]
        rows.append(", ".join([*ends, choice.kernel, *values]))
    symbols = [symbol.name for symbol in choices[0].cell.symbols]
    return AdapterTable(
        symbols=tuple(symbols),
        fields=tuple(own),
        rows=tuple(rows),
        is_beyond=" || ".join(f"{name} > row->{name}" for name in symbols),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolSource:
    """The tensor parameter whose shape gives a symbol's value in a call.

    The value is the dimension with `behind` dimensions after it, or, if `is_product`, the product
    of this dimension and all before it. The symbol is `times` this value if the tensor's rows
    contain `times` heads.
    """

    symbol: Symbol
    parameter: int
    role: str
    behind: int
    is_product: bool
    times: int = 1

    @property
    def statement(self) -> str:
        """The C++ statement that reads the symbol."""
        symbol, read = self.symbol, "rows" if self.is_product else "extent"
        times = f"{self.times} * " if self.times > 1 else ""
        low, high = symbol.low // self.times, symbol.high // self.times
        return (
            f'int64_t const {symbol.name} = {times}call.{read}("{symbol.name}", p{self.parameter}, '
            f'{self.parameter}, "{self.role}", {self.behind}, {low}, {high});'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSource:
    """The tensor parameter that gives the number of `rows` of D in a slice.

    It has one row of `columns` elements per slice.
    """

    symbol: Symbol
    parameter: int
    rows: int
    columns: int

    @property
    def statement(self) -> str:
        """The C++ statement that reads the symbol."""
        symbol = self.symbol
        return (
            f'int64_t const {symbol.name} = call.slice_rows("{symbol.name}", p{self.parameter}, '
            f'{self.parameter}, "rows of slices", {self.rows}, {self.columns}, {symbol.low}, '
            f"{symbol.high});"
        )


def symbol_sources(region: Region) -> Iterator[SymbolSource | SliceSource]:
    """Yield, for each symbol of a region, the first tensor that has the symbol in its shape.

    The order is A; per layer the gathered rows, the rows of positions and B; then rows of slices.

    Raises:
        InvalidProblemError: no tensor has the symbol.
    """
    first = region.workload.first.problem
    a_shape = region.a_stored.shape if region.a_stored else first.a_shape
    shapes = [(region.a, "A", *tensor_shape(region.a_view, first, first.matrix[0], a_shape))]
    for roles, layer in zip(region.layers, region.workload.layers, strict=True):
        problem = layer.problem
        taken = gathered(problem)
        if taken is not None and roles.rows is not None:
            shapes.append((roles.rows, "rows of A", (taken.rows,), 1))
        shapes += (
            (operand.parameter, "rows of positions", (problem.slice_rows, problem.matrix[1]), 1)
            for load, operand in zip(layer.loads, roles.operands, strict=True)
            if load.kind is LoadKind.POSITION_ROW
        )
        if roles.b is None:
            continue
        rows = b_rows(problem)
        shape = tensor_shape(roles.b_view, problem, rows, problem.b_shape, roles.b_group)
        shapes.append((roles.b, "B", *shape))
    for symbol in region.workload.symbols:
        extent = symbolic(symbol)
        found = (
            SymbolSource(
                symbol=symbol,
                parameter=parameter,
                role=role,
                behind=len(shape) - 1 - place,
                is_product=place == 0,
                times=heads if place == 0 else 1,
            )
            for parameter, role, shape, heads in shapes
            for place, each in enumerate(shape)
            if each == extent
        )
        source: SymbolSource | SliceSource | None = next(found, None)
        source = source or next(_slice_sources(region, symbol), None)
        if source is None:
            raise InvalidProblemError(
                f"{region.symbol}: no tensor has the extent {symbol.name} of "
                f"{region.workload.describe()}"
            )
        yield source


def _slice_sources(region: Region, symbol: Symbol) -> Iterator[SliceSource]:
    """Yield the operands that have a row for each slice, if the symbol is the rows of a slice."""
    for roles, layer in zip(region.layers, region.workload.layers, strict=True):
        m, n = layer.problem.matrix
        if layer.problem.slice_rows != symbolic(symbol):
            continue
        for load, operand in zip(layer.loads, roles.operands, strict=True):
            if load.kind is LoadKind.SLICE_ROW:
                yield SliceSource(
                    symbol=symbol,
                    parameter=operand.parameter,
                    rows=m,
                    columns=operand.view.columns if operand.view else n,
                )


def _comment(region: Region) -> Iterator[str]:
    """Yield the comment lines that describe the computation."""
    if not region.workload.is_fused:
        layer = region.workload.first
        yield from comment_field("Problem", describe(layer.problem))
        if not layer.prologue.is_identity:
            yield from comment_field("Prologue", layer.prologue.describe())
        yield from comment_field("Epilogue", layer.epilogue.formula)
        return
    for index, layer in enumerate(region.workload.layers):
        formula = f"D{index} = {layer.epilogue.describe()}"
        yield from comment_field(f"Layer {index}", f"{describe(layer.problem)}, {formula}")
