"""Lanes that come to an instruction together and name different members: labeled partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.harness.driver import Array, Driver
from tests.vgpu.cuda_programs import link, run
from tests.vgpu.test_warp_ops import per_thread

# Lanes 0, 3, 6, ... are one group, 1, 4, ... the next.
GROUPS = [[lane for lane in range(32) if lane % 3 == group] for group in range(3)]
MASKS = """rem.u32 %r4, %r0, 3; mov.u32 %r5, 0x49249249; shl.b32 %r5, %r5, %r4;
and.b32 %r6, %r0, 8; setp.ne.u32 %p, %r6, 0; mul.lo.u32 %r7, %r0, 5;"""


def of_group(value: dict[int, int]) -> list[int]:
    return [value[lane % 3] for lane in range(32)]


def bits(lanes: list[int]) -> int:
    return sum(1 << lane for lane in lanes)


def answers(driver: Driver, body: str) -> Array:
    return per_thread(driver, MASKS + body)


def test_votes_are_taken_in_each_group(driver: Driver) -> None:
    ballots = {g: bits([lane for lane in lanes if lane & 8]) for g, lanes in enumerate(GROUPS)}
    found = answers(driver, "vote.sync.ballot.b32 %r9, %p, %r5;")
    assert found.tolist() == of_group(ballots)
    # Only lanes of the first group vote for it.
    first = "setp.eq.and.u32 %p, %r4, 0, %p;"
    for mode, want in (("any", 1), ("all", 0), ("uni", 0)):
        body = f"{first} vote.sync.{mode}.pred %q, %p, %r5; selp.b32 %r9, 1, 0, %q;"
        others = {"any": 0, "all": 0, "uni": 1}[mode]
        assert answers(driver, body).tolist() == of_group({0: want, 1: others, 2: others})


def test_reductions_and_matches_stay_in_their_group(driver: Driver) -> None:
    largest = {g: 5 * max(lanes) for g, lanes in enumerate(GROUPS)}
    found = answers(driver, "redux.sync.max.s32 %r9, %r7, %r5;")
    assert found.tolist() == of_group(largest)
    same = answers(driver, "match.any.sync.b32 %r9, %r6, %r5;").tolist()
    for lane in range(32):
        alike = [k for k in GROUPS[lane % 3] if k & 8 == lane & 8]
        assert same[lane] == bits(alike)
    body = """setp.eq.u32 %q, %r4, 1; selp.b32 %r8, 7, %r0, %q;
    match.all.sync.b32 %r9|%s, %r8, %r5; selp.b32 %r10, 0, 5, %s; add.u32 %r9, %r9, %r10;"""
    assert answers(driver, body).tolist() == of_group({0: 5, 1: bits(GROUPS[1]), 2: 5})


def test_each_group_elects_its_first_lane(driver: Driver) -> None:
    body = "elect.sync %r8|%q, %r5; selp.b32 %r9, 100, 0, %q; add.u32 %r9, %r9, %r8;"
    want = [group[0] + 100 * (lane == group[0]) for lane, group in enumerate(GROUPS * 11)][:32]
    assert answers(driver, body).tolist() == want


def test_a_group_that_has_not_come_whole_is_found(checked: Driver) -> None:
    body = """setp.ne.u32 %q, %r0, 31; @!%q bra OUT; redux.sync.add.u32 %r9, %r7, %r5; OUT:"""
    answers(checked, "mov.u32 %r9, 0;" + body)
    kinds = [finding.kind for finding in checked.vgpu.findings()]
    assert kinds == ["missing lanes"]


def test_the_spelling_of_cub(driver: Driver) -> None:
    """The mode before .sync, and a predicate that is a number."""
    found = answers(driver, "vote.ballot.sync.b32 %r9, %p, -1;")
    assert (found == bits([lane for lane in range(32) if lane & 8])).all()
    assert (answers(driver, "vote.sync.ballot.b32 %r9, 1, -1;") == 0xFFFFFFFF).all()
    assert (answers(driver, "vote.ballot.sync.b32 %r9, 0, -1;") == 0).all()


def test_a_program_with_labeled_partitions(library_folder: Path, tmp_path: Path) -> None:
    program = link("labels", library_folder / "libcudart.so.13", tmp_path, arch="sm_80")
    assert run(program, library_folder, device="sm_80")[0] == "passed\n"


def test_shared_memory_that_is_polled_belongs_to_its_block(driver: Driver) -> None:
    """Volatile loads of shared memory do not make the scheduler set a block aside."""
    body = """ld.volatile.shared.u32 %r4, [words]; bar.sync 0; add.u32 %r9, %r4, %r0;"""
    before = ".shared .align 4 .b8 words[128];"
    first = "mov.u32 %r4, 7; st.volatile.shared.u32 [words], %r4; bar.sync 0;"
    found = per_thread(driver, first + body * 100, threads=256, blocks=2, before=before)
    np.testing.assert_array_equal(found, np.tile(np.arange(256, dtype=np.uint32) + 7, 2))
