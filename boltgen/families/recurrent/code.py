"""Recurrent layers as text: the view of their template, and what people are told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.recurrent.traits import BLOCK, RecurrentTraits
from boltgen.families.space import Shape
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.recurrence import Cell

ARGUMENTS = "boltgen_recurrent_args"
HEADERS = ("boltgen/activations.h", "boltgen/recurrent.h")
# The enumerators of boltgen::Cell.
_CELLS = {
    Cell.LSTM: "kLstm",
    Cell.GRU: "kGru",
    Cell.GRU_RESET_FIRST: "kGruResetFirst",
    Cell.RNN_TANH: "kRnnTanh",
    Cell.RNN_RELU: "kRnnRelu",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentView:
    """One recurrent layer."""

    TEMPLATE: ClassVar[str] = "recurrent.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    cell: str
    element: str
    element_d: str
    instruction: str
    hidden: int
    units: int
    warps: int
    slices: int
    resident: str
    vector: int
    whole_vectors: str


def stem(spec: KernelSpec) -> str:
    """Return a name for people, `lstm_sm80_h128_w16_resident`."""
    config, traits = _parts(spec)
    where = "resident" if config.resident else "streamed"
    units = f"_u{config.units}_s{config.slices}" if config.is_shared else ""
    return (
        f"{traits.cell.value}_{spec.arch.replace('_', '')}_h{traits.hidden}"
        f"_w{warps_of(traits.hidden, config)}{units}_{where}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Describe what the kernel computes and how: texts by their labels, for `boltgen inspect`."""
    config, traits = _parts(spec)
    operands, result = traits.in_dtype.value, traits.out_dtype.value
    weights = "weights in registers" if config.resident else "weights read in each step"
    if config.is_shared:
        weights += f", {config.units} hidden units, states exchanged in each step"
    if config.slices > 1:
        weights += f", K shared by {config.slices} warps"
    rows = "" if traits.whole_vectors else " or fewer"
    return {
        "Problem": f"all steps of {traits.cell.value}, {traits.hidden} hidden units{rows}; "
        f"{operands} to {result}, sums and cell states in float32",
        "Epilogue": traits.epilogue.formula,
        "Alignment": f"{traits.vector} elements",
        "Config": f"16 rows of a threadblock, {warps_of(traits.hidden, config)} warps of "
        f"{8 * config.groups} hidden units, {weights}, instruction {_instruction(spec)}",
        "Arch": spec.arch,
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> RecurrentView:
    """The variables of the kernel's template."""
    config, traits = _parts(spec)
    return RecurrentView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        epilogue=emit_epilogue(traits.epilogue),
        cell=_CELLS[traits.cell],
        element=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        instruction=_instruction(spec).cutlass,
        hidden=padded(traits.hidden, config),
        units=config.units or traits.hidden,
        slices=config.slices,
        warps=warps_of(traits.hidden, config),
        resident="true" if config.resident else "false",
        vector=traits.vector,
        whole_vectors="true" if traits.whole_vectors else "false",
    )


def warps_of(hidden: int, config: RecurrentConfig) -> int:
    """The warps of a threadblock of a layer that has so many hidden units."""
    return (config.units or hidden) * config.slices // (8 * config.groups)


def padded(hidden: int, config: RecurrentConfig) -> int:
    """Hidden units up to whole blocks along K of each slice, and to whole threadblocks."""
    unit = max(BLOCK * config.slices, config.units)  # both are powers of two
    return -(-hidden // unit) * unit


def _instruction(spec: KernelSpec) -> Shape:
    return Shape(*arch_named(spec.arch).mma_shapes[0])


def _parts(spec: KernelSpec) -> tuple[RecurrentConfig, RecurrentTraits]:
    return spec.config, spec.traits
