"""Measurements of earlier versions: their lines and their databases are read as today's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from boltgen.errors import RecordError
from boltgen.families.b2b.config import B2bConfig, LayerTile, Residence
from boltgen.families.cutlass2.config import Shape
from boltgen.families.family import Config
from boltgen.ir.epilogue import Epilogue, EpilogueBuilder, UnaryOp
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.ir.workload import Layer, Workload
from boltgen.tuning import schema
from boltgen.tuning.database import Database
from boltgen.tuning.outcome import Outcome, Trial
from boltgen.tuning.records import dumps, from_line, to_line
from tests.tuning.samples import A100, CONFIG, NO_LAUNCH, TOOLS, record, timing

_DTYPES = {"in_dtype": "float16", "acc_dtype": "float32", "out_dtype": "float16"}
_CONV = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], **_DTYPES}
_PLAIN = {"nodes": [{"type": "Accumulator"}]}
_RELU = {"nodes": [{"type": "Accumulator"}, {"type": "Unary", "op": "relu", "x": 0, "params": []}]}


def gemm(m: int, n: int, k: int) -> dict[str, Any]:
    return {"type": "Gemm", "m": m, "n": n, "k": k, "b_layout": "row", **_DTYPES}


def batched(batch: int, *, b_batched: bool = True) -> dict[str, Any]:
    shared = {"a_batched": True, "b_batched": b_batched}
    return gemm(64, 64, 64) | {"type": "Gemm", "batch": batch} | shared


def conv(size: int, filter_size: int) -> dict[str, Any]:
    sizes = {"n": 1, "h": size, "w": size, "c": 8, "k": 8, "r": filter_size, "s": filter_size}
    return {"type": "Conv2d", **sizes, **_CONV}


def chain(kind: str, *problems: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "layers": [{"problem": each, "epilogue": _RELU} for each in problems]}


def relu() -> Epilogue:
    builder = EpilogueBuilder()
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
    "product": (gemm(512, 512, 512), _RELU, Workload.of(Gemm(m=512, n=512, k=512), relu())),
    "batch": (batched(6), _PLAIN, Workload.of(Gemm(batch=6, m=64, n=64, k=64))),
    "batch of one B": (
        batched(6, b_batched=False),
        _PLAIN,
        Workload.of(Gemm(m=6 * 64, n=64, k=64)),
    ),
    "batch of 1": (batched(1, b_batched=False), _PLAIN, Workload.of(Gemm(m=64, n=64, k=64))),
    "convolution": (conv(8, 3), _RELU, Workload.of(_3X3, relu())),
    "products": (
        chain("Workload", gemm(512, 64, 64), gemm(512, 64, 64)),
        _PLAIN,
        back_to_back(*[Gemm(m=512, n=64, k=64)] * 2),
    ),
    "batched products": (
        chain("Workload", batched(6), batched(6, b_batched=False)),
        _PLAIN,
        back_to_back(
            Gemm(batch=6, m=64, n=64, k=64), Gemm(batch=6, m=64, n=64, k=64, b_batched=False)
        ),
    ),
    "convolutions": (
        chain("Workload", conv(8, 3), conv(6, 1)),
        _PLAIN,
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


@pytest.mark.parametrize("name", EARLIER)
def test_a_line_of_the_second_format_is_todays_trial(name: str) -> None:
    problem, epilogue, workload = EARLIER[name]
    config = config_of(workload)
    line = earlier_line(problem, epilogue, config_form(config), "boltgen-record-2")
    found = from_line(line)
    assert found.trial == Trial(workload=workload, config=config)
    assert found.outcome == timing(20.0)
    assert from_line(to_line(found)) == found


@pytest.mark.parametrize("name", ["product", "batch", "convolution"])
def test_a_line_of_the_first_format_has_a_configuration_without_a_type(name: str) -> None:
    problem, epilogue, workload = EARLIER[name]
    config = config_form(CONFIG)
    assert config.pop("type") == "Cutlass2Config"
    found = from_line(earlier_line(problem, epilogue, config, "boltgen-record-1"))
    assert found.trial == Trial(workload=workload, config=CONFIG)
    with pytest.raises(RecordError, match=r"trial\.config: expected an object whose"):
        form = json.loads(to_line(found))
        del form["trial"]["config"]["type"]
        from_line(json.dumps(form))


@pytest.mark.parametrize(
    ("trial", "field"),
    [
        (None, r"trial"),
        ({"workload": {}}, r"trial"),
        ({"problem": 3, "epilogue": _PLAIN}, r"trial\.problem"),
        ({"problem": {"type": "Workload", "layers": 3}}, r"trial\.problem\.layers"),
        ({"problem": {"type": "Workload", "layers": [3]}}, r"trial\.problem\.layers"),
        ({"problem": {"type": "Workload", "layers": [{}]}}, r"layers\[0\]\.problem"),
        ({"problem": {"type": "Gemv"}, "epilogue": _PLAIN}, r"layers\[0\]\.problem: .*'Gemv'"),
        ({"problem": gemm(8, 8, 8), "epilogue": None}, r"layers\[0\]\.epilogue"),
        ({"problem": gemm(8, 8, 8), "epilogue": _PLAIN, "config": 5}, r"trial\.config"),
    ],
)
def test_what_is_no_trial_of_an_earlier_version_is_named(trial: Any, field: str) -> None:
    form = json.loads(to_line(record(20.0)))
    for written in ("boltgen-record-1", "boltgen-record-2"):
        with pytest.raises(RecordError, match=field):
            from_line(json.dumps(form | {"trial": trial, "format": written}))


# --- databases -----------------------------------------------------------------------------------


def write_schema_3(path: Path, rows: Sequence[tuple[Any, Any, Config, Outcome, int]]) -> None:
    """A file of schema 3: for each row a problem, its epilogue, and one measurement of it.

    Problems and epilogues that are texts are written as they are. Row by row a task of its own.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, 3)
    device = dumps(type(A100), A100)
    with Database(path.with_name("new.sqlite")) as database:  # for the bench's digest
        database.add([record(20.0)])
        bench = database._connection.execute("SELECT * FROM bench").fetchone()
    assert device in bench
    marks = ", ".join("?" for _ in bench)
    connection.execute(f"INSERT INTO bench VALUES ({marks})", bench)
    connection.execute("INSERT INTO kernel VALUES (1, 'a kernel')")
    for number, (problem, epilogue, config, outcome, moment) in enumerate(rows, 1):
        texts = (
            each if isinstance(each, str) else json.dumps(each) for each in (problem, epilogue)
        )
        connection.execute("INSERT INTO task VALUES (?, ?, ?, ?)", (number, str(number), *texts))
        text = dumps(Config, config)
        connection.execute("INSERT OR IGNORE INTO config (json) VALUES (?)", (text,))
        connection.execute(
            "INSERT INTO record VALUES (?, ?, (SELECT id FROM config WHERE json = ?), ?, ?, ?, 1)",
            (number, bench[0], text, moment, dumps(Outcome, outcome), _median(outcome)),
        )
    connection.execute("UPDATE bench SET records = ?", (len(rows),))
    connection.close()


