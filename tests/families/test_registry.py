"""The registry: what it refuses, and what every family in it gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from benchmarks.cases.attention import attention, scaled
from benchmarks.cases.chains import conv_chain, gemm_chain
from benchmarks.cases.kernels import EPILOGUES
from benchmarks.cases.separable import CASES as SEPARABLE
from boltgen.arch import ARCHES, Arch
from boltgen.codegen.render import render
from boltgen.errors import BoltgenError, NoLegalConfigError
from boltgen.families.family import KernelFamily, Level
from boltgen.families.registry import (
    FAMILIES,
    Registry,
    candidates,
    compiled,
    kernel_spec,
    launch,
    order,
    predict,
    predicted_us,
    spaces,
    violations,
)
from boltgen.families.source import kernel_symbol, render_kernel, workspace_symbol
from boltgen.ir.dtypes import DType, IndexType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.key import canonical
from boltgen.ir.recurrence import Cell
from boltgen.measure.abi import arguments, structs
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    LayoutTransform,
    Move,
)
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

SM80 = ARCHES["sm_80"]
CONV = Conv2d(n=2, h=14, w=14, c=40, k=64, r=3, s=3, padding=(1, 1, 1, 1))
MOVE = LayoutTransform(
    move=Move(source=Form(layout=ImageLayout.NCHW, dtype=DType.F32), target=NHWC_F16),
    images=2,
    pixels=196,
    source_channels=3,
    target_channels=8,
)
PACKED = Workload.of(
    Gemm(
        m=4,
        n=136,
        k=264,
        b_layout=Layout.COLUMN,
        weights=PackedWeights(bits=4, group=32, has_zeros=True),
    ),
    EPILOGUES["bias_relu"],
)


def with_prologue(problem: Gemm, epilogue: str) -> Workload:
    """A product of what a bias and an activation make of A."""
    layer = Layer(problem=problem, prologue=EPILOGUES["bias_relu"], epilogue=EPILOGUES[epilogue])
    return Workload(layers=(layer,))


# Workloads of every family: together all that one can be asked for.
WORKLOADS = {
    "cutlass2": (
        Workload.of(Gemm(m=200, n=136, k=264), EPILOGUES["residual_before"]),
        Workload.of(Gemm(batch=4, m=200, n=136, k=264), EPILOGUES["columns"]),
        Workload.of(CONV, EPILOGUES["bias_relu"]),
    ),
    "b2b": (
        gemm_chain(200, 72, (64, 48), ("bias_relu", "residual_before")),
        gemm_chain(200, 72, (64, 48), ("bias_relu", "identity"), batch=3),
        conv_chain(CONV, (48, 32), ("bias_relu", "identity", "columns")),
    ),
    "b2b_sm90": (
        gemm_chain(200, 72, (64, 48), ("bias_relu", "residual_before")),
        gemm_chain(200, 72, (64, 48), ("bias_relu", "identity"), batch=3),
        conv_chain(CONV, (48, 32), ("bias_relu", "identity", "columns")),
    ),
    "cutlass3": (
        Workload.of(Gemm(m=200, n=136, k=264), EPILOGUES["residual_before"]),
        Workload.of(Gemm(batch=4, m=200, n=136, k=264), EPILOGUES["columns"]),
        Workload.of(CONV, EPILOGUES["bias_relu"]),
    ),
    "move": (Workload.of(MOVE),),
    "skinny": (
        Workload.of(Gemm(m=4, n=136, k=264), EPILOGUES["residual_before"]),
        Workload.of(Gemm(batch=4, m=16, n=137, k=264), EPILOGUES["columns"]),
        PACKED,
    ),
    "grouped": (
        Workload.of(GroupedGemm(groups=5, m=200, n=136, k=264), EPILOGUES["residual_before"]),
        Workload.of(
            GroupedGemm(groups=1, m=200, n=73, k=33, ends_dtype=IndexType.INT64),
            EPILOGUES["columns"],
        ),
        Workload.of(
            GroupedGemm(groups=5, m=200, n=136, k=264, a_rows=60, rows_dtype=IndexType.INT64),
            EPILOGUES["residual_before"],
        ),
    ),
    "prologue": (
        with_prologue(Gemm(m=200, n=136, k=264), "residual_before"),
        with_prologue(Gemm(m=200, n=73, k=33), "columns"),
    ),
    "depthwise": (
        Workload.of(
            Depthwise(n=2, h=56, w=56, c=144, r=3, s=3, padding=(1, 1, 1, 1)),
            EPILOGUES["residual_before"],
        ),
        Workload.of(
            Depthwise(
                n=1,
                h=20,
                w=1,
                c=12,
                r=1,
                s=1,
                multiplier=3,
                dilation=(1, 2),
                in_dtype=DType.BF16,
                out_dtype=DType.BF16,
            )
        ),
        Workload.of(
            Depthwise(n=1, h=1, w=1000, c=96, r=1, s=31, out_dtype=DType.F32),
            EPILOGUES["columns"],
        ),
    ),
    "separable": tuple(SEPARABLE[name].workload for name in ("plain", "bfloat16", "two_results")),
    "recurrent": (
        Workload.of(
            Recurrent(
                cell=Cell.LSTM,
                steps=20,
                batch_rows=40,
                hidden=128,
                directions=2,
                has_states=True,
                has_lengths=True,
                keeps_last=True,
            )
        ),
        Workload.of(
            Recurrent(cell=Cell.GRU, steps=7, batch_rows=1, hidden=256, has_bias=True),
            EPILOGUES["residual_before"],
        ),
        Workload.of(
            Recurrent(
                cell=Cell.RNN_TANH,
                steps=7,
                batch_rows=3,
                hidden=27,
                in_dtype=DType.BF16,
                out_dtype=DType.BF16,
            )
        ),
    ),
    "norm": (
        Workload.of(Norm(rows=200, columns=197, function=NormFunction.SOFTMAX)),
        Workload.of(
            Norm(
                rows=200,
                columns=768,
                function=NormFunction.RMS,
                epsilon=1e-5,
                a_rows=30,
                rows_dtype=IndexType.INT64,
            )
        ),
        Workload.of(
            Norm(rows=40, columns=768, function=NormFunction.LAYER, epsilon=1e-5),
            EPILOGUES["residual_before"],
        ),
        Workload.of(
            Norm(rows=3, columns=4096, function=NormFunction.RMS, epsilon=1e-6, out_dtype=DType.F32)
        ),
    ),
    "attention": (
        attention(200, 136, 64, 64),
        attention(70, 67, 40, 23, batch=3, scores=scaled(40, LoadKind.TENSOR)),
    ),
    "attention_sm90": (
        attention(200, 136, 64, 64),
        attention(70, 67, 40, 24, batch=3, scores=scaled(40, LoadKind.TENSOR)),
    ),
}
# Where a family is asked for them; those of sm_90a share a pool with the ones that they surpass.
SM90A = ARCHES["sm_90a"]
SURPASSED = {
    "cutlass3": "cutlass2",
    "b2b_sm90": "b2b",
    "attention_sm90": "attention",
    "skinny": "cutlass2",
}


def also(workload: Workload) -> set[str]:
    """Families that compute any product like it, if only of few rows."""
    is_product = all(isinstance(layer.problem, Gemm) for layer in workload.layers)
    is_plain = is_product and workload.first.prologue.is_identity
    return {"skinny"} if is_plain and not workload.is_fused else set()


TRIPLES = [
    pytest.param(
        FAMILIES.named(name),
        workload,
        SM90A if name in ("cutlass3", "b2b_sm90", "attention_sm90") else SM80,
        id=f"{name}-{workload.short}",
    )
    for name, workloads in WORKLOADS.items()
    for workload in workloads
]


# --- registering ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class OtherConfig:
    family: ClassVar[str] = "other"


KNOWN = next(iter(FAMILIES))


def of_configs(config_type: type) -> Any:
    """A family with all the functions of a known one, and configurations of another class."""
    return replace(KNOWN, config_type=config_type)


def test_a_family_is_registered_and_removed() -> None:
    registry = Registry(())
    other = of_configs(OtherConfig)
    registry.register(other)
    assert list(registry) == [other]
    assert registry.named("other") is registry.of(OtherConfig()) is other
    assert registry.config_types == (OtherConfig,)
    registry.remove("other")
    assert list(registry) == []


def test_what_is_no_family_is_refused() -> None:
    with pytest.raises(BoltgenError, match="a Space is no kernel family; register a KernelFamily"):
        Registry([KNOWN.space(WORKLOADS[KNOWN.name][0], SM80)])  # type: ignore[list-item]


def test_two_families_of_one_name_are_refused() -> None:
    with pytest.raises(BoltgenError, match=f"two kernel families of the name '{KNOWN.name}'"):
        Registry([KNOWN, KNOWN])


def test_configurations_that_name_no_family_are_refused() -> None:
    with pytest.raises(BoltgenError, match="int names no kernel family"):
        Registry([of_configs(int)])


def test_an_unknown_family_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BoltgenError, match=r"'cutlass9'; the families are .*b2b.*cutlass2.*move"):
        FAMILIES.named("cutlass9")


# --- every family --------------------------------------------------------------------------------


def test_every_family_beside_the_registry_is_in_it() -> None:
    assert {family.name for family in FAMILIES} == WORKLOADS.keys()


@pytest.mark.parametrize(("family", "workload", "arch"), TRIPLES)
def test_a_family_computes_what_it_does_not_reject(
    family: KernelFamily[Any], workload: Workload, arch: Arch
) -> None:
    for other in FAMILIES:
        reason = other.rejects(workload, arch)
        others = set() if workload is PACKED else {SURPASSED.get(family.name), *also(workload)}
        computes = other.name in {family.name, *others}
        assert (reason is None) == computes, reason
    space = next(each for each in spaces(workload, arch) if each.family == family.name)
    assert set(space.candidates) <= set(candidates(workload, arch))
    assert sorted(space.candidates) == sorted(set(space.candidates))
    for config in space.candidates[:: max(1, len(space.candidates) // 20)]:
        assert isinstance(config, family.config_type)
        assert FAMILIES.of(config) is family
        assert order(config) == (family.name, config)
        assert str(config)
        assert violations(workload, config, arch) == ()
        assert compiled(compiled(config)) == compiled(config)
        footprint = family.footprint(workload, config)
        assert 0 < footprint.registers <= arch.max_registers_per_thread
        assert 0 <= footprint.shared_memory_bytes <= arch.shared_memory_per_cta_bytes
        assert footprint.warps >= 1
        issued = family.instructions(workload, config, arch)
        assert issued.threadblocks >= 1
        assert 0.0 <= issued.idle < 1.0
        is_multiplied = family.name == "recurrent" or (
            workload.first.problem.has_b and family.name != "depthwise"
        )
        assert (issued.products > 0) == is_multiplied
        assert all(value > 0 for value in (issued.steps, issued.copies, issued.copy_bytes))
        assert issued.issued >= issued.products + issued.copies + issued.outputs > 0
        predicted = predict(workload, config, arch)
        assert 0 < predicted.time_us < 1e6
        assert predicted.bound


@pytest.mark.parametrize(("family", "workload", "arch"), TRIPLES)
def test_many_are_predicted_as_each_is(
    family: KernelFamily[Any], workload: Workload, arch: Arch
) -> None:
    space = family.space(workload, arch)
    configs = list(dict.fromkeys((*space.candidates, *space.legal_kernels())))
    one_by_one = [predict(workload, config, arch).time_us for config in configs]
    assert predicted_us(workload, configs, arch) == one_by_one
    assert predicted_us(workload, configs[:1], arch) == one_by_one[:1]
    assert predicted_us(workload, [], arch) == []


def test_many_are_predicted_beyond_64_bits() -> None:
    large = Workload.of(Gemm(m=2**26, n=2**20, k=2**22))
    configs = candidates(Workload.of(Gemm(m=4096, n=4096, k=4096)), SM80)[:20]
    one_by_one = [predict(large, config, SM80).time_us for config in configs]
    assert predicted_us(large, configs, SM80) == pytest.approx(one_by_one)
    assert min(one_by_one) > 1e6


@pytest.mark.parametrize(("family", "workload", "arch"), TRIPLES)
def test_a_kernel_has_a_text_and_its_launch_a_struct(
    family: KernelFamily[Any], workload: Workload, arch: Arch
) -> None:
    config = family.space(workload, arch).candidates[0]
    spec = kernel_spec(workload, config, arch.name)
    assert (spec.family, spec.config) == (family.name, compiled(config))
    canonical(spec)  # it has a key
    symbol = kernel_symbol(spec)
    assert family.stem(spec) in symbol
    view = family.view(spec, symbol, workspace_symbol(symbol))
    assert render(view) in render_kernel(spec).text
    assert {"Problem", "Epilogue", "Arch"} <= family.describe(spec).keys()
    text = render_kernel(spec).text
    assert all(f'#include "{header}"' in text for header in family.includes(spec))
    asked = launch(workload, config)
    assert asked.struct in structs()
    assert f"{asked.struct} const*" in render_kernel(spec).text
    made: Any = arguments(asked.struct, asked.sizes)
    for name, value in asked.sizes.items():
        if "[" not in name:
            assert getattr(made, name) == value
    assert asked.has_layers == hasattr(made, "layers")


@pytest.mark.parametrize(("family", "workload", "arch"), TRIPLES)
def test_a_library_holds_kernels_of_its_family_or_nothing(
    family: KernelFamily[Any], workload: Workload, arch: Arch
) -> None:
    specs = {
        spec
        for kind in family.library(arch, Level.QUICK, [8]).values()
        for group in kind
        for spec in group
    }
    assert {spec.family for spec in specs} <= {family.name}
    held = family.held(workload, arch, Level.QUICK)
    plain = family.ranking(workload)
    assert bool(held) == (plain is not None)
    if plain is not None:
        assert {kernel_spec(plain, config, arch.name) for config in held} <= specs


def test_a_configuration_of_a_family_that_rejects_the_workload_is_illegal_with_its_reason() -> None:
    chain, single = WORKLOADS["b2b"][0], WORKLOADS["cutlass2"][0]
    (violation,) = violations(chain, candidates(single, SM80)[0], SM80)
    assert violation.name == "family"
    assert "2 back to back" in violation.message
    assert "cutlass2" in violation.reason


def test_a_workload_without_a_configuration_names_the_families_that_tried() -> None:
    chain = gemm_chain(64, 64, (2000, 64), ("identity", "identity"))
    with pytest.raises(NoLegalConfigError, match="sm_80") as caught:
        spaces(chain, SM80)
    text = str(caught.value)
    assert "b2b: rules broken most often: no tile holds the columns of every layer" in text
    assert not any(f"{family.name}: " in text for family in FAMILIES if family.name != "b2b")


def test_a_rule_that_every_configuration_breaks_is_named_alone() -> None:
    images = Conv2d(n=1, h=4096, w=2048, c=64, k=256, r=3, s=3, padding=(1, 1, 1, 1))
    with pytest.raises(NoLegalConfigError) as caught:
        spaces(Workload.of(images), SM80)
    reason = str(caught.value).partition("cutlass2: ")[2]
    assert reason.startswith(
        "index_overflow: an image of the output: 4294967296 exceeds 2147483647 ("
    )
    assert "shared_memory" not in reason


def test_a_workload_of_no_family_is_answered_with_the_reasons_of_all() -> None:
    with pytest.raises(NoLegalConfigError, match="sm_80") as caught:
        spaces(Workload.of(MOVE, EPILOGUES["relu"]), SM80)
    for family in FAMILIES:
        assert f"{family.name}: " in str(caught.value)


def test_a_move_has_an_epilogue_in_no_family() -> None:
    workload = Workload.of(MOVE, EPILOGUES["relu"])
    assert all(family.rejects(workload, SM80) for family in FAMILIES)
