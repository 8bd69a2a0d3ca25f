"""Keys that masks hide: kernels compute what the oracle does, and skip what is hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np
import pytest

from benchmarks.cases.attention import attention, scaled, tile
from benchmarks.cases.attention_sm90 import tile as tile_sm90
from benchmarks.cases.chains import ChainCase
from benchmarks.harness.chain_launch import (
    ChainInputs,
    ChainLaunch,
    judge_chain,
    random_chain_inputs,
)
from benchmarks.harness.kernel_launch import Array, Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.families.heads.boundary import resized
from boltgen.families.registry import kernel_spec
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.key_masks import HIDDEN
from boltgen.problems.oracle import enclose
from boltgen.problems.reference import compare
from boltgen.problems.workload import Workload

_BATCH = 3
_DEPTH = 64


def _hiding(op: BinaryOp = BinaryOp.ADD, dtype: DType = DType.F16) -> ElementwiseGraph:
    """Scores over the root of their depth, and a mask whose finite numbers hide keys too."""
    graph = ElementwiseBuilder()
    x = graph.binary(BinaryOp.MULTIPLY, 0, graph.scalar(_DEPTH**-0.5))
    graph.binary(op, x, graph.load(LoadKind.ROW, dtype, hides=True))
    return graph.build()


@dataclass(frozen=True)
class Made:
    """A kernel: where it runs, its configuration, and what it is made for."""

    arch: str
    config: Any
    rows: int
    keys: int
    scores: ElementwiseGraph
    causal: bool = False
    window: int = 0

    @property
    def workload(self) -> Workload:
        """The sequences of a batch, of one head each."""
        return attention(
            self.rows,
            self.keys,
            _DEPTH,
            64,
            batch=_BATCH,
            scores=self.scores,
            causal=self.causal,
            window=self.window,
        )

    @property
    def is_finite(self) -> bool:
        """Whether finite numbers hide keys too."""
        return self.scores.loads[0].hides


_EXACT = scaled(_DEPTH, LoadKind.ROW)
_WIDE = scaled(_DEPTH, LoadKind.ROW, dtype=DType.F32)
KERNELS: Mapping[str, Made] = {
    "sm75": Made("sm_75", tile(64, 32, 64, 64), 70, 200, _hiding()),
    "sm80": Made("sm_80", tile(64, 32, 64, 64, stages=3), 70, 200, _hiding()),
    "exact": Made("sm_80", tile(64, 64, 64, 64), 130, 328, _EXACT),
    "minimum": Made("sm_80", tile(64, 64, 64, 64), 5, 328, _hiding(BinaryOp.MINIMUM, DType.F32)),
    "causal": Made("sm_80", tile(64, 32, 64, 64), 200, 200, _hiding(), causal=True),
    "exact-causal": Made("sm_75", tile(64, 32, 64, 64), 200, 200, _EXACT, causal=True),
    "local": Made("sm_80", tile(64, 32, 64, 64), 200, 264, _hiding(), causal=True, window=100),
    "split": Made("sm_80", tile(64, 32, 64, 64, splits=4), 9, 520, _hiding()),
    "split-causal": Made("sm_80", tile(64, 32, 64, 64, splits=3), 70, 520, _hiding(), causal=True),
    "sm90": Made("sm_90a", tile_sm90(64, 64, 64, 64), 70, 328, _hiding()),
    "sm90-exact": Made("sm_90a", tile_sm90(128, 64, 64, 64), 130, 328, _WIDE),
    "sm90-causal": Made("sm_90a", tile_sm90(128, 64, 64, 64), 200, 264, _hiding(), causal=True),
    "sm90-local": Made(
        "sm_90a", tile_sm90(64, 64, 64, 64), 200, 264, _hiding(), causal=True, window=100
    ),
}


@pytest.fixture(scope="module")
def masked_kernels(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel_spec(each.workload, each.config, each.arch) for each in KERNELS.values()]
    return build_libraries(specs, tmp_path_factory.mktemp("attention_keys"))


def _case(name: str, workload: Workload | None = None) -> ChainCase:
    made = KERNELS[name]
    sized = workload or made.workload
    spec = kernel_spec(sized, made.config, made.arch)
    assert spec == kernel_spec(made.workload, made.config, made.arch)
    return ChainCase(name=name, spec=spec, chain=sized, batched_operands=True)


def _lengths(keys: int) -> Array:
    """Padded behind: a short sequence, one whose last key ends a step, and a whole one."""
    return np.arange(keys) < np.array([[keys // 5], [128], [keys]])


def _behind(keys: int) -> Array:
    """Padded before."""
    return _lengths(keys)[:, ::-1]


def _holes(keys: int) -> Array:
    """Keys here and there, a single one, and all but two steps in the middle."""
    seen = np.zeros((_BATCH, keys), bool)
    seen[0, [70, 71, 133, keys - 60]] = True
    seen[1, 65] = True
    seen[2, : keys // 4] = seen[2, keys // 2 :] = True
    return seen


def _none(keys: int) -> Array:
    """A sequence without any key, between two others."""
    seen = _lengths(keys)
    seen[1] = False
    return seen


MASKS: Mapping[str, Callable[[int], Array]] = {
    "lengths": _lengths,
    "behind": _behind,
    "holes": _holes,
    "none": _none,
}


def _mask(made: Made, seen: Array, hidden: float) -> Array:
    graph = made.scores
    neutral = inf if BinaryOp.MINIMUM in {getattr(node, "op", None) for node in graph.nodes} else 0
    return np.where(seen, neutral, hidden).astype(graph.loads[0].dtype.numpy)


def _inputs(case: ChainCase, mask: Array, rng: np.random.Generator) -> ChainInputs:
    inputs = random_chain_inputs(case, rng)
    layers = replace(inputs.layers[0], operands=(mask,)), inputs.layers[1]
    return replace(inputs, layers=layers)


@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("name", KERNELS)
def test_what_masks_hide_is_as_the_oracle_says(
    name: str,
    which: str,
    checking: Cuda,
    masked_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    made, case = KERNELS[name], _case(name)
    seen = MASKS[which](made.keys)
    for hidden in (HIDDEN, -inf) if made.is_finite else (-inf,):
        inputs = _inputs(case, _mask(made, seen, hidden), rng)
        actual = ChainLaunch(checking, masked_kernels[case.spec], case).run(inputs)
        expected = enclose(case.chain, inputs.a, inputs.layers)
        agreement = compare(actual, expected.exact, expected.bound)
        assert agreement.within, f"{hidden}: {agreement}"
        assert np.array_equal(np.isnan(actual), np.isnan(expected.exact))
        assert np.isnan(actual[1]).all() == (hidden == -inf and which == "none")
    assert [finding.message for finding in checking.vgpu.findings()] == []


def _steps(made: Made, seen: Array) -> int:
    """The steps of keys of all tiles of rows of all sequences, of which none is hidden as a whole
    before the first key or behind the last one.
    """
    total = 0
    rows, keys = made.config.rows, made.config.keys
    ahead = made.keys - made.rows
    for live, first in product(seen, range(0, made.rows, rows)):
        last = min(first + rows, made.rows) - 1
        end = min(made.keys, first + rows + ahead) if made.causal else made.keys
        step, behind = 0, ceil(end / keys)
        if made.window:
            step = max(0, first + ahead - made.window + 1) // keys
        found = np.flatnonzero(live[: behind * keys])
        found = found[found >= step * keys]
        ends = {found[0], found[-1]} if found.size else set()
        if made.causal and made.is_finite:
            ends = {key for key in ends if key <= first + ahead}
            if made.window:
                ends = {key for key in ends if key > last + ahead - made.window}
        if ends:
            step, behind = found[0] // keys, found[-1] // keys + 1
        total += behind - step
    return int(total)


@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("name", KERNELS)
def test_steps_of_hidden_keys_are_not_multiplied(
    name: str,
    which: str,
    cuda: Cuda,
    masked_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Tensor cores do as many operations as there are steps from the first key to the last."""
    made, case = KERNELS[name], _case(name)
    seen = MASKS[which](made.keys)
    config = made.config
    of_step = 2 * config.rows * config.keys * (config.depth + config.columns)
    hidden = HIDDEN if made.is_finite else -inf
    counted = []
    for mask in (seen, np.ones_like(seen)):
        inputs = _inputs(case, _mask(made, mask, hidden), rng)
        found = _counted(cuda, masked_kernels[case.spec], case, inputs)
        assert found["mma_operations"] == _steps(made, mask) * of_step
        counted.append(found["mma_operations"])
    if which != "holes" or not made.causal:
        assert counted[0] < counted[1]


