"""The share of a model's work that boltgen does, in a line."""

from __future__ import annotations

from boltgen.artifact.coverage import coverage
from boltgen.problems.region import Placement


def _placed(operator: str, flops: int, region: str | None = None, reason: str = "") -> Placement:
    return Placement(operator=operator, shape=(1,), region=region, reason=reason, flops=flops)


def test_the_share_is_of_floating_point_operations_and_the_rest_is_named_by_size() -> None:
    found = coverage(
        [
            _placed("matmul + relu", 3_000_000_000, "boltgen_0_matmul"),
            _placed("conv2d", 200_000_000, reason="it has groups=4"),
            _placed("softmax", 0, reason="not a product"),
            *[_placed("matmul", 400_000_000, reason="an operand is float32")] * 2,
        ]
    )
    assert found.share == 0.75 and not found.is_low
    assert [(rest.operator, rest.count, rest.flops) for rest in found.rest] == [
        ("matmul", 2, 800_000_000),
        ("conv2d", 1, 200_000_000),
    ]
    line = found.verdict()
    assert "75 % of 4 GFLOP" in line
    assert line.index("2 x matmul, 20 %: an operand") < line.index("1 x conv2d, 5 %: it has groups")


def test_what_is_nearly_all_is_not_called_all() -> None:
    nearly = coverage([_placed("a", 10**9, "r"), _placed("b", 1, reason="why")])
    assert "99.9 % of 1 GFLOP" in nearly.verdict() and "0.1 %: why" in nearly.verdict()
    assert "100 % of 10 FLOP" in coverage([_placed("a", 10, "r")]).verdict()


def test_a_low_share_and_a_model_without_products() -> None:
    assert coverage([_placed("a", 1, "r"), _placed("b", 2, reason="why")]).is_low
    none = coverage([_placed("relu", 0, reason="not a product")])
    assert not none.is_low and none.share == 1.0
    assert "no matrix products" in none.verdict()


def test_no_more_than_three_kinds_are_named() -> None:
    found = coverage([_placed("matmul", n, reason=f"reason {n}") for n in range(1, 6)])
    assert "reason 5" in found.verdict() and "reason 2" not in found.verdict()
    assert "2 more kinds" in found.verdict()
