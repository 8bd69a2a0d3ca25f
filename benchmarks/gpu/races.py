"""Sections gemm, conv and tune: a product against the vendor's library; a whole space recorded."""

from __future__ import annotations

from datetime import datetime, timezone
from math import prod

from benchmarks.gpu.items import Product, Race, Space
from benchmarks.gpu.rig import Rig
from boltgen.bench.slices import Form, packed
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType
from boltgen.ir.outcome import Failure
from boltgen.problems.problem import Problem
from boltgen.tuning.database.records import Record, to_line


def least_bytes(problem: Problem) -> int:
    """Bytes of device memory that the product moves at least: each tensor once."""
    shapes = (problem.a_shape, problem.b_shape, problem.d_shape)
    return sum(prod(shape) * DType.F16.size_bytes for shape in shapes)


def run_race(rig: Rig, item: Race) -> Form:
    """Ours, the best of the bundle's configurations, and the vendor's modes, in turn."""
    problem = item.problem
    choice, once = rig.best(item.product)
    ours = rig.in_turn([rig.prepared(item.product, choice)], once.median_us)
    theirs, errors = rig.beside(rig.vendor.replays(problem, ours.launches) if rig.vendor else {})
    timed = rig.timed({"boltgen": ours, **theirs})
    best = min(theirs, key=timed.us, default=None)
    return {
        **timed.form,
        "config": str(choice.config),
        "flops": problem.flops,
        "bytes": least_bytes(problem),
        "vendor_errors": errors,
        "ratios": {"vendor": timed.ratio(best)} if best else {},
    }


def run_space(rig: Rig, item: Space) -> Form:
    """Every choice checked and timed; records as `boltgen db export` writes them."""
    product: Product = item.product
    lines = []
    failed = 0
    for choice in product.choices:
        outcome = rig.measure(product, choice)
        failed += isinstance(outcome, Failure)
        trial = Trial(workload=product.workload, config=choice.config)
        lines.append(
            to_line(
                Record(
                    trial=trial,
                    kernel=rig.contents[choice.kernel],
                    device=rig.device,
                    toolchain=rig.toolchain,
                    outcome=outcome,
                    measured_at=datetime.now(timezone.utc),
                )
            )
        )
    return {
        "records": packed("\n".join(lines).encode()),
        "recorded": len(lines),
        "failed": failed,
    }
