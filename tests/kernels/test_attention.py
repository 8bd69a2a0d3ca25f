"""Attention kernels on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.attention import KERNELS, attention, attention_case, scaled
from benchmarks.harness.chain_launch import (
    ChainInputs,
    ChainLaunch,
    judge_chain,
    random_chain_inputs,
)
from benchmarks.harness.kernel_launch import Cuda, KernelError, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.attention import FAMILY
from boltgen.families.heads.boundary import resized
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Workload
from tests.kernels.counting import counted_of
from tests.kernels.launch_heads import judge_heads
from tests.kernels.refusals import INVALID, MISALIGNED

_FEW = np.float16(-65504.0)  # what models mask with whose type has no infinity in mind


@pytest.fixture(scope="module")
def attention_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel_spec(workload, config, arch) for arch, config, workload in KERNELS.values()]
    return build_libraries(specs, tmp_path_factory.mktemp("attention"))


def _made_for(name: str) -> Workload:
    return KERNELS[name][2]


@pytest.mark.parametrize("batched", [False, True], ids=["one", "each"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str,
    batched: bool,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    arch, config, workload = KERNELS[name]
    assert not violations(workload, config, arch_named(arch))
    edges = boundaries(workload, config, arch_named(arch))
    assert len(edges) == 2
    for sized in (workload, *edges):
        case = attention_case(name, sized, batched_operands=batched)
        inputs = random_chain_inputs(case, rng)
        agreement = judge_chain(checking, attention_kernels[case.spec], case, inputs)
        assert agreement.within, f"{sized.short}: {agreement}"
    assert not checking.vgpu.findings()


@pytest.mark.parametrize(
    "name",
    [
        *("plain", "masked", "wide", "two-fragments", "narrow-vectors", "shared", "bf16", "sm75"),
        *("causal", "local", "split", "split-causal"),
    ],
)
def test_it_issues_what_its_family_says(
    name: str,
    cuda: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    arch, config, workload = KERNELS[name]
    found = FAMILY.instructions(workload, config, arch_named(arch))
    case = attention_case(name, workload)
    launched, inputs = (
        ChainLaunch(cuda, attention_kernels[case.spec], case),
        random_chain_inputs(case, rng),
    )
    counted = counted_of(cuda, lambda: launched.run(inputs))
    issued, warps = counted["instructions"], found.threadblocks * config.warps
    assert np.prod(counted["grid"]) == found.threadblocks
    counts = {"mma": warps * found.products, "matrix_load": warps * found.shared_loads}
    if workload.last.prologue.is_causal or config.splits > 1:
        # Some threadblocks have fewer steps.
        assert all(0.7 * most <= issued[kind] <= most for kind, most in counts.items())
    else:
        assert {kind: issued[kind] for kind in counts} == counts


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"shared"}))
def test_heads_that_lie_side_by_side_in_rows(
    name: str,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    heads, batch = 3, 6
    layers = tuple(
        replace(layer, problem=replace(layer.problem, batch=batch))
        for layer in _made_for(name).layers
    )
    case = attention_case(name, Workload(layers=layers))
    inputs = random_chain_inputs(case, rng)
    agreement = judge_heads(checking, attention_kernels[case.spec], case, inputs, heads)
    assert agreement.within, agreement
    assert not checking.vgpu.findings()


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 129, 200, 264])
@pytest.mark.parametrize("name", ["causal", "split-causal"])
def test_the_last_causal_row_has_all_keys(
    name: str,
    rows: int,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """As in decoding and in prefill behind a cache; rows that have no key at all are NaN."""
    keys = 136
    scores = _made_for(name).first.epilogue
    workload = attention(rows, keys, 64, 48, batch=2, scores=scores, causal=True)
    case = attention_case(name, workload)
    inputs = random_chain_inputs(case, rng)
    agreement = judge_chain(checking, attention_kernels[case.spec], case, inputs)
    assert agreement.within, agreement
    output = enclose(workload, inputs.a, inputs.layers).exact
    without = max(0, rows - keys)
    assert np.isnan(output[:, :without]).all()
    assert not np.isnan(output[:, without:]).any()
    assert not checking.vgpu.findings()


_SEQUENCES, _HEADS, _ROWS, _KEYS = 2, 4, 70, 130


@pytest.mark.parametrize(
    "leading",
    [(1, 1), (_SEQUENCES, 1), (1, _HEADS), (_SEQUENCES, _HEADS)],
    ids=["one", "each-sequence", "each-head", "each"],
)
@pytest.mark.parametrize("group", [1, 2])
def test_masks_and_keys_are_shared_between_heads_or_sequences(
    leading: tuple[int, int],
    group: int,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """A mask of rows and keys, one of keys and one of rows, ragged all."""
    batch = _SEQUENCES * _HEADS
    scores = scaled(64, LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN)
    workload = attention(_ROWS, _KEYS, 64, 48, batch=batch, scores=scores)
    case = attention_case("masked", workload)
    inputs = random_chain_inputs(case, rng)
    shapes = ((_ROWS, _KEYS), (_KEYS,), (_ROWS,))
    operands = [rng.uniform(-2, 2, (*leading, *shape)).astype(np.float16) for shape in shapes]
    # What models mask padding with, another number of keys in each slice.
    for number, keys in enumerate(operands[1].reshape(-1, _KEYS)):
        keys[_KEYS - 5 * number :] = _FEW
    layers = tuple(replace(each, b=each.b[::group].copy()) for each in inputs.layers)
    layers = (replace(layers[0], operands=tuple(operands)), *layers[1:])
    inputs = replace(inputs, layers=layers)
    library = attention_kernels[case.spec]
    agreement = judge_heads(checking, library, case, inputs, _HEADS, group=group)
    assert agreement.within, agreement
    assert not checking.vgpu.findings()


def _masked(mask: np.ndarray, rng: np.random.Generator) -> tuple[ChainInputs, Workload]:
    """Attention of one head, whose scores have `mask` added, in the kernel "masked"."""
    m, n = mask.shape
    workload = attention(
        m, n, 64, 48, scores=scaled(64, LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN)
    )
    inputs = random_chain_inputs(attention_case("masked", workload), rng)
    first = inputs.layers[0]
    operands = (mask, np.zeros(n, np.float16), np.zeros(m, np.float16))
    return replace(inputs, layers=(replace(first, operands=operands), inputs.layers[1])), workload


@pytest.mark.parametrize("value", [-np.inf, _FEW, np.inf, np.nan], ids=str)
def test_rows_that_are_masked_in_part_or_whole_are_as_the_oracle_says(
    value: float,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    rows, keys = 70, 130
    mask = np.zeros((rows, keys), np.float16)
    mask[np.triu_indices(rows, 1, keys)] = value  # causal: the last keys of most rows
    mask[69, :64] = value  # the first two steps have nothing
    mask[5, :] = value  # nothing at all
    mask[6, 129] = value
    inputs, workload = _masked(mask, rng)
    case = attention_case("masked", workload)
    actual = ChainLaunch(checking, attention_kernels[case.spec], case).run(inputs)
    expected = enclose(workload, inputs.a, inputs.layers)
    agreement = judge_chain(checking, attention_kernels[case.spec], case, inputs)
    assert agreement.within, agreement
    # The bound says something of all but rows without a value, which are NaN.
    undefined = np.zeros(rows, bool)
    if value == -np.inf:
        undefined = np.isneginf(mask).all(axis=1)
        assert undefined.sum() == 1
    elif not np.isfinite(value):
        undefined[:] = (mask != 0).any(axis=1)
    assert np.array_equal(np.isnan(actual), np.repeat(undefined[:, None], 48, axis=1))
    assert (expected.bound[~undefined] < 0.01).all()


@pytest.mark.parametrize("keys", [1, 31, 33, 63, 65, 255, 257, 511, 513, 701])
def test_threadblocks_that_share_keys_may_have_none(
    keys: int,
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Eight of them, 32 keys a step; and a kernel of one workload's sizes computes all others."""
    made_for = _made_for("split")
    workload = resized(made_for, {"m": 3, "n": keys})
    case = attention_case("split", workload)
    inputs = random_chain_inputs(case, rng)
    # The greatest score is in the last step, so that all shares are scaled.
    inputs.layers[0].operands[1][..., -1] = 8.0
    agreement = judge_chain(checking, attention_kernels[case.spec], case, inputs)
    assert agreement.within, agreement
    assert not checking.vgpu.findings()


