"""Every chain, and every back-to-back config, that kernel tests use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.cases.kernels import BLACKWELL, DTYPES, EPILOGUES
from boltgen.arch import ARCHES, arch_named
from boltgen.families.b2b.candidates import enumerate_configs
from boltgen.families.b2b.config import B2bConfig, LayerTile
from boltgen.families.b2b_sm90.config import B2bSm90Config
from boltgen.families.chain.traits import Residence
from boltgen.families.registry import kernel_spec
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload

_SM80 = Shape(16, 8, 16)
_SM75 = Shape(16, 8, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCase:
    """A back-to-back kernel and a workload of several layers that it must compute.

    `batched_operands` tells whether the epilogues' operands differ between products of a batch.
    """

    name: str
    spec: KernelSpec
    chain: Workload
    batched_operands: bool = False


def tile(n: int, k: int, warp: tuple[int, int], stages: int) -> LayerTile:
    """One layer's tiles."""
    return LayerTile(n=n, k=k, warp_m=warp[0], warp_n=warp[1], stages=stages)


def _config(m: int, residence: Residence, *layers: LayerTile, sm75: bool = False) -> B2bConfig:
    return B2bConfig(
        threadblock_m=m,
        layers=layers,
        instruction=_SM75 if sm75 else _SM80,
        residence=residence,
    )


_RF, _SMEM = Residence.REGISTERS, Residence.SHARED_MEMORY

# By what they exercise.
B2B_CONFIGS: Mapping[str, tuple[str, B2bConfig]] = {
    "rf": ("sm_80", _config(64, _RF, tile(64, 32, (16, 64), 3), tile(64, 32, (16, 64), 3))),
    "smem": ("sm_80", _config(64, _SMEM, tile(64, 32, (32, 32), 3), tile(128, 64, (32, 64), 2))),
    "rf3": (
        "sm_80",
        _config(128, _RF, *(tile(n, 32, (32, n), 3) for n in (32, 64, 64))),
    ),
    "smem4": (
        "sm_80",
        _config(
            32,
            _SMEM,
            tile(64, 64, (16, 32), 4),
            tile(96, 16, (16, 48), 2),
            tile(32, 32, (16, 16), 3),
            tile(128, 32, (16, 64), 4),
        ),
    ),
    "sm75_rf": (
        "sm_75",
        _config(64, _RF, tile(64, 32, (16, 64), 2), tile(64, 64, (16, 64), 2), sm75=True),
    ),
    "sm75_smem": (
        "sm_75",
        _config(64, _SMEM, tile(64, 32, (32, 32), 2), tile(128, 32, (32, 64), 2), sm75=True),
    ),
}


def gemm_chain(
    m: int,
    k: int,
    columns: tuple[int, ...],
    epilogues: tuple[str, ...],
    *,
    b_layout: Layout = Layout.COLUMN,
    dtypes: str = "f32_f16",
    batch: int = 1,
    a_batched: bool = True,
    b_batched: tuple[bool, ...] = (),
) -> Workload:
    """A chain of `len(columns)` products; `b_batched` of each layer, all of them if empty."""
    layers = []
    for index, (n, epilogue) in enumerate(zip(columns, epilogues, strict=True)):
        acc_dtype, out_dtype = DTYPES[dtypes]
        types: dict[str, Any] = {
            "batch": batch,
            "a_batched": a_batched or index > 0,
            "b_batched": b_batched[index] if b_batched else True,
            "acc_dtype": acc_dtype,
            "out_dtype": out_dtype if index + 1 == len(columns) else DType.F16,
            "b_layout": b_layout,
        }
        problem = Gemm(m=m, n=n, k=columns[index - 1] if index else k, **types)
        layers.append(Layer(problem=problem, epilogue=EPILOGUES[epilogue]))
    return Workload(layers=tuple(layers))


def conv_chain(
    first: Conv2d, columns: tuple[int, ...], epilogues: tuple[str, ...], dtypes: str = "f32_f16"
) -> Workload:
    """`first`, then 1x1 convolutions with those channels."""
    acc_dtype, out_dtype = DTYPES[dtypes]
    problems = [first]
    for index, k in enumerate(columns, 1):
        before = problems[-1]
        problems.append(
            Conv2d(
                n=before.n,
                h=before.p,
                w=before.q,
                c=before.k,
                k=k,
                r=1,
                s=1,
                acc_dtype=acc_dtype,
                out_dtype=out_dtype if index == len(columns) else DType.F16,
            )
        )
    layers = (
        Layer(problem=problem, epilogue=EPILOGUES[epilogue])
        for problem, epilogue in zip(problems, epilogues, strict=True)
    )
    return Workload(layers=tuple(layers))


