"""sm_90a's back-to-back kernels as text: the view of their template, and texts for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.b2b_sm90.config import B2bSm90Config, B2bSm90Traits
from boltgen.families.b2b_sm90.legality import stages
from boltgen.families.chain.code import problem_text
from boltgen.families.chain.traits import Residence
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSm90View:
    """A layer of a kernel: `name` is its namespace, `type_name` its type."""

    name: str
    type_name: str
    epilogue: EpilogueCode
    layout_b: str
    columns: int
    alignment_d: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSm90View:
    """One back-to-back kernel of sm_90a; `first` is the class that loads its first operands."""

    TEMPLATE: ClassVar[str] = "b2b_sm90.cu.j2"

    symbol: str
    workspace_symbol: str
    layers: tuple[LayerSm90View, ...]
    layer_types: str
    first: str
    along_m: int
    along_n: int
    stages: int
    element_d: str
    args_type: str
    run_function: str


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    return "boltgen/activations.h", f"boltgen/b2b_{_kind(spec)}_sm90.h"


def stem(spec: KernelSpec) -> str:
    """Return a name for people with rows and columns of layers: `b2b_gemm_sm90a_128x64x128_rf`."""
    config, _ = _parts(spec)
    extents = (config.threadblock_m, *config.columns)
    residence = "rf" if config.residence is Residence.REGISTERS else "smem"
    return (
        f"b2b_{_kind(spec)}_{spec.arch.replace('_', '')}_{'x'.join(map(str, extents))}_{residence}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    described = {
        "Problem": problem_text(
            len(traits.layers), traits.in_dtype, traits.out_dtype, is_conv=traits.is_conv
        )
        + ", accumulated in float32",
        "Epilogue": "; ".join(
            f"D{index} = {layer.epilogue.describe()}" for index, layer in enumerate(traits.layers)
        ),
    }
    for index, (columns, layer) in enumerate(zip(config.columns, traits.layers, strict=True)):
        major = "column" if layer.b_layout is Layout.COLUMN else "row"
        described[f"Layer {index}"] = (
            f"threadblock {config.threadblock_m}x{columns}x64, B {major}-major; D in vectors of "
            f"{layer.alignment_d}"
        )
    described["Config"] = (
        f"{config.warpgroups} warpgroups multiply by wgmma, {config.along_n} side by side, one "
        f"loads by TMA, intermediates in {config.residence.value.replace('_', ' ')}, persistent"
    )
    described["Alignment"] = "16 bytes of A and B, which TMA needs"
    described["Arch"] = spec.arch
    described["CUTLASS"] = "CuTe"
    return described


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> ChainSm90View:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    layers = tuple(
        LayerSm90View(
            name=f"layer{index}",
            type_name=f"Layer{index}",
            epilogue=emit_epilogue(layer.epilogue),
            layout_b=cpp_names.LAYOUT[layer.b_layout],
            columns=columns,
            alignment_d=layer.alignment_d,
        )
        for index, (columns, layer) in enumerate(zip(config.columns, traits.layers, strict=True))
    )
    return ChainSm90View(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        layers=layers,
        layer_types=", ".join(layer.type_name for layer in layers),
        first="Conv2dFirstSm90" if traits.is_conv else "GemmFirstSm90",
        along_m=config.along_m,
        along_n=config.along_n,
        stages=stages(config, traits.in_dtype, arch_named(spec.arch)),
        element_d=traits.out_dtype.cutlass,
        args_type=f"boltgen_{_kind(spec)}_chain_args",
        run_function=f"run_{_kind(spec)}_chain_sm90",
    )


def _kind(spec: KernelSpec) -> str:
    """Return the first layer's kind as headers, structs and functions name it."""
    _, traits = _parts(spec)
    return "conv2d" if traits.is_conv else "gemm"


def _parts(spec: KernelSpec) -> tuple[B2bSm90Config, B2bSm90Traits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, B2bSm90Config)
    assert isinstance(traits, B2bSm90Traits)
    return config, traits