def _median(outcome: Outcome) -> float | None:
    return getattr(outcome, "median_us", None)


NOON_US = 1_700_000_000_000_000


def test_a_database_of_schema_3_holds_todays_workloads(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    rows = [
        (problem, epilogue, config_of(workload), timing(10.0 + index), NOON_US)
        for index, (problem, epilogue, workload) in enumerate(EARLIER.values())
    ]
    write_schema_3(path, rows)
    with Database(path) as database:
        assert schema.version(database._connection) == schema.SCHEMA
        for index, (_, _, workload) in enumerate(EARLIER.values()):
            found = database.outcomes(workload, A100, TOOLS)
            assert found == {config_of(workload): timing(10.0 + index)}
        assert {each.trial.workload for each in database.records()} == {
            workload for _, _, workload in EARLIER.values()
        }
        assert [source.records for source in database.sources()] == [len(EARLIER)]
        assert database.add([record(5.0, workload=EARLIER["batch"][2])]) == 1
    with Database(path) as database:
        assert [source.records for source in database.sources()] == [len(EARLIER) + 1]


def test_equal_workloads_of_a_database_of_schema_3_are_one(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    one, later = NOON_US, NOON_US + 1_000_000
    write_schema_3(
        path,
        [
            (gemm(64, 64, 64), _PLAIN, CONFIG, timing(20.0), one),
            (gemm(384, 64, 64), _PLAIN, CONFIG, timing(30.0), one),
            (batched(1, b_batched=False), _PLAIN, CONFIG, NO_LAUNCH, later),
            (batched(6, b_batched=False), _PLAIN, CONFIG, timing(30.0), one),  # the same once more
            (batched(6), _PLAIN, CONFIG, timing(50.0), one),
        ],
    )
    with Database(path) as database:
        outcomes = [
            database.outcomes(Workload.of(Gemm(m=m, n=64, k=64)), A100, TOOLS) for m in (64, 384)
        ]
        assert outcomes == [{CONFIG: NO_LAUNCH}, {CONFIG: timing(30.0)}], "the newest counts"
        tasks = database._connection.execute("SELECT count(*) FROM task").fetchone()[0]
        assert tasks == 3
        assert len(list(database.records())) == 4
        assert [source.records for source in database.sources()] == [4]


@pytest.mark.parametrize(
    "unreadable",
    [
        {"type": "Gemv", "m": 8},
        gemm(0, 8, 8),
        [],
        "no JSON",
        "[" * 100_000,
        '{"type": "Gemm", "m": 1e999}',
        chain("Workload", gemm(64, 64, 64), gemm(32, 64, 64)),
    ],
)
def test_what_cannot_be_read_of_schema_3_is_forgotten(tmp_path: Path, unreadable: Any) -> None:
    path = tmp_path / "records.sqlite"
    write_schema_3(
        path,
        [
            (unreadable, _PLAIN, CONFIG, timing(10.0), NOON_US),
            (gemm(64, 64, 64), _PLAIN, CONFIG, timing(20.0), NOON_US),
            (gemm(64, 64, 64), "[]", CONFIG, timing(30.0), NOON_US),
        ],
    )
    with Database(path) as database:
        (left,) = database.records()
        assert left.trial == Trial(workload=Workload.of(Gemm(m=64, n=64, k=64)), config=CONFIG)
        assert left.outcome == timing(20.0)
        assert [source.records for source in database.sources()] == [1]
