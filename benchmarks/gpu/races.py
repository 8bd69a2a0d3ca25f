"""Sections gemm, conv and tune: a product against the vendor's library; a whole space recorded."""

from __future__ import annotations

from datetime import datetime, timezone
from math import prod
from typing import Any

from benchmarks.gpu.items import Product, Race, Space
from benchmarks.gpu.padding import padded_images
from benchmarks.gpu.results import packed
from benchmarks.gpu.rig import Rig
from benchmarks.gpu.timing import compare
from boltgen.ir.dtypes import DType
from boltgen.ir.problem import Gemm, Problem
from boltgen.ir.reference import input_shapes, output_shape
from boltgen.tuning.outcome import Failure, Trial
from boltgen.tuning.records import Record, kernel_key, to_line


def least_bytes(problem: Problem) -> int:
    """Bytes of device memory that the product moves at least: each tensor once."""
    shapes = (*input_shapes(problem), output_shape(problem))
    return sum(prod(shape) * DType.F16.size_bytes for shape in shapes)


def run_race(rig: Rig, item: Race) -> dict[str, Any]:
    """Ours, the best of the bundle's configurations, and the vendor's modes, in turn."""
    problem = item.problem
    choice, once = rig.best(item.product)
    product = rig.prepared(item.product, choice)
    with padded_images(rig, item, product) as moves:
        ours = rig.in_turn([*moves, product], once.median_us)
        theirs, errors = rig.beside(
            rig.vendor.replays(problem, ours.launches)
            if rig.vendor and not isinstance(problem, Gemm)
            else {}
        )
        timed = rig.timed({"boltgen": ours, **theirs})
    others = [name for name in timed["columns"] if name != "boltgen"]
    best = min(others, key=lambda name: timed["columns"][name]["median_us"], default=None)
    return {
        "columns": timed["columns"],
        "clocks_mhz": timed["clocks_mhz"],
        "config": str(choice.config),
        "flops": problem.flops,
        "bytes": least_bytes(problem),
        "predicted_us": item.product.predicted_us,
        "vendor_errors": errors,
        "ratios": {"vendor": compare(timed, "boltgen", best, rig.turns)} if best else {},
    }


def run_space(rig: Rig, item: Space) -> dict[str, Any]:
    """Every choice checked and timed; records as `boltgen db export` writes them."""
    product: Product = item.product
    lines, errors = [], []
    failed = 0
    for choice in product.choices:
        if error := rig.compile_error(choice):
            errors.append(f"{choice.config}: {error}")
            continue
        outcome = rig.measure(product, choice)
        failed += isinstance(outcome, Failure)
        trial = Trial(problem=product.problem, epilogue=product.epilogue, config=choice.config)
        lines.append(
            to_line(
                Record(
                    trial=trial,
                    kernel=kernel_key(trial, rig.device.arch, rig.toolchain),
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
        "not_compiled": errors,
    }
