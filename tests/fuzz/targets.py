"""What is fuzzed: for each target, what is made once, and one case by its random numbers.

A case ends quietly or with a BoltgenError. A command must end with a status of its own, and without
a report of an internal error; `WrongEndingError` says that it did not.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.fuzz.mutations import TEXTS, mutated_bytes, mutated_json

MODELS = Path(__file__).resolve().parents[2] / "models"
# 3 and 6 would say that a check failed, or that the disk or the memory is full.
_UNDERSTOOD = {0, 1, 2, 4, 5}


class WrongEndingError(Exception):
    """A command ended otherwise than commands end."""


@dataclass(frozen=True, slots=True)
class Target:
    """`prepare` fills a folder once, for all cases; `run` is one case in a folder of its own."""

    prepare: Callable[[Path], None]
    run: Callable[[Path, Path, random.Random], None]
    memory_bytes: int = 2 << 30
    needs_tvm: bool = False


@contextlib.contextmanager
def environment(folder: Path, **variables: str) -> Iterator[None]:
    """boltgen's folders under `folder`, and `variables`."""
    own = {"BOLTGEN_CACHE_DIR": str(folder / "cache"), "BOLTGEN_DATA_DIR": str(folder / "data")}
    with mock.patch.dict(os.environ, own | variables):
        yield


