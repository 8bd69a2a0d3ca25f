"""Back-to-back kernels as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.b2b.config import B2bConfig
from boltgen.families.chain.code import problem_text
from boltgen.families.chain.traits import ChainTraits, Residence
from boltgen.families.mma_sync.code import ITERATOR_ALGORITHM
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec

_ACTIVATIONS_HEADER = "boltgen/activations.h"
_GEMM_HEADER, _CONV2D_HEADER = "boltgen/b2b_gemm.h", "boltgen/b2b_conv2d.h"

RESIDENCE = {
    Residence.REGISTERS: "boltgen::Residence::kRegisters",
    Residence.SHARED_MEMORY: "boltgen::Residence::kSharedMemory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """A layer of a back-to-back kernel: `name` is its namespace, `type_name` its type."""

    name: str
    type_name: str
    epilogue: EpilogueCode
    threadblock: str
    warp: str
    stages: int
    layout_b: str
    alignment_b: int
    alignment_d: int
    element_accumulator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    """One back-to-back kernel; `layers` are `first` and `inner`.

    `iterator_algorithm` is None if the first layer is a matmul.
    """

    TEMPLATE: ClassVar[str] = "b2b.cu.j2"

    symbol: str
    workspace_symbol: str
    layers: tuple[LayerView, ...]
    first: LayerView
    inner: tuple[LayerView, ...]
    layer_types: str
    element_in: str
    element_d: str
    alignment_a: int
    instruction: str
    arch_tag: str
    has_async_copies: str
    residence: str
    args_type: str
    run_function: str
    iterator_algorithm: str | None


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    _, traits = _parts(spec)
    return _ACTIVATIONS_HEADER, _CONV2D_HEADER if traits.conv_iterator else _GEMM_HEADER


def stem(spec: KernelSpec) -> str:
    """Return a name for people with rows and layers' columns: `b2b_gemm_sm80_64x64x128_rf`."""
    config, traits = _parts(spec)
    kind = "b2b_conv2d" if traits.conv_iterator else "b2b_gemm"
    extents = (config.threadblock_m, *(tile.n for tile in config.layers))
    residence = "rf" if config.residence is Residence.REGISTERS else "smem"
    return f"{kind}_{spec.arch.replace('_', '')}_{'x'.join(map(str, extents))}_{residence}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    iterator = f", {traits.conv_iterator.value} iterators" if traits.conv_iterator else ""
    described = {
        "Problem": problem_text(
            len(traits.layers),
            traits.in_dtype,
            traits.out_dtype,
            is_conv=traits.conv_iterator is not None,
        )
    }
    described["Epilogue"] = "; ".join(
        f"D{index} = {layer.epilogue.describe()}" for index, layer in enumerate(traits.layers)
    )
    for index, (tile, layer) in enumerate(zip(config.layers, traits.layers, strict=True)):
        described[f"Layer {index}"] = (
            f"threadblock {config.threadblock_m}x{tile.n}x{tile.k}, warp "
            f"{tile.warp_m}x{tile.warp_n}, {tile.stages} stages, B {_major(layer.b_layout)}, "
            f"accumulated in {layer.acc_dtype.value}; B in vectors of {layer.alignment_b}, "
            f"D of {layer.alignment_d}"
        )
    described["Config"] = (
        f"{config.warps} warps, instruction {config.instruction}, intermediates in "
        f"{config.residence.value.replace('_', ' ')}, A in vectors of {traits.alignment_a}"
        f"{iterator}"
    )
    described["Arch"] = spec.arch
    return described


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> ChainView:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    layers = tuple(_layer_view(config, traits, index) for index in range(len(traits.layers)))
    iterator = traits.conv_iterator
    return ChainView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        layers=layers,
        first=layers[0],
        inner=layers[1:],
        layer_types=", ".join(layer.type_name for layer in layers),
        element_in=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        alignment_a=traits.alignment_a,
        instruction=config.instruction.cutlass,
        arch_tag=cpp_names.arch_tag(spec.arch),
        has_async_copies="true" if arch_named(spec.arch).has_async_copies else "false",
        residence=RESIDENCE[config.residence],
        args_type=traits.struct,
        run_function="run_conv2d_chain" if iterator else "run_gemm_chain",
        iterator_algorithm=ITERATOR_ALGORITHM[iterator] if iterator else None,
    )


def _layer_view(config: B2bConfig, traits: ChainTraits, index: int) -> LayerView:
    layer, tiles = traits.layers[index], config.of_layer(index)
    return LayerView(
        name=f"layer{index}",
        type_name=f"Layer{index}",
        epilogue=emit_epilogue(layer.epilogue),
        threadblock=tiles.threadblock.cutlass,
        warp=tiles.warp.cutlass,
        stages=tiles.stages,
        layout_b=cpp_names.LAYOUT[layer.b_layout],
        alignment_b=layer.alignment_b,
        alignment_d=layer.alignment_d,
        element_accumulator=layer.acc_dtype.cutlass,
    )


def _major(layout: Layout) -> str:
    return "column-major" if layout is Layout.COLUMN else "row-major"


def _parts(spec: KernelSpec) -> tuple[B2bConfig, ChainTraits]:
    return spec.config, spec.traits
