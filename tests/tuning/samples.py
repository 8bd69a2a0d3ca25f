"""Values of tuning for tests: a device, records, and hypothesis strategies for all of them."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from benchmarks.cases.kernels import PROBLEM_TYPES
from boltgen.arch import ARCHES
from boltgen.errors import InvalidProblemError
from boltgen.families.b2b.config import B2bConfig, LayerTile
from boltgen.families.chain.traits import Residence
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.family import Config
from boltgen.families.source import kernel_symbol
from boltgen.families.space import Shape
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import FLOAT_TYPES, DType, Layout
from boltgen.ir.elementwise import (
    Accumulator,
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Scalar,
    Unary,
)
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key import digest
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Failure, Fault, Outcome, Timing
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.database.records import Record

A100 = DeviceIdentity(
    kind=DeviceKind.CUDA,
    name="NVIDIA A100-SXM4-40GB",
    arch="sm_80",
    sm_count=108,
    clock_mhz=1410,
    memory_clock_mhz=1215,
    memory_bytes=40 << 30,
    driver="580.65.06",
)
TOOLS = "nvcc 13.0.88; CUTLASS 4.2.0"
# As records from before kernels were told by their content have it.
EARLIER_TOOLS = f"{TOOLS}; headers 0123"
GEMM = Workload.of(Gemm(m=512, n=512, k=512))
CONFIG = Cutlass2Config(
    threadblock=Shape(128, 128, 32),
    warp=Shape(64, 64, 32),
    instruction=Shape(16, 8, 16),
    stages=3,
)
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NO_LAUNCH = Failure(fault=Fault.LAUNCH, reason="too many resources requested for launch")


def timing(median_us: float, *, clock_mhz: float | None = 1410.0) -> Timing:
    """A steady measurement."""
    return Timing(
        median_us=median_us,
        p20_us=0.98 * median_us,
        p80_us=1.02 * median_us,
        low_us=0.99 * median_us,
        high_us=1.01 * median_us,
        repeats=20,
        launches=10,
        cold_l2=True,
        clock_mhz=clock_mhz,
    )


def content_of(symbol: str, version: str = "") -> str:
    """What stands for the digest of a kernel's PTX."""
    return digest("PTX", symbol, version)


def record(
    outcome: Outcome | float = 20.0,
    *,
    workload: Workload = GEMM,
    config: Config = CONFIG,
    device: DeviceIdentity = A100,
    toolchain: str = TOOLS,
    after_s: float = 0.0,
    version: str = "",
) -> Record:
    """A record of a trial, `after_s` seconds after noon; a number is its median time.

    `version` tells kernels of one spec apart.
    """
    trial = Trial(workload=workload, config=config)
    return Record(
        trial=trial,
        kernel=content_of(kernel_symbol(trial.spec(device.arch)), version),
        device=device,
        toolchain=toolchain,
        outcome=outcome if isinstance(outcome, (Timing, Failure)) else timing(outcome),
        measured_at=NOON + timedelta(seconds=after_s),
    )


_EXTENT = st.integers(1, 2**31 - 1)
_SMALL = st.integers(1, 64)
_TYPES = st.sampled_from(PROBLEM_TYPES)
_FLOATS = st.floats(allow_nan=False)


def _product(types: dict[str, DType], **sizes: Any) -> Gemm:
    return Gemm(**sizes, **types)  # type: ignore[arg-type]


@st.composite
def _convolutions(draw: st.DrawFn) -> Problem:
    for _ in range(20):
        extents = {name: draw(_SMALL) for name in ("n", "h", "w", "c", "k", "r", "s")}
        try:
            return Conv2d(
                **extents,
                stride=(draw(_SMALL), draw(_SMALL)),
                padding=(draw(_SMALL), draw(_SMALL), draw(_SMALL), draw(_SMALL)),
                dilation=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
                **draw(_TYPES),
            )
        except InvalidProblemError:
            continue
    return Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3)


problems: st.SearchStrategy[Problem] = st.one_of(
    st.builds(_product, _TYPES, m=_EXTENT, n=_EXTENT, k=_EXTENT, b_layout=st.sampled_from(Layout)),
    st.builds(
        _product,
        _TYPES,
        batch=st.integers(2, 65535),
        m=_EXTENT,
        n=_EXTENT,
        k=_EXTENT,
        a_batched=st.booleans(),
        b_batched=st.booleans(),
    ),
    _convolutions(),
)