def command(folder: Path, *arguments: str, **variables: str) -> None:
    """Run a command in this process.

    Raises:
        WrongEndingError: it ends with a status that is none of its own, or prints a traceback.
    """
    from boltgen.__main__ import obey

    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
    with (
        environment(folder, **variables),
        mock.patch.object(sys, "argv", ["boltgen", *arguments]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        status = obey()
        printed.flush()
    said = printed.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    reports = sorted(folder.rglob("boltgen-error-*"))
    told = reports[0].read_text() if reports else said
    if status not in _UNDERSTOOD or "Traceback" in said or "not enough memory" in said:
        raise WrongEndingError(
            f"boltgen {' '.join(arguments)[:200]!a} ended with {status}: {told[-1500:]}"
        )
    if "\x1b" in said:
        raise WrongEndingError(
            f"boltgen {' '.join(arguments)[:200]!a} printed an escape: {said[-500:]!a}"
        )


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """`folder` as the current one: contextlib has this from Python 3.11 on."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _make_artifact(folder: Path) -> None:
    from tests.artifact.samples import write_sample

    write_sample(folder / "sample")


def _metadata(made: Path, folder: Path, rng: random.Random) -> None:
    shutil.copytree(made / "sample", folder / "sample")
    path = folder / "sample" / "metadata.json"
    path.write_bytes(mutated_json(path.read_text(), rng))
    command(folder, "inspect", str(folder / "sample"))
    command(folder, "report", str(folder / "sample"), "-o", str(folder / "page.html"))


def _make_records(folder: Path) -> None:
    from boltgen.ir.elementwise import BinaryOp, LoadKind
    from boltgen.ir.elementwise_builder import ElementwiseBuilder
    from boltgen.ir.functions import UnaryOp
    from boltgen.problems.workload import Workload
    from boltgen.tuning.database.database import Database
    from boltgen.tuning.database.exchange import write_records
    from tests.tuning.earlier import EARLIER, config_form, config_of, earlier_line, write_schema_3
    from tests.tuning.samples import CONFIG, GEMM, NO_LAUNCH, record, timing

    grown = ElementwiseBuilder()
    grown.unary(UnaryOp.RELU, grown.binary(BinaryOp.ADD, 0, grown.load(LoadKind.ROW)))
    workload = Workload.of(GEMM.single.problem, grown.build())
    records = [record(20.0), record(NO_LAUNCH), record(15.0, workload=workload)]
    write_records(folder / "records.jsonl", records)
    with (folder / "records.jsonl").open("a") as lines:
        for problem, epilogue, today in EARLIER.values():
            config = config_form(config_of(today))
            lines.write(earlier_line(problem, epilogue, config, "boltgen-record-2") + "\n")
    rows = [
        (problem, epilogue, config_of(today), timing(10.0 + index), index)
        for index, (problem, epilogue, today) in enumerate(EARLIER.values())
    ]
    write_schema_3(folder / "earlier.sqlite", rows)
    with Database(folder / "records.sqlite") as database:
        database.add([record(20.0 + i, config=CONFIG, after_s=i) for i in range(50)] + records)


def _records(made: Path, folder: Path, rng: random.Random) -> None:
    lines = (made / "records.jsonl").read_text().splitlines()
    changed = b"\n".join(mutated_json(line, rng) for line in rng.sample(lines, rng.randint(1, 3)))
    packed = rng.random() < 0.3
    path = folder / ("r.jsonl.gz" if packed else "r.jsonl")
    path.write_bytes(mutated_bytes(gzip.compress(changed), rng) if packed else changed)
    command(folder, "db", "import", str(path))
    command(folder, "db", "query")


def _database(made: Path, folder: Path, rng: random.Random) -> None:
    path = folder / "other.sqlite"
    path.write_bytes(mutated_bytes((made / "records.sqlite").read_bytes(), rng))
    command(folder, "db", "merge", str(path))
    command(folder, "db", "query", "--best", "--database", str(path))


def _database_rows(made: Path, folder: Path, rng: random.Random) -> None:
    places = ("task.workload", "config.json", "bench.device", "record.outcome")
    odd = ("record.measured_at_us", "record.median_us", "bench.toolchain", "kernel.digest")
    _change_a_row(made / "records.sqlite", folder, places + odd, rng)


def _earlier_rows(made: Path, folder: Path, rng: random.Random) -> None:
    """Of a database that is brought to today's schema when it is opened."""
    places = ("task.problem", "task.epilogue", "config.json", "record.outcome", "bench.records")
    _change_a_row(made / "earlier.sqlite", folder, places, rng)


def _change_a_row(made: Path, folder: Path, places: tuple[str, ...], rng: random.Random) -> None:
    import sqlite3

    path = folder / "other.sqlite"
    shutil.copy(made, path)
    table, column = rng.choice(places).split(".")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (old,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
        new: object = rng.choice([*TEXTS[:-2], b"\xff\x00", 2**62, -5, 1.5])
        if isinstance(old, str) and old.startswith("{") and rng.random() < 0.7:
            new = mutated_json(old, rng).decode("utf-8", "replace")
        with contextlib.suppress(sqlite3.IntegrityError):
            connection.execute(f"UPDATE {table} SET {column} = ?", (new,))
        connection.commit()
    for arguments in (["merge", str(path)], ["query", "--database", str(path)]):
        command(folder, "db", *arguments)
    command(folder, "db", "stats", "--database", str(path))


def _make_library(folder: Path) -> None:
    from boltgen.arch import ARCHES
    from boltgen.build.cache import Cache
    from boltgen.build.library.archive import export_library
    from boltgen.build.library.kernels import build_library, stored_units
    from boltgen.families.cutlass2.levels import library_specs
    from boltgen.families.family import Level
    from tests.build.fakes import fake_toolchain

    (group,) = library_specs(ARCHES["sm_80"], Level.QUICK, [8])["conv2d"]
    cache = Cache(folder / "cache")
    build_library([group], fake_toolchain(folder / "toolkit"), cache, jobs=1)
    export_library(stored_units(cache), folder / "library.tgz")


def _library(made: Path, folder: Path, rng: random.Random) -> None:
    content = (made / "library.tgz").read_bytes()
    if rng.random() < 0.7:
        content = gzip.compress(mutated_bytes(gzip.decompress(content), rng), 1)
    else:
        content = mutated_bytes(content, rng)
    (folder / "library.tgz").write_bytes(content)
    command(folder, "library", "import", str(folder / "library.tgz"))


def _cache(made: Path, folder: Path, rng: random.Random) -> None:
    shutil.copytree(made / "cache", folder / "cache")
    paths = [path for path in (folder / "cache" / "library").rglob("*") if path.is_file()]
    path = rng.choice(paths)
    content = path.read_bytes()
    match rng.randrange(4):
        case 0:
            path.unlink()
            path.mkdir()
        case 1 if path.suffix == ".json":
            path.write_bytes(mutated_json(content.decode(), rng))
        case _:
            path.write_bytes(mutated_bytes(content, rng))
    command(folder, "library", "export", str(folder / "out.tgz"))
    command(folder, "library", "import", str(made / "library.tgz"))


_VARIABLES = (
    "BOLTGEN_JOBS",
    "BOLTGEN_CACHE_DIR",
    "BOLTGEN_DATA_DIR",
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "CUDA_HOME",
    "CXX",
    "PATH",
    "COLUMNS",
    "TMPDIR",
)


def _environment(made: Path, folder: Path, rng: random.Random) -> None:
    possible = [text for text in TEXTS if "\ud800" not in text]
    chosen = {name: rng.choice(possible) for name in rng.sample(_VARIABLES, rng.randint(1, 3))}
    with _working_in(folder):
        command(folder, *rng.choice([("library", "list"), ("db", "stats")]), **chosen)


_WORDS = (
    *("compile", "run", "inspect", "tune", "advise", "library", "db", "list", "export", "import"),
    *("stats", "query", "merge", "prune", "fly", "--help", "--debug"),
)
_OPTIONS = (
    *("--shape", "--jobs", "--budget", "--device", "--limit", "--arch", "-o", "--inputs"),
    *("--database", "--before", "--kind", "--operation", "--level", "--accumulate", "--frontend"),
)
_LIKELY = ("x=1,2", "4", "10s", "cuda:0", "sm_80", "out", "missing.npz", "2026-01-01", "Gemm")
_COMMANDS = (
    ("compile", "missing.onnx", "-o", "out"),
    ("tune", "missing.onnx"),
    ("advise", "missing.onnx"),
    ("run", "missing", "--inputs", "x.npz"),
    ("inspect", "missing"),
    ("db", "query"),
    ("db", "prune"),
    ("db", "import"),
    ("db", "merge"),
    ("library", "export"),
    ("library", "import"),
)


def _command_line(made: Path, folder: Path, rng: random.Random) -> None:
    words = list(rng.choice(_COMMANDS)) if rng.random() < 0.8 else [rng.choice(_WORDS)]
    # What the shell passes on has no NUL; bytes that are no UTF-8 are surrogates.
    texts = [text.replace("\ud800", "\udcff") for text in TEXTS]
    for _ in range(rng.randint(0, 3)):
        words.append(rng.choice(_OPTIONS))
        words.append(rng.choice(texts) if rng.random() < 0.7 else rng.choice(_LIKELY))
    words += [rng.choice(texts)] * rng.randrange(2)
    # --debug prints tracebacks by request; a GPU and compilers are no part of this.
    words = [word for word in words if word not in ("--debug", "vgpu")]
    with _working_in(folder):
        command(folder, *words)


def _make_inputs(folder: Path) -> None:
    import numpy as np

    np.savez_compressed(folder / "x.npz", a=np.ones((3, 4), np.float32), b=np.arange(5))


def _inputs(made: Path, folder: Path, rng: random.Random) -> None:
    from boltgen.running.arrays import read_arrays

    path = folder / "x.npz"
    path.write_bytes(mutated_bytes((made / "x.npz").read_bytes(), rng))
    read_arrays(path)


def _import(path: Path) -> None:
    from boltgen.frontend.relax.importer import import_model

    import_model(path)


def _make_onnx(folder: Path) -> None:
    """Make a small model, most of whose bytes are structure, where a large one has weights."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((8, 4, 3, 3), np.float32), "w")
    matrix = numpy_helper.from_array(np.ones((8, 16), np.float32), "m")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", "low", "high"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    bounds = [
        numpy_helper.from_array(np.float32(value), name)
        for name, value in (("low", 0.0), ("high", 6.0))
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16])],
        [weight, matrix, *bounds],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "net.onnx")


def _onnx(made: Path, folder: Path, rng: random.Random) -> None:
    path = folder / "net.onnx"
    content = (made / "net.onnx").read_bytes()
    changed = mutated_bytes(content, rng) if rng.random() < 0.3 else _mutated_model(content, rng)
    path.write_bytes(changed)
    _import(path)


def _mutated_model(content: bytes, rng: random.Random) -> bytes:
    """A model that can be parsed, with up to three fields that contradict the others."""
    import onnx

    model = onnx.load_from_string(content)
    graph = model.graph
    names = [*(name for node in graph.node for name in (*node.input, *node.output)), "", "none"]
    for _ in range(rng.randint(1, 3)):
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        value = rng.choice([*graph.input, *graph.output])
        extent = rng.choice([0, -1, 1, 7, 2**31, 2**40, 2**62])
        match rng.randrange(11):
            case 0 if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = extent
            case 1:
                tensor.dims.append(extent)
            case 2:
                tensor.data_type = rng.randrange(30)
            case 3:
                tensor.raw_data = mutated_bytes(tensor.raw_data, rng)
            case 4:
                graph.input.append(rng.choice(graph.input))
            case 5:
                graph.node.append(node)
            case 6:
                node.input[rng.randrange(len(node.input))] = rng.choice(names)
            case 7:
                node.op_type = rng.choice(["Relu", "Gemm", "Reshape", "Gather", "Loop", "Foo", ""])
            case 8:
                dims = value.type.tensor_type.shape.dim
                rng.choice(dims).dim_value = extent
            case 9:
                value.type.tensor_type.elem_type = rng.randrange(30)
            case _:
                model.opset_import[0].version = rng.choice([0, 1, 6, 11, 23, 99, 2**40])
    return bytes(model.SerializeToString())


def _digits(made: Path, folder: Path, rng: random.Random) -> None:
    path = folder / "digits.onnx"
    path.write_bytes(mutated_bytes((MODELS / "digits" / "digits.onnx").read_bytes(), rng))
    _import(path)


def _make_torch(folder: Path) -> None:
    import torch

    program = torch.export.export(torch.nn.Linear(8, 8).eval(), (torch.zeros(2, 8),))
    torch.export.save(program, folder / "net.pt2")


def _torch(made: Path, folder: Path, rng: random.Random) -> None:
    path = folder / "net.pt2"
    path.write_bytes(mutated_bytes((made / "net.pt2").read_bytes(), rng))
    _import(path)


def _nothing(folder: Path) -> None:
    """A target that makes its cases of nothing."""


# PyTorch and TVM map many gigabytes that they do not touch.
_LARGE = 16 << 30

TARGETS = {
    "metadata": Target(_make_artifact, _metadata),
    "records": Target(_make_records, _records),
    "database": Target(_make_records, _database),
    "rows": Target(_make_records, _database_rows),
    "earlier-rows": Target(_make_records, _earlier_rows),
    "library": Target(_make_library, _library),
    "cache": Target(_make_library, _cache),
    "environment": Target(_nothing, _environment),
    "command-line": Target(_nothing, _command_line, _LARGE),
    "inputs": Target(_make_inputs, _inputs),
    "onnx": Target(_make_onnx, _onnx, _LARGE, needs_tvm=True),
    "digits": Target(_nothing, _digits, _LARGE, needs_tvm=True),
    "torch": Target(_make_torch, _torch, _LARGE, needs_tvm=True),
}
