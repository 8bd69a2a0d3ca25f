"""What earlier versions wrote: forms of problems, lines and databases, for tests."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boltgen.families.b2b.config import B2bConfig, LayerTile
from boltgen.families.chain.traits import Residence
from boltgen.families.family import Config
from boltgen.families.space import Shape
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.outcome import DeviceIdentity, Outcome
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from boltgen.tuning.database import schema
from boltgen.tuning.database.records import dumps, to_line
from boltgen.tuning.database.small_tables import bench_key
from tests.tuning.samples import A100, CONFIG, EARLIER_TOOLS, record

_DTYPES = {"in_dtype": "float16", "acc_dtype": "float32", "out_dtype": "float16"}
_CONV = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], **_DTYPES}
PLAIN = {"nodes": [{"type": "Accumulator"}]}
RELU = {"nodes": [{"type": "Accumulator"}, {"type": "Unary", "op": "relu", "x": 0, "params": []}]}


def gemm(m: int, n: int, k: int) -> dict[str, Any]:
    return {"type": "Gemm", "m": m, "n": n, "k": k, "b_layout": "row", **_DTYPES}


def batched(batch: int, *, b_batched: bool = True) -> dict[str, Any]:
    shared = {"a_batched": True, "b_batched": b_batched}
    return gemm(64, 64, 64) | {"type": "BatchedGemm", "batch": batch} | shared


def conv(size: int, filter_size: int) -> dict[str, Any]:
    sizes = {"n": 1, "h": size, "w": size, "c": 8, "k": 8, "r": filter_size, "s": filter_size}
    return {"type": "Conv2d", **sizes, **_CONV}


def chain(kind: str, *problems: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "layers": [{"problem": each, "epilogue": RELU} for each in problems]}


def relu() -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    return builder.build()


def back_to_back(*problems: Gemm | Conv2d) -> Workload:
    return Workload(layers=tuple(Layer(problem=each, epilogue=relu()) for each in problems))


_TILE = LayerTile(n=64, k=64, warp_m=32, warp_n=64, stages=3)
FUSED = B2bConfig(
    threadblock_m=32,
    layers=(_TILE, _TILE),
    instruction=Shape(16, 8, 16),
    residence=Residence.REGISTERS,
)
_3X3 = Conv2d(n=1, h=8, w=8, c=8, k=8, r=3, s=3)
# What earlier versions wrote of a problem and its epilogue, and what it is today.
EARLIER: dict[str, tuple[dict[str, Any], dict[str, Any], Workload]] = {
    "product": (gemm(512, 512, 512), RELU, Workload.of(Gemm(m=512, n=512, k=512), relu())),
    "batch": (batched(6), PLAIN, Workload.of(Gemm(batch=6, m=64, n=64, k=64))),
    "batch of one B": (
        batched(6, b_batched=False),
        PLAIN,
        Workload.of(Gemm(m=6 * 64, n=64, k=64)),
    ),
    "batch of 1": (batched(1, b_batched=False), PLAIN, Workload.of(Gemm(m=64, n=64, k=64))),
    "convolution": (conv(8, 3), RELU, Workload.of(_3X3, relu())),
    "products": (
        chain("GemmChain", gemm(512, 64, 64), gemm(512, 64, 64)),
        PLAIN,
        back_to_back(*[Gemm(m=512, n=64, k=64)] * 2),
    ),
    "batched products": (
        chain("GemmChain", batched(6), batched(6, b_batched=False)),
        PLAIN,
        back_to_back(
            Gemm(batch=6, m=64, n=64, k=64), Gemm(batch=6, m=64, n=64, k=64, b_batched=False)
        ),
    ),
    "convolutions": (
        chain("Conv2dChain", conv(8, 3), conv(6, 1)),
        PLAIN,
        back_to_back(_3X3, Conv2d(n=1, h=6, w=6, c=8, k=8, r=1, s=1)),
    ),
}


def config_of(workload: Workload) -> Config:
    return FUSED if workload.is_fused else CONFIG


def earlier_line(problem: Any, epilogue: Any, config: dict[str, Any], written: str) -> str:
    """A line of an earlier version: a good one, but for the trial and its format."""
    form = json.loads(to_line(record(20.0)))
    form["trial"] = {"problem": problem, "epilogue": epilogue, "config": config}
    return json.dumps(form | {"format": written})


def config_form(config: Config) -> dict[str, Any]:
    form: dict[str, Any] = json.loads(dumps(Config, config))
    return form


def write_schema_3(path: Path, rows: Sequence[tuple[Any, Any, Config, Outcome, int]]) -> None:
    """A file of schema 3: for each row a problem, its epilogue, and one measurement of it.

    Problems and epilogues that are texts are written as they are; every row has a task of its own.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, 3)
    bench = (bench_key(A100, EARLIER_TOOLS), A100.kind.value, A100.arch, A100.name)
    texts = (dumps(DeviceIdentity, A100), EARLIER_TOOLS)
    connection.execute(
        "INSERT INTO bench VALUES (1, ?, ?, ?, ?, ?, ?, ?, '')", (*bench, *texts, len(rows))
    )
    connection.execute("INSERT INTO kernel VALUES (1, 'a kernel')")
    for number, (problem, epilogue, config, outcome, moment) in enumerate(rows, 1):
        task = (number, str(number), _text(problem), _text(epilogue))
        connection.execute("INSERT INTO task VALUES (?, ?, ?, ?)", task)
        text = dumps(Config, config)
        connection.execute("INSERT OR IGNORE INTO config (json) VALUES (?)", (text,))
        connection.execute(
            "INSERT INTO record VALUES (?, 1, (SELECT id FROM config WHERE json = ?), ?, ?, ?, 1)",
            (number, text, moment, dumps(Outcome, outcome), _median(outcome)),
        )
    connection.close()


def _text(form: Any) -> str:
    return form if isinstance(form, str) else json.dumps(form)


def _median(outcome: Outcome) -> float | None:
    return getattr(outcome, "median_us", None)