def _counted(
    cuda: Cuda, library: KernelLibrary, case: ChainCase, inputs: ChainInputs
) -> dict[str, Any]:
    cuda.vgpu.set_option("counters", "on")
    cuda.vgpu.clear_launches()
    try:
        ChainLaunch(cuda, library, case).run(inputs)
        return cuda.vgpu.counters()[-1]
    finally:
        cuda.vgpu.set_option("counters", "off")


@pytest.mark.parametrize("keys", [2, 30, 64, 130, 390])
@pytest.mark.parametrize("name", ["sm75", "sm80", "split", "sm90"])
def test_one_kernel_skips_keys_of_sequences_of_any_length(
    name: str,
    keys: int,
    checking: Cuda,
    masked_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    workload = resized(KERNELS[name].workload, {"m": 3, "n": keys})
    case = _case(name, workload)
    lengths = np.array([[1], [(keys + 1) // 2], [keys]])
    mask = _mask(KERNELS[name], np.arange(keys) < lengths, HIDDEN)
    inputs = _inputs(case, mask, rng)
    agreement = judge_chain(checking, masked_kernels[case.spec], case, inputs)
    assert agreement.within, agreement
    assert [finding.message for finding in checking.vgpu.findings()] == []


@pytest.mark.parametrize("name", ["exact", "sm90-exact"])
def test_a_key_whose_mask_is_finite_is_not_skipped_where_nobody_says_so(
    name: str,
    cuda: Cuda,
    masked_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    """Its score may be greater than all others by as much."""
    made, case = KERNELS[name], _case(name)
    seen = np.arange(made.keys) < np.full((_BATCH, 1), 5)
    inputs = _inputs(case, _mask(made, seen, -65504.0), rng)
    found = _counted(cuda, masked_kernels[case.spec], case, inputs)
    config = made.config
    of_step = 2 * config.rows * config.keys * (config.depth + config.columns)
    assert found["mma_operations"] == _steps(made, np.ones_like(seen)) * of_step
