"""Kernels of the family `attention_sm90` against the oracle, executed with every check on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.attention import attention, scaled
from benchmarks.cases.attention_sm90 import KERNELS, SM90A, attention_sm90_case
from benchmarks.harness.chain_launch import ChainLaunch, judge_chain, random_chain_inputs
from benchmarks.harness.kernel_launch import Cuda, KernelError, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.families.attention_sm90 import FAMILY
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import kernel_spec
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.kernels.launch_heads import judge_heads
from tests.kernels.refusals import INVALID, MISALIGNED

_FEW = np.float16(-65504.0)  # what models mask with whose type has no infinity in mind


@pytest.fixture(scope="module")
def hopper_attention(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel_spec(workload, config, SM90A.name) for config, workload in KERNELS.values()]
    return build_libraries(specs, tmp_path_factory.mktemp("attention_sm90"))


@pytest.fixture
def small_device(checking: Cuda) -> Iterator[Cuda]:
    """The one that kernels are checked on before they ship, with every check on."""
    checking.vgpu.set_option("sms", CHECKED_SMS)
    yield checking
    checking.vgpu.set_option("sms", 0)


def _workloads(name: str) -> tuple[Workload, ...]:
    """What a kernel is made for; and its boundaries: large, small, persistent."""
    config, workload = KERNELS[name]
    edges = FAMILY.boundaries(workload, config, SM90A)
    assert len(edges) == 3
    return workload, *edges


@pytest.mark.parametrize("index", range(4), ids=["own", "large", "small", "persistent"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str,
    index: int,
    small_device: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = attention_sm90_case(name, _workloads(name)[index], batched_operands=index == 0)
    inputs = random_chain_inputs(case, rng)
    agreement = judge_chain(small_device, hopper_attention[case.spec], case, inputs)
    assert agreement.within, f"{case.chain.short}: {agreement}"
    assert [finding.message for finding in small_device.vgpu.findings()] == []


def test_causal_heads_that_l2_does_not_hold_come_in_sections(
    small_device: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Two heads have 3 MB of keys and values, as much as L2: sections have 2, 2 and 1 of 5."""
    workload = attention(200, 6000, 64, 64, batch=5, scores=scaled(64), causal=True)
    case = attention_sm90_case("three", workload)
    agreement = judge_chain(
        small_device, hopper_attention[case.spec], case, random_chain_inputs(case, rng)
    )
    assert agreement.within, agreement
    assert [finding.message for finding in small_device.vgpu.findings()] == []


