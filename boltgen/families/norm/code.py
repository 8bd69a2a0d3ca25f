"""Norms of rows as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.codegen.cpp_text import float_literal
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.norm.config import NormConfig
from boltgen.families.norm.traits import NormTraits
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.norm.problem import NormFunction

# The argument structs for rows of a matrix, and for images.
ARGUMENTS = ("boltgen_norm_args", "boltgen_image_norm_args")
HEADERS = ("boltgen/activations.h", "boltgen/norm.h")
# The enumerators of boltgen::NormFunction.
_FUNCTIONS = {
    NormFunction.LAYER: "kLayer",
    NormFunction.RMS: "kRms",
    NormFunction.SOFTMAX: "kSoftmax",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NormView:
    """One norm; `row_indices` is the type of the integers that gather A's rows, if any."""

    TEMPLATE: ClassVar[str] = "norm.cu.j2"

    symbol: str
    workspace_symbol: str
    prologue: EpilogueCode
    epilogue: EpilogueCode
    function: str
    epsilon: str
    element_a: str
    element_d: str
    vector: int
    threads: int
    vectors: int
    rows: int
    streamed: str
    layout: str
    args: str
    row_indices: tuple[str, ...]


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `layer_norm_sm80_4x32_v3_8`.

    If A's rows are gathered, `gathered_` precedes it.
    """
    config, traits = _parts(spec)
    taken = "" if traits.rows_dtype is None else "gathered_"
    function = "group_norm" if traits.groups_of_vector else traits.function.value
    vectors = f"{'s' if config.streamed else 'v'}{config.vectors}_{traits.vector}"
    return f"{taken}{function}_{spec.arch.replace('_', '')}_{config.tile}_{vectors}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    of = f"groups of images in NHWC, {traits.groups_of_vector} of a vector"
    of = of if traits.groups_of_vector else "rows"
    held = config.columns(traits.vector)
    limit = f"{held} columns at a time" if config.streamed else f"{held} columns at most"
    types = f"{traits.in_dtype.value} to {traits.out_dtype.value}, statistics in float32"
    epsilon = "" if traits.function is NormFunction.SOFTMAX else f", epsilon {traits.epsilon:g}"
    taken = "" if traits.rows_dtype is None else f" that {traits.rows_dtype.value} take of a matrix"
    described = {"Problem": f"{traits.function.value} of {of}{taken}{epsilon}; {types}"}
    if not traits.prologue.is_identity:
        described["Prologue"] = traits.prologue.describe()
    return described | {
        "Epilogue": traits.epilogue.formula,
        "Alignment": f"{traits.vector} elements",
        "Config": f"{config.rows} rows of a threadblock, {config.threads} threads of a row, "
        f"{config.vectors} vectors of a thread: {limit}",
        "Arch": spec.arch,
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> NormView:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    return NormView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        prologue=emit_epilogue(traits.prologue),
        epilogue=emit_epilogue(traits.epilogue),
        function=_FUNCTIONS[traits.function],
        epsilon=float_literal(traits.epsilon),
        element_a=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        vector=traits.vector,
        threads=config.threads,
        vectors=config.vectors,
        rows=config.rows,
        streamed=str(config.streamed).lower(),
        layout=(
            f"boltgen::ImageRows</*Groups=*/{traits.groups_of_vector}>"
            if traits.groups_of_vector
            else "boltgen::MatrixRows"
        ),
        args=ARGUMENTS[traits.groups_of_vector > 0],
        row_indices=() if traits.rows_dtype is None else (traits.rows_dtype.cpp,),
    )


def _parts(spec: KernelSpec) -> tuple[NormConfig, NormTraits]:
    return spec.config, spec.traits