_BIAS_RELU = ("bias_relu", "bias_relu")

# Table 1 of Bolt: M, N0, K0, N1 of two GEMMs, each with ReLU.
_PAPER_GEMMS = ((2464, 1, 4, 4), (16384, 64, 256, 16), (32768, 128, 576, 64), (128320, 32, 96, 96))
# Table 2: image, channels in and out, stride of a 3x3 convolution with padding 1; then a 1x1, each
# with bias and ReLU.
_PAPER_CONVS = (
    (224, 3, 48, 2),
    (112, 48, 48, 2),
    (56, 48, 48, 1),
    (224, 3, 64, 2),
    (112, 64, 64, 2),
    (56, 64, 64, 1),
)


def paper_chains(most_rows: int | None = None, batch: int = 32) -> dict[str, Workload]:
    """The chains of Bolt's tables 1 and 2, by name; `most_rows` cuts M and the batch."""
    chains: dict[str, Workload] = {}
    for m, n0, k0, n1 in _PAPER_GEMMS:
        rows = min(m, most_rows or m)
        chains[f"gemm-{m}x{n0}x{k0}x{n1}"] = gemm_chain(rows, k0, (n0, n1), ("relu", "relu"))
    for h, c, k, stride in _PAPER_CONVS:
        images = max(1, min(batch, (most_rows or batch * h * h) // (h // stride) ** 2))
        first = Conv2d(
            n=images, h=h, w=h, c=c, k=k, r=3, s=3, stride=(stride, stride), padding=(1, 1, 1, 1)
        )
        chains[f"conv-{h}-{c}-{k}-s{stride}"] = conv_chain(first, (k,), _BIAS_RELU)
    return chains


def chain_case(
    name: str, config: str, chain: Workload, *, batched_operands: bool = False
) -> ChainCase:
    """A chain in a named config."""
    arch, tiles = B2B_CONFIGS[config]
    return ChainCase(
        name=f"{config}-{name}",
        spec=kernel_spec(chain, tiles, arch),
        chain=chain,
        batched_operands=batched_operands,
    )


_CONV = Conv2d(n=2, h=9, w=11, c=40, k=56, r=3, s=3, stride=(2, 1), padding=(0, 1, 3, 2))
# More filter columns than the optimised iterator has predicate bits.
_WIDE_FILTER = Conv2d(n=1, h=3, w=40, c=8, k=24, r=1, s=33, padding=(0, 5, 0, 3))


def _basic_cases() -> list[ChainCase]:
    """Ragged extents, both layouts of B and a convolution, in every config of two layers."""
    row = Layout.ROW
    return [
        case
        for config in ("rf", "smem", "sm75_rf", "sm75_smem")
        for case in (
            chain_case("ragged", config, gemm_chain(150, 100, (44, 52), _BIAS_RELU)),
            chain_case("row", config, gemm_chain(150, 104, (40, 56), _BIAS_RELU, b_layout=row)),
            chain_case("conv", config, conv_chain(_CONV, (48,), _BIAS_RELU)),
        )
    ]


def _epilogue_cases() -> list[ChainCase]:
    """Every epilogue in an inner layer: three layers have two of them each."""
    names = list(EPILOGUES)
    chains = [
        (names[i], names[(i + 1) % len(names)], names[i - 3]) for i in range(0, len(names), 2)
    ]
    return [
        chain_case("-".join(chain), "rf3", gemm_chain(150, 72, (30, 56, 64), chain))
        for chain in chains
    ]


def _dtype_cases() -> list[ChainCase]:
    epilogues = ("residual_before", "residual_after")
    return [
        chain_case(
            dtypes,
            config,
            gemm_chain(90, 72, (40, n), epilogues, dtypes=dtypes, b_layout=Layout.ROW),
        )
        for dtypes, config, n in (
            ("f16_f16", "rf", 62),
            ("f16_f16", "sm75_smem", 63),
            ("f32_f32", "smem", 63),
            ("f32_f32", "sm75_rf", 63),
        )
    ]


def _other_cases() -> list[ChainCase]:
    """Four layers, batches with and without shared operands, a filter for analytic iterators."""
    four = ("residual_before", "columns", "bias_silu", "per_channel")
    pair = ("two_tensors", "residual_before")
    return [
        chain_case("four", "smem4", gemm_chain(77, 136, (61, 96, 18, 128), four)),
        chain_case(
            "batch",
            "smem",
            gemm_chain(70, 72, (48, 72), pair, batch=3),
            batched_operands=True,
        ),
        chain_case(
            "batch-shared",
            "rf",
            gemm_chain(70, 72, (48, 64), pair, batch=3, b_batched=(False, True)),
        ),
        chain_case(
            "batch-later-shared",
            "rf",
            gemm_chain(70, 72, (48, 64), pair, batch=3, b_batched=(True, False)),
        ),
        chain_case(
            "batch-one-a",
            "rf",
            gemm_chain(70, 72, (48, 64), pair, batch=3, a_batched=False),
            batched_operands=True,
        ),
        chain_case("analytic", "rf", conv_chain(_WIDE_FILTER, (40,), _BIAS_RELU)),
    ]


# Rows of the paper's cases on the virtual GPU: some tiles, and a ragged one.
_PAPER_ROWS = 700


def paper_cases(*, whole: bool = False) -> list[ChainCase]:
    """Bolt's chains in both residences, on every arch.

    Unless they are wanted `whole`, those architectures whose kernels differ from sm_80's by nvcc's
    target alone have a quarter each, and Blackwell's one each, by turns in both residences.
    """
    cases = []
    for arch in ARCHES:
        for index, (name, chain) in enumerate(paper_chains(_PAPER_ROWS, batch=1).items()):
            for position, residence in enumerate(Residence):
                if not whole and not _is_tried(arch, index, position):
                    continue
                config = paper_config(chain, arch, residence)
                cases.append(
                    ChainCase(
                        name=f"paper-{arch}-{residence.value}-{name}",
                        spec=kernel_spec(chain, config, arch),
                        chain=chain,
                    )
                )
    return cases


def _is_tried(arch: str, index: int, position: int) -> bool:
    """Whether the chain of a number has a case on `arch` in the residence of a position."""
    if arch in BLACKWELL:
        turn = BLACKWELL.index(arch)
        return (index, position) == (turn, turn % len(Residence))
    return arch in ("sm_75", "sm_80") or (index + position) % 4 == 0


def paper_config(chain: Workload, arch: str, residence: Residence) -> B2bConfig:
    """The enumerated config that is nearest to 128 rows and four warps."""
    configs = enumerate_configs(chain, arch_named(arch))
    return min(
        (config for config in configs if config.residence is residence),
        key=lambda config: (abs(config.threadblock_m - 128), abs(config.warps - 4)),
    )


def golden_chain_specs() -> dict[str, KernelSpec]:
    """Back-to-back kernels whose text is recorded in `tests/golden`, by file name."""
    conv = conv_chain(_CONV, (48,), ("bias_relu", "residual_before"))
    three = gemm_chain(150, 72, (30, 56, 64), ("per_channel", "residual_before", "bias_gelu_erf"))
    wide = gemm_chain(9, 8, (400, 40), ("bias_silu", "residual_before"), b_layout=Layout.ROW)
    hopper = B2bSm90Config(threadblock_m=64, columns=(512, 64), residence=_SMEM)
    return {
        "b2b_gemm_sm90a": kernel_spec(wide, hopper, "sm_90a"),
        "b2b_gemm_sm75": chain_case("", "sm75_rf", gemm_chain(9, 8, (8, 8), _BIAS_RELU)).spec,
        "b2b_gemm_sm80": chain_case("", "rf3", three).spec,
        "b2b_conv2d_sm80": chain_case("", "smem", conv).spec,
    }


def all_chain_cases() -> list[ChainCase]:
    """Every chain case; their names differ."""
    return [
        *_basic_cases(),
        *_epilogue_cases(),
        *_dtype_cases(),
        *_other_cases(),
        *paper_cases(),
    ]