@st.composite
def epilogues(draw: st.DrawFn) -> ElementwiseGraph:
    nodes: list[object] = [Accumulator()]
    for index in range(1, draw(st.integers(1, 7))):
        x = st.integers(0, index - 1)
        loads = [node for node in nodes if isinstance(node, Load)]
        kinds = ["scalar", "unary", "binary", "cast"] + ([] if loads else ["load"])
        match draw(st.sampled_from(kinds)):
            case "load":
                node: object = Load(
                    draw(st.sampled_from(LoadKind)), draw(st.sampled_from(FLOAT_TYPES))
                )
            case "scalar":
                node = Scalar(draw(_FLOATS))
            case "unary":
                op = draw(st.sampled_from(UnaryOp))
                node = Unary(op, draw(x), tuple(draw(_FLOATS) for _ in op.parameters))
            case "binary":
                node = Binary(draw(st.sampled_from(BinaryOp)), draw(x), draw(x))
            case _:
                node = Cast(draw(x), draw(st.sampled_from(FLOAT_TYPES)))
        nodes.append(node)
    return ElementwiseGraph(tuple(nodes))  # type: ignore[arg-type]


def _in_slices(problem: Problem, epilogue: ElementwiseGraph, rows: int) -> Problem:
    """`problem` with slices of so many rows, where the epilogue has rows of slices."""
    if not any(load.kind.is_of_slices for load in epilogue.loads):
        return problem
    assume(problem.batch == 1)
    return problem.in_slices(rows)


def _workload(problem: Problem, epilogue: ElementwiseGraph, rows: int) -> Workload:
    return Workload.of(_in_slices(problem, epilogue, rows), epilogue)


_SHAPES = st.builds(Shape, _SMALL, _SMALL, _SMALL)
configs = st.builds(
    Cutlass2Config,
    threadblock=_SHAPES,
    warp=_SHAPES,
    instruction=_SHAPES,
    stages=_SMALL,
    swizzle=_SMALL,
    split_k=_SMALL,
)
_tiles = st.builds(LayerTile, n=_SMALL, k=_SMALL, warp_m=_SMALL, warp_n=_SMALL, stages=_SMALL)
fused_configs = st.builds(
    B2bConfig,
    threadblock_m=_SMALL,
    layers=st.lists(_tiles, min_size=2, max_size=4).map(tuple),
    instruction=_SHAPES,
    residence=st.sampled_from(Residence),
)


@st.composite
def fused_workloads(draw: st.DrawFn) -> Workload:
    m, *extents = (draw(_EXTENT) for _ in range(draw(st.integers(4, 6))))
    layers = []
    for k, n in itertools.pairwise(extents):
        problem = Gemm(m=m, n=n, k=k, b_layout=draw(st.sampled_from(Layout)))
        epilogue = draw(epilogues())
        rows = draw(_EXTENT)
        layers.append(Layer(problem=_in_slices(problem, epilogue, rows), epilogue=epilogue))
    return Workload(layers=tuple(layers))


devices = st.builds(
    DeviceIdentity,
    kind=st.sampled_from(DeviceKind),
    name=st.text(),
    arch=st.sampled_from(sorted(ARCHES)),
    sm_count=_SMALL,
    clock_mhz=st.integers(1, 3000),
    memory_clock_mhz=_SMALL,
    memory_bytes=_EXTENT,
    driver=st.text(),
)
# A second or more: no problem of these extents is too fast for its device, and no unit is wrong.
_timings = st.builds(timing, st.floats(1e25, 1e30), clock_mhz=st.none() | st.floats(1, 3000))
outcomes: st.SearchStrategy[Outcome] = _timings | st.builds(
    Failure, fault=st.sampled_from(Fault), reason=st.text(), log=st.text()
)
records = st.builds(
    Record,
    trial=st.one_of(
        st.builds(
            Trial, workload=st.builds(_workload, problems, epilogues(), _EXTENT), config=configs
        ),
        st.builds(Trial, workload=fused_workloads(), config=fused_configs),
    ),
    kernel=st.text("0123456789abcdef", min_size=64, max_size=64),
    device=devices,
    toolchain=st.text(),
    outcome=outcomes,
    measured_at=st.datetimes(
        datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(timezone.utc)
    ),
)