_SEQUENCES, _HEADS, _ROWS, _KEYS = 2, 4, 70, 130


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"shared"}))
def test_heads_that_lie_side_by_side_in_rows(
    name: str,
    checking: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    layers = tuple(
        replace(layer, problem=replace(layer.problem, batch=6)) for layer in KERNELS[name][1].layers
    )
    case = attention_sm90_case(name, Workload(layers=layers))
    inputs = random_chain_inputs(case, rng)
    agreement = judge_heads(checking, hopper_attention[case.spec], case, inputs, 3)
    assert agreement.within, agreement
    assert [finding.message for finding in checking.vgpu.findings()] == []


@pytest.mark.parametrize(
    "leading",
    [(1, 1), (_SEQUENCES, 1), (1, _HEADS), (_SEQUENCES, _HEADS)],
    ids=["one", "each-sequence", "each-head", "each"],
)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_masks_and_keys_are_shared_between_heads_or_sequences(
    leading: tuple[int, int],
    group: int,
    checking: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """A mask of rows and keys, one of keys and one of rows, ragged all."""
    scores = scaled(128, LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN)
    workload = attention(_ROWS, _KEYS, 128, 48, batch=_SEQUENCES * _HEADS, scores=scores)
    case = attention_sm90_case("masked", workload)
    inputs = random_chain_inputs(case, rng)
    shapes = ((_ROWS, _KEYS), (_KEYS,), (_ROWS,))
    operands = [rng.uniform(-2, 2, (*leading, *shape)).astype(np.float16) for shape in shapes]
    # What models mask padding with, another number of keys in each slice.
    for number, keys in enumerate(operands[1].reshape(-1, _KEYS)):
        keys[_KEYS - 5 * number :] = _FEW
    layers = tuple(replace(each, b=each.b[::group].copy()) for each in inputs.layers)
    layers = (replace(layers[0], operands=tuple(operands)), *layers[1:])
    inputs = replace(inputs, layers=layers)
    agreement = judge_heads(
        checking, hopper_attention[case.spec], case, inputs, _HEADS, group=group
    )
    assert agreement.within, agreement
    assert [finding.message for finding in checking.vgpu.findings()] == []


@pytest.mark.parametrize("rows", [1, 63, 128, 129, 200, 264])
def test_the_last_causal_row_has_all_keys(
    rows: int,
    checking: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """As in decoding and in prefill behind a cache; rows that have no key at all are NaN."""
    keys = 200
    scores = scaled(128, LoadKind.ROW)
    workload = attention(rows, keys, 128, 120, batch=2, scores=scores, causal=True)
    case = attention_sm90_case("causal", workload)
    inputs = random_chain_inputs(case, rng)
    agreement = judge_chain(checking, hopper_attention[case.spec], case, inputs)
    assert agreement.within, agreement
    output = enclose(workload, inputs.a, inputs.layers).exact
    without = max(0, rows - keys)
    assert np.isnan(output[:, :without]).all()
    assert not np.isnan(output[:, without:]).any()
    assert [finding.message for finding in checking.vgpu.findings()] == []


@pytest.mark.parametrize("value", [-np.inf, _FEW, np.inf, np.nan], ids=str)
def test_rows_that_are_masked_in_part_or_whole_are_as_the_oracle_says(
    value: float,
    checking: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    mask = np.zeros((_ROWS, _KEYS), np.float16)
    mask[np.triu_indices(_ROWS, 1, _KEYS)] = value  # causal: the last keys of most rows
    mask[69, :64] = value  # the first step has nothing
    mask[5, :] = value  # nothing at all
    workload = attention(
        *mask.shape, 128, 48, scores=scaled(128, LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN)
    )
    case = attention_sm90_case("masked", workload)
    inputs = random_chain_inputs(case, rng)
    operands = (mask, np.zeros(_KEYS, np.float16), np.zeros(_ROWS, np.float16))
    first = replace(inputs.layers[0], operands=operands)
    inputs = replace(inputs, layers=(first, inputs.layers[1]))
    library = hopper_attention[case.spec]
    actual = ChainLaunch(checking, library, case).run(inputs)
    agreement = judge_chain(checking, library, case, inputs)
    assert agreement.within, agreement
    # The bound says something of all but rows without a value, which are NaN.
    undefined = np.zeros(_ROWS, bool)
    if value == -np.inf:
        undefined = np.isneginf(mask).all(axis=1)
        assert undefined.sum() == 1
    elif not np.isfinite(value):
        undefined[:] = (mask != 0).any(axis=1)
    assert np.array_equal(np.isnan(actual), np.repeat(undefined[:, None], 48, axis=1))


def test_what_lies_in_other_heads_does_not_reach_a_ragged_one(
    checking: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Behind the keys of one head lie those of the next: TMA must end where the head does."""
    workload = attention(70, 130, 64, 64, batch=3, scores=scaled(64))
    case = attention_sm90_case("plain", workload)
    inputs = random_chain_inputs(case, rng)
    for values in (inputs.a, *(layer.b for layer in inputs.layers)):
        values[1] = np.inf
    actual = ChainLaunch(checking, hopper_attention[case.spec], case).run(inputs)
    assert np.isfinite(actual[[0, 2]]).all()
    assert np.isnan(actual[1]).all()


@pytest.mark.parametrize("name", KERNELS)
def test_shared_memory_is_what_legality_says_and_free_of_bank_conflicts(
    name: str,
    cuda: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    config, workload = KERNELS[name]
    case = attention_sm90_case(name, _workloads(name)[2])
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    try:
        judge_chain(cuda, hopper_attention[case.spec], case, random_chain_inputs(case, rng))
        (launched,), (counted,) = cuda.vgpu.launches(), cuda.vgpu.counters()
    finally:
        cuda.vgpu.set_option("counters", "off")
    footprint = FAMILY.footprint(workload, config)
    assert launched.dynamic_shared_bytes == footprint.shared_memory_bytes
    # Only TMA and wgmma go there.
    assert counted["shared"]["requests"] == 0


def test_ptxas_neither_serialises_wgmma_nor_spills(
    hopper_attention: dict[KernelSpec, KernelLibrary], tmp_path: Path
) -> None:
    ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
    for path in {library.path for library in hopper_attention.values()}:
        for ptx in embedded_ptx(path.read_bytes()):
            (tmp_path / "kernels.ptx").write_text(ptx)
            command = [ptxas, "-arch=sm_90a", "-v", "kernels.ptx", "-o", "kernels.cubin"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            said = done.stdout + done.stderr
            assert said.count("Used ") == ptx.count(".entry ") > 0
            assert said.count(" 0 bytes spill stores, 0 bytes spill loads") == said.count("Used ")
            assert "serialized" not in said


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
def test_what_tma_cannot_load_and_the_tile_not_hold_is_refused_by_the_kernel_too(
    change: dict[str, int],
    code: int,
    message: str,
    cuda: Cuda,
    hopper_attention: dict[KernelSpec, KernelLibrary],
) -> None:
    sizes = {"m": 20, "n": 40, "k": 64, "columns": 64} | change
    workload = attention(**sizes, scores=scaled(64))
    case = replace(attention_sm90_case("plain", KERNELS["plain"][1]), chain=workload)
    inputs = random_chain_inputs(case, np.random.default_rng(0))
    with pytest.raises(KernelError) as caught:
        ChainLaunch(cuda, hopper_attention[case.spec], case).run(inputs)
    assert message in str(caught.value)
    assert caught.value.code == code
