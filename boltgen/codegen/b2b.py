"""Back-to-back kernels as text. Arrow: ChainKernelSpec -> the parts of a KernelSource."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import emit_epilogue
from boltgen.codegen.views import ChainLayerView, ChainView
from boltgen.ir.dtypes import DType, Layout
from boltgen.space.b2b_kernel import ChainKernelSpec
from boltgen.space.config import Residence
from boltgen.space.kernel import Family

# The argument struct and the entry of each family.
_ENTRY = {
    Family.B2B_GEMM: ("boltgen_gemm_chain_args", "run_gemm_chain"),
    Family.B2B_CONV2D: ("boltgen_conv2d_chain_args", "run_conv2d_chain"),
}


def chain_tiles_name(spec: ChainKernelSpec) -> str:
    """The part of a symbol that people want to see: rows, columns of each layer, `64x64x128_rf`."""
    extents = (spec.config.threadblock_m, *(tile.n for tile in spec.config.layers))
    residence = "rf" if spec.config.residence is Residence.REGISTERS else "smem"
    return f"{'x'.join(map(str, extents))}_{residence}"


def describe_chain_kernel(spec: ChainKernelSpec) -> dict[str, str]:
    """What the kernel computes and how, as labelled text for people."""
    config = spec.config
    iterator = f", {spec.conv_iterator.value} iterators" if spec.conv_iterator else ""
    described = {"Problem": _problem_text(spec)}
    described["Epilogue"] = "; ".join(
        f"D{index} = {layer.epilogue.describe()}" for index, layer in enumerate(spec.layers)
    )
    for index, (tile, layer) in enumerate(zip(config.layers, spec.layers, strict=True)):
        described[f"Layer {index}"] = (
            f"threadblock {config.threadblock_m}x{tile.n}x{tile.k}, warp "
            f"{tile.warp_m}x{tile.warp_n}, {tile.stages} stages, B {_major(layer.b_layout)}, "
            f"accumulated in {layer.acc_dtype.value}; B in vectors of {layer.alignment_b}, "
            f"D of {layer.alignment_d}"
        )
    described["Config"] = (
        f"{config.warps} warps, instruction {config.instruction}, intermediates in "
        f"{config.residence.value.replace('_', ' ')}, A in vectors of {spec.alignment_a}{iterator}"
    )
    described["Arch"] = spec.arch
    return described


def chain_view(spec: ChainKernelSpec, symbol: str, workspace_symbol: str) -> ChainView:
    """What the kernel's template sees."""
    layers = tuple(_layer_view(spec, index) for index in range(len(spec.layers)))
    args_type, run_function = _ENTRY[spec.family]
    iterator = spec.conv_iterator
    return ChainView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        layers=layers,
        first=layers[0],
        inner=layers[1:],
        layer_types=", ".join(layer.type_name for layer in layers),
        element_in=spec.in_dtype.cutlass,
        element_d=spec.out_dtype.cutlass,
        alignment_a=spec.alignment_a,
        instruction=cpp_names.gemm_shape(spec.config.instruction),
        arch_tag=cpp_names.arch_tag(spec.arch),
        has_async_copies="true" if arch_named(spec.arch).has_async_copies else "false",
        residence=cpp_names.RESIDENCE[spec.config.residence],
        args_type=args_type,
        run_function=run_function,
        iterator_algorithm=cpp_names.ITERATOR_ALGORITHM[iterator] if iterator else None,
    )


def _layer_view(spec: ChainKernelSpec, index: int) -> ChainLayerView:
    layer, tiles = spec.layers[index], spec.config.of_layer(index)
    return ChainLayerView(
        name=f"layer{index}",
        type_name=f"Layer{index}",
        epilogue=emit_epilogue(layer.epilogue),
        threadblock=cpp_names.gemm_shape(tiles.threadblock),
        warp=cpp_names.gemm_shape(tiles.warp),
        stages=tiles.stages,
        layout_b=cpp_names.LAYOUT[layer.b_layout],
        alignment_b=layer.alignment_b,
        alignment_d=layer.alignment_d,
        element_accumulator=layer.acc_dtype.cutlass,
    )


def _major(layout: Layout) -> str:
    return "column-major" if layout is Layout.COLUMN else "row-major"


def _problem_text(spec: ChainKernelSpec) -> str:
    types = f"{spec.in_dtype.value} to {spec.out_dtype.value}, {DType.F16.value} between"
    if spec.family is Family.B2B_CONV2D:
        return (
            f"{len(spec.layers)} convolutions back to back, A: (N, H, W, C), B0: (K0, R, S, C), "
            f"then 1x1, B: (K, C), D: (N, P, Q, K); {types}"
        )
    return f"{len(spec.layers)} GEMMs back to back, A: (M, K), D: (M, N) row-major; {types}"
