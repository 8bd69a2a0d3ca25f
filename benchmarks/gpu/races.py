"""Products and attention against the vendor's libraries; spaces recorded; compilers meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from statistics import median

from benchmarks.gpu.capture import Capturing
from benchmarks.gpu.items import Attend, Overlap, Product, Race, Space
from benchmarks.gpu.rig import Launched, Rig
from benchmarks.gpu.vendor import Vendor
from boltgen.bench.results import Form
from boltgen.ir.dtypes import DType
from boltgen.ir.outcome import Failure
from boltgen.measure.stats import summarise
from boltgen.problems.problem import Problem

# Compilers may run while others are measured where they change a kernel's time by less than this.
_LEAST_CHANGE = 0.01
# Samples of a kernel alone and beside compilers, in turn; and how many compilers there must be, of
# the builder's: else the answer is for fewer than there will be.
_ROUNDS, _SAMPLES, _LEAST_SHARE = 6, 10, 0.75


def least_bytes(problem: Problem) -> int:
    """Bytes of device memory that the problem moves at least: each tensor once."""
    return problem.a_bytes + problem.b_bytes + prod(problem.d_shape) * DType.F16.size_bytes


def run_race(rig: Rig, item: Race) -> Form:
    """Ours, the best of the bundle's configurations, and the vendor's modes, in turn."""
    problem = item.problem
    found = _raced(rig, item.product, lambda vendor, launches: vendor.replays(problem, launches))
    return {**found, "flops": problem.flops, "bytes": least_bytes(problem)}


def run_attention(rig: Rig, item: Attend) -> Form:
    """Ours, the best of the bundle's configurations, and PyTorch's backends, in turn."""
    found = _raced(rig, item.product, lambda vendor, launches: vendor.attention(item, launches))
    # Two products; a causal mask needs half of each.
    flops = 4 * item.heads * item.rows * item.keys * item.depth // (2 if item.is_causal else 1)
    rows = 2 * item.rows + 2 * item.keys
    size_bytes = item.heads * rows * item.depth * DType.F16.size_bytes
    return {**found, "flops": flops, "bytes": size_bytes}


def _raced(rig: Rig, product: Product, replays: Callable[[Vendor, int], Capturing]) -> Form:
    """Time the best choice and the vendor's columns in turn."""
    choice, once = rig.best(product)
    ours = rig.in_turn([rig.prepared(product, choice)], once.median_us)
    theirs, errors = rig.beside(lambda vendor: replays(vendor, ours.launches))
    timed = rig.timed({"boltgen": ours, **theirs})
    best = min(theirs, key=timed.us, default=None)
    return {
        **timed.form,
        "config": str(choice.config),
        "vendor_errors": errors,
        "ratios": {"vendor": timed.ratio(best)} if best else {},
    }


def run_space(rig: Rig, item: Space) -> Form:
    """Check and time every choice; the records are kept with the item."""
    outcomes = [rig.measure(item.product, choice) for choice in item.product.choices]
    failed = sum(isinstance(outcome, Failure) for outcome in outcomes)
    return {"recorded": len(outcomes), "failed": failed}


def run_overlap(rig: Rig, item: Overlap) -> Form:
    """Time a kernel alone and beside the compilers that run, A B A B, and decide.

    Raises:
        UnusableError: the kernel cannot be timed.
    """
    product, builders = item.product, rig.builders
    choice, once = rig.best(product)
    sampler = rig.in_turn([rig.prepared(product, choice)], once.median_us)
    wanted = int(_LEAST_SHARE * builders.jobs)
    alone, beside, running = _alone_and_beside(rig, sampler, wanted)
    change = median(beside) / median(alone) - 1.0 if beside else None
    form: Form = {
        "columns": {
            name: {"median_us": found.median, "low_us": found.low, "high_us": found.high}
            for name, samples in (("boltgen", alone), ("beside_compilers", beside))
            if samples
            for found in [summarise(samples)]
        },
        "compilers": running,
        "wanted": wanted,
        "overlap": change is not None and abs(change) < _LEAST_CHANGE,
    }
    if change is None:
        said = f"not told: {running} compilers ran, and {wanted} are wanted; they are stopped"
    else:
        said = f"{running} compilers change the time by {change:+.2%}: " + (
            "measuring goes on beside them" if form["overlap"] else "they are stopped meanwhile"
        )
    return {**form, "verdict": said}


def _alone_and_beside(
    rig: Rig, sampler: Launched, wanted: int
) -> tuple[list[float], list[float], int]:
    """Sample without compilers and with them, and say how few of them there were.

    Without `wanted` compilers there are no samples beside them.
    """
    builders, rounds = rig.builders, 1 if rig.turns.modelled else _ROUNDS
    samples = 1 if rig.turns.modelled else _SAMPLES
    alone: list[float] = []
    beside: list[float] = []
    fewest = builders.jobs
    try:
        for _ in range(rounds):
            builders.stop()
            alone += sampler.sample_us(samples)
            builders.resume()
            fewest = min(fewest, builders.running())
            beside += sampler.sample_us(samples)
    finally:
        builders.stop()
        sampler.close()
    return alone, beside if fewest >= max(wanted, 1) else [], fewest