def test_great_scores_do_not_overflow(
    checking: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Scores of hundreds, whose exponentials FP32 does not hold, in ascending order."""
    mask = np.zeros((66, 100), np.float16)
    mask[:] = np.linspace(0, 900, 100)
    inputs, workload = _masked(mask, rng)
    case = attention_case("masked", workload)
    agreement = judge_chain(checking, attention_kernels[case.spec], case, inputs)
    assert agreement.within, agreement


def test_the_bound_is_of_the_order_of_the_rounding_of_fp16(rng: np.random.Generator) -> None:
    workload = _made_for("plain")
    inputs = random_chain_inputs(attention_case("plain", workload), rng)
    expected = enclose(workload, inputs.a, inputs.layers)
    v = np.abs(inputs.layers[1].b.astype(np.float64)).max()
    assert expected.bound.max() < 3 * 2.0**-11 * v


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"k": 72}, INVALID, "k is 72; it must be at most 64"),
        ({"columns": 72}, INVALID, "layers[1].n is 72; it must be at most 64"),
        ({"k": 60}, MISALIGNED, "is 60; this kernel needs a multiple of 8"),
        ({"columns": 60}, MISALIGNED, "is 60; this kernel needs a multiple of 8"),
    ],
    ids=["depth", "columns", "k", "v"],
)
def test_what_a_tile_does_not_hold_is_refused_by_the_kernel_too(
    change: dict[str, int],
    code: int,
    message: str,
    cuda: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    sizes = {"m": 20, "n": 40, "k": 64, "columns": 64} | change
    workload = attention(**sizes, scores=scaled(64))
    case = replace(attention_case("plain", _made_for("plain")), chain=workload)
    inputs = random_chain_inputs(case, np.random.default_rng(0))
    with pytest.raises(KernelError) as caught:
        ChainLaunch(cuda, attention_kernels[case.spec], case).run(inputs)
    assert message in str(caught.value)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("heads", 0, INVALID),
        ("head_stride_a", 12, MISALIGNED),
        ("layers[0].head_stride_b", 4, MISALIGNED),
        ("layers[1].head_stride_b", 4, MISALIGNED),
        ("head_stride_d", 2, MISALIGNED),
        ("layers[1].group_b", 0, INVALID),
    ],
)
def test_heads_that_vectors_do_not_fit_are_refused_by_the_kernel_too(
    field: str,
    value: int,
    code: int,
    cuda: Cuda,
    attention_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    case = attention_case("plain", _made_for("plain"))
    asked = launch(case.chain, case.spec.config)
    somewhere = dict.fromkeys(("a", "d", "layers[0].b", "layers[1].b"), 0x1000)
    args = arguments(asked.struct, {**asked.sizes, **somewhere, field: value})
    cuda.become(case.spec.arch)
    with pytest.raises(KernelError) as caught:
        attention_kernels[case.spec].launch(kernel_symbol(case.spec), args)
    assert f"{field} is {value};" in str(caught.value)
    assert caught.value.code == code
