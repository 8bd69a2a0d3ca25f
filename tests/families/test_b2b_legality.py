"""Back-to-back legality: each rule is broken on purpose, and holds for all that is enumerated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.chains import B2B_CONFIGS, chain_case, conv_chain, gemm_chain, paper_chains
from benchmarks.cases.kernels import EPILOGUES, in_bf16
from boltgen.arch import ARCHES, arch_named
from boltgen.errors import NoLegalConfigError
from boltgen.families.b2b.candidates import enumerate_configs
from boltgen.families.b2b.legality import violations
from boltgen.families.b2b.resources import registers_per_thread, shared_memory_bytes
from boltgen.families.chain.traits import Residence
from boltgen.families.registry import FAMILIES, candidates, kernel_spec
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.workload import Workload

SM80, SM75 = arch_named("sm_80"), arch_named("sm_75")
BIAS_RELU = ("bias_relu", "bias_relu")
CHAIN = gemm_chain(1024, 256, (64, 64), BIAS_RELU)
RF, SMEM = B2B_CONFIGS["rf"][1], B2B_CONFIGS["smem"][1]


def with_layer(config, index, **changes):
    layers = list(config.layers)
    layers[index] = replace(layers[index], **changes)
    return replace(config, layers=tuple(layers))


WIDE = with_layer(with_layer(RF, 0, n=256, warp_n=256), 1, n=256, warp_n=256)
DEEP = with_layer(replace(SMEM, threadblock_m=256), 0, k=64, stages=5, warp_m=128)
ODD = gemm_chain(1024, 256, (63, 64), BIAS_RELU)
HUGE = Conv2d(n=1024, h=512, w=512, c=8, k=8, r=3, s=3, stride=(2, 2))


@pytest.mark.parametrize(
    ("chain", "config", "arch", "rule", "text"),
    [
        (gemm_chain(64, 64, (64, 64, 64), (*BIAS_RELU, "identity")), RF, SM80, "layer_count",
         "2 layers in the configuration, 3 to compute"),
        (gemm_chain(64, 64, (65, 64), BIAS_RELU), RF, SM80, "threadblock_residence",
         "64 columns of a layer with N=65"),
        (gemm_chain(64, 64, (64, 129), BIAS_RELU), SMEM, SM80, "threadblock_residence", "N=129"),
        (CHAIN, replace(SMEM, residence=Residence.REGISTERS), SM80, "register_residence",
         "layer 0: a warp has 32 of the threadblock's 64 columns"),
        (CHAIN, with_layer(RF, 1, warp_m=32), SM80, "warp_count", "layers of 4, 2 warps"),
        (CHAIN, with_layer(with_layer(SMEM, 0, n=32, warp_n=16), 1, k=64), SM80,
         "inner_k_divides_n", "layer 1: k=64 does not divide the 32 columns"),
        (CHAIN, with_layer(SMEM, 1, k=48), SM80, "inner_threadblock_k", "k=48"),
        (CHAIN, with_layer(SMEM, 0, k=16), SM80, "threadblock_k", "k=16"),
        (CHAIN, with_layer(SMEM, 1, stages=6), SM80, "inner_stages", "2 to 5"),
        (CHAIN, with_layer(SMEM, 1, stages=1), SM80, "inner_stages", "1 stages"),
        (gemm_chain(64, 255, (64, 64), BIAS_RELU), SMEM, SM80, "async_copy", "copies of 2 bytes"),
        (ODD, with_layer(SMEM, 1, stages=3), SM80, "inner_stages", "vectors of 1"),
        (CHAIN, with_layer(replace(SMEM, instruction=Shape(16, 8, 8)), 1, stages=3), SM75,
         "inner_stages", "on sm_75"),
        (CHAIN, RF, SM75, "instruction", "16x8x16 on sm_75"),
        (CHAIN, with_layer(RF, 1, warp_m=24), SM80, "warp_divides_threadblock", "m=24"),
        (CHAIN, with_layer(replace(SMEM, threadblock_m=96, instruction=Shape(16, 8, 8)), 0,
         warp_m=48), SM80, "ldmatrix_extent", "48 rows or columns of A"),
        (CHAIN, with_layer(SMEM, 1, warp_n=8), SM80, "instruction_divides_warp", "n=8"),
        (CHAIN, WIDE, SM80, "registers", "registers per thread; at most 255"),
        (CHAIN, DEEP, arch_named("sm_86"), "shared_memory", "a threadblock on sm_86 has 101376"),
        (gemm_chain(64, 64, (64, 64), BIAS_RELU), with_layer(SMEM, 1, n=32, warp_n=16), SM80,
         "epilogue_thread_map", "warps along N"),
        (gemm_chain(2**31 - 100, 64, (64, 64), BIAS_RELU), RF, SM80, "index_overflow", "M: "),
        (conv_chain(HUGE, (8,), BIAS_RELU), RF, SM80, "index_overflow", "activation: 4294967296"),
    ],
)  # fmt: skip
def test_each_rule_is_found_and_explained(chain, config, arch, rule, text):
    found = [v for v in violations(chain, config, arch) if v.name == rule]
    assert any(text in violation.message for violation in found), found
    for violation in found:
        assert violation.reason
        assert violation.slack is None or violation.slack < 0


@pytest.mark.parametrize("name", B2B_CONFIGS)
def test_the_tests_own_configs_are_legal(name):
    arch, config = B2B_CONFIGS[name]
    chain = gemm_chain(100, 64, tuple(tile.n for tile in config.layers), _epilogues(config))
    assert violations(chain, config, arch_named(arch)) == ()


def _epilogues(config):
    return ("bias_relu",) * len(config.layers)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_chain_of_the_paper_has_configs_of_both_residences(arch):
    for name, chain in paper_chains().items():
        configs = enumerate_configs(chain, ARCHES[arch])
        assert {config.residence for config in configs} == set(Residence), name
        assert len(set(configs)) == len(configs)
        for config in configs:
            assert violations(chain, config, ARCHES[arch]) == ()


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("n", [1, 2, 4, 7, 16, 48, 96, 250])
def test_small_and_ragged_columns_have_configs(n, layout):
    for columns in ((n, 64), (64, n), (n, 48, n)):
        chain = gemm_chain(300, 40, columns, ("bias_relu",) * len(columns), b_layout=layout)
        for arch in (SM75, SM80):
            assert enumerate_configs(chain, arch)


def test_a_chain_too_wide_is_refused_with_the_reason():
    chain = gemm_chain(1024, 64, (512, 64), BIAS_RELU)
    assert enumerate_configs(chain, SM80) == ()
    message = r"Gemm\(m=1024, n=512.* on sm_80; .*b2b: .*no tile holds the columns of every layer"
    with pytest.raises(NoLegalConfigError, match=message):
        candidates(chain, SM80)


def test_what_is_no_chain_is_rejected_with_the_reason():
    family = FAMILIES.named("b2b")
    assert family.rejects(CHAIN, SM80) is None
    single = Workload(layers=CHAIN.layers[:1])
    assert "not one" in family.rejects(single, SM80)
    before = replace(CHAIN.layers[0], prologue=EPILOGUES["relu"])
    changed = Workload(layers=(before, *CHAIN.layers[1:]))
    assert "cannot be changed before the product" in family.rejects(changed, SM80)
    inner = replace(CHAIN.layers[1], prologue=EPILOGUES["relu"])
    changed = Workload(layers=(CHAIN.layers[0], inner))
    assert "cannot be changed before the product" in family.rejects(changed, SM80)


def test_layers_in_bf16_are_rejected_by_name():
    types = {"in_dtype": DType.BF16, "out_dtype": DType.BF16}
    layers = tuple(
        replace(layer, problem=replace(layer.problem, **types), epilogue=in_bf16(layer.epilogue))
        for layer in CHAIN.layers
    )
    reason = FAMILIES.named("b2b").rejects(Workload(layers=layers), SM80)
    assert "float16, not bfloat16" in reason


def test_the_space_holds_every_enumerated_configuration():
    for chain in (CHAIN, ODD, gemm_chain(300, 40, (48, 96, 16), (*BIAS_RELU, "identity"))):
        for arch in (SM75, SM80):
            space = FAMILIES.named("b2b").space(chain, arch)
            assert set(space.candidates) == set(enumerate_configs(chain, arch))
            assert len(set(map(space.encode, space.candidates))) == len(space.candidates)
            for config in space.candidates:
                assert config in space
                assert space.penalty(config) == 0.0


def test_shared_memory_is_what_the_header_lays_out():
    # Three stages of 64x32 and 64x32; two of a 64x128 B; the intermediate of 64x64.
    assert shared_memory_bytes(CHAIN, SMEM) == max(3 * 128 * 32, 2 * 128 * 64) * 2 + 8192
    assert shared_memory_bytes(CHAIN, RF) == 3 * 128 * 32 * 2 + 16
    assert registers_per_thread(CHAIN, RF) > registers_per_thread(
        replace(CHAIN, layers=tuple(replace(layer, problem=replace(layer.problem,
        acc_dtype=DType.F16)) for layer in CHAIN.layers)), RF)  # fmt: skip


def test_specs_do_not_depend_on_sizes_and_tell_kernels_apart():
    spec = kernel_spec(CHAIN, RF, "sm_80")
    assert spec == kernel_spec(gemm_chain(77, 8, (8, 56), BIAS_RELU), RF, "sm_80")
    others = [
        kernel_spec(CHAIN, SMEM, "sm_80"),
        kernel_spec(CHAIN, RF, "sm_90"),
        kernel_spec(gemm_chain(77, 4, (8, 56), BIAS_RELU), RF, "sm_80"),
        kernel_spec(gemm_chain(77, 8, (8, 52), BIAS_RELU), RF, "sm_80"),
        kernel_spec(gemm_chain(77, 8, (8, 56), ("identity", "bias_relu")), RF, "sm_80"),
        kernel_spec(gemm_chain(77, 8, (8, 56), BIAS_RELU, dtypes="f16_f16"), RF, "sm_80"),
        chain_case("x", "rf", conv_chain(HUGE, (8,), BIAS_RELU)).spec,
    ]
    assert len({spec, *others}) == 8
    # An inner layer's operands are read in pairs at most.
    assert [layer.alignment_d for layer in spec.traits.layers] == [2, 8]
    assert [layer.epilogue for layer in spec.traits.layers] == [EPILOGUES["bias_relu"]] * 2
