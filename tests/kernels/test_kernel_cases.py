"""The cases themselves: what they leave out is not tested."""

from __future__ import annotations

import itertools

from benchmarks.cases.kernels import (
    CONFIGS,
    DIMENSIONS,
    EPILOGUES,
    all_cases,
    covering,
    covering_cases,
)
from boltgen.ir.elementwise import Binary, BinaryOp, Unary
from boltgen.ir.functions import UnaryOp


def test_every_pair_of_values_occurs_together() -> None:
    rows = covering(DIMENSIONS, lambda _: True)
    for p, q in itertools.combinations(DIMENSIONS, 2):
        pairs = {(row[p], row[q]) for row in rows}
        assert pairs == set(itertools.product(DIMENSIONS[p], DIMENSIONS[q])), (p, q)


def test_only_alignment_1_in_more_than_two_stages_is_left_out() -> None:
    for case in covering_cases():
        smallest = min(case.spec.traits.alignment_a, case.spec.traits.alignment_b)
        assert smallest > 1 or case.spec.config.stages == 2
    seen = {(case.spec.config, case.spec.traits.alignment_a) for case in covering_cases()}
    for _, config in CONFIGS.values():
        for alignment in (8, 4, 2, 1) if config.stages == 2 else (8, 4, 2):
            assert (config.kernel, alignment) in seen


def test_every_operator_occurs() -> None:
    nodes = [node for epilogue in EPILOGUES.values() for node in epilogue.nodes]
    assert {node.op for node in nodes if isinstance(node, Unary)} == set(UnaryOp)
    assert {node.op for node in nodes if isinstance(node, Binary)} == set(BinaryOp)


def test_names_differ() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
