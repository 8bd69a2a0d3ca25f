"""The pipeline: its list, the trace that it writes, and the verifier between its passes."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen.errors import BoltgenError, GraphError
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.graph.text import parse_graph
from boltgen.passes import partition
from boltgen.passes.partition import partition_graphs
from boltgen.passes.pipeline import PIPELINE
from boltgen.passes.run import ALWAYS, Partitioned, Pass, Passes, Stage, When
from boltgen.passes.trace import read_trace

PASSES = Path(boltgen.__file__).parent / "passes"


def model() -> Graph:
    """relu(x W + b) of FP32, and a sum of constants that only this pipeline adds up."""
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(8, 16), dtype="float32"))
    w = builder.constant(np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32))
    b, c = (builder.constant(np.full(24, each, np.float32)) for each in (0.5, 0.25))
    y = builder.matmul(x, w, "float32")
    y = builder.elementwise("add", builder.elementwise("add", y, b), c)
    return builder.graph(builder.operator("nn.relu", (y,), (8, 24), "float32"))


def partitioned(graph: Graph, passes: Passes) -> Partitioned:
    return partition_graphs({"main": graph, "other": graph}, (), passes, lambda *_: None)


def test_each_pass_has_one_name_and_a_home() -> None:
    names = [each.name for each in PIPELINE]
    assert len(set(names)) == len(names)
    for each in PIPELINE:
        assert (PASSES / f"{each.home}.py").is_file(), each.name
        assert each.effect.endswith(".") and each.reason.endswith("."), each.name


def test_stages_stand_in_order() -> None:
    stages = list(dict.fromkeys(each.stage for each in PIPELINE))
    assert stages == list(Stage)
    assert [each.stage for each in PIPELINE] == sorted(
        (each.stage for each in PIPELINE), key=stages.index
    )


def test_a_trace_replaces_an_earlier_trace_of_more_functions(tmp_path: Path) -> None:
    partitioned(model(), Passes(trace=tmp_path))
    assert set(read_trace(tmp_path)) == {"main", "other"}
    (tmp_path / "notes.txt").write_text("mine")
    partition_graphs({"main": model()}, (), Passes(trace=tmp_path), lambda *_: None)
    assert set(read_trace(tmp_path)) == {"main"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_trace_removes_no_other_files(tmp_path: Path) -> None:
    partitioned(model(), Passes(trace=tmp_path))
    (tmp_path / "1" / "notes.txt").write_text("mine")
    with pytest.raises(BoltgenError, match=r"1 holds notes\.txt.*give --trace another folder"):
        partitioned(model(), Passes(trace=tmp_path))
    assert (tmp_path / "1" / "notes.txt").read_text() == "mine"
    assert set(read_trace(tmp_path)) == {"main", "other"}  # the earlier trace is whole


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "No such file"), ("file", "Not a directory")]
)
def test_a_trace_that_cannot_be_read_is_an_error(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BoltgenError, match=f"the trace in .*{name} cannot be read: {message}"):
        read_trace(tmp_path / name)


def test_a_trace_has_each_graph_that_a_pass_changed(tmp_path: Path) -> None:
    made = partitioned(model(), Passes(trace=tmp_path))
    files = sorted(path.name for path in (tmp_path / "0").iterdir())
    assert [name.partition("-")[2].removesuffix(".graph.txt") for name in files] == [
        "imported",
        "fold_constant_sums",
        "set_precision",
        "outline_regions",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
    texts = [(tmp_path / "0" / name).read_text() for name in files]
    assert all(text.startswith("# function 'main'\n") for text in texts)
    assert parse_graph(texts[0]) == model()
    assert parse_graph(texts[-1]) == made.graphs["main"]


def test_a_trace_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "99-old_pass.graph.txt").write_text("")
    partitioned(model(), Passes(trace=tmp_path))
    assert not (tmp_path / "0" / "99-old_pass.graph.txt").exists()
    (tmp_path / "0" / "thesis.tex").write_text("")
    with pytest.raises(BoltgenError, match=r"thesis\.tex, which is no part of a trace"):
        partitioned(model(), Passes(trace=tmp_path))


def wrong_pass(graph: Graph) -> Graph:
    """Say that a matmul has a column more than it has."""
    exprs = tuple(
        replace(expr, shape=(8, 25)) if expr.op == "matmul" else expr for expr in graph.exprs
    )
    return replace(graph, exprs=exprs)


def test_a_pass_that_breaks_a_rule_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = [each.name for each in PIPELINE].index("set_precision")
    wrong = Pass(Stage.PRECISION, "widen", wrong_pass, "Wrong.", "Wrong.")
    monkeypatch.setattr(partition, "PIPELINE", (*PIPELINE[:place], wrong, *PIPELINE[place:]))
    said = r"after the pass widen, the function main is no graph: operator matmul breaks the rule"
    with pytest.raises(GraphError, match=said) as caught:
        partitioned(model(), Passes(trace=tmp_path))
    assert f"the trace is in {tmp_path}" in str(caught.value)
    (last,) = (tmp_path / "0").glob(f"{place + 1:02}-widen*")
    assert "float32[8, 25] = matmul(" in last.read_text()
    # The tests set BOLTGEN_VERIFY_GRAPHS, so graphs are verified without a trace too.
    with pytest.raises(GraphError, match=said):
        partitioned(model(), Passes())
    monkeypatch.setenv("BOLTGEN_VERIFY_GRAPHS", "0")
    partitioned(model(), Passes(normalise=False))


@pytest.mark.parametrize(
    ("function", "observed", "dtype"),
    [("main", 1e6, "float32"), ("main", 9.0, "float16"), ("other", 1e6, "float16")],
)
def test_observed_ranges_are_those_of_main_alone(
    function: str, observed: float, dtype: str
) -> None:
    graph = model()
    passes = Passes(observed={len(graph) - 1: (0.0, observed)})
    made = partition_graphs({function: graph}, (), passes, lambda *_: None)
    graphs = [*made.graphs.values(), *(each.body for each in made.carved.values())]
    found = [expr.dtype for each in graphs for expr in each.exprs if expr.op == "nn.relu"]
    assert found == [dtype]


def test_the_setting_is_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLTGEN_VERIFY_GRAPHS", "maybe")
    with pytest.raises(BoltgenError, match="BOLTGEN_VERIFY_GRAPHS='maybe' is neither 0 nor 1"):
        partitioned(model(), Passes())


@pytest.mark.parametrize("is_enabled", [True, False])
def test_passes_leave_the_garbage_collector_as_it_was(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        partitioned(model(), Passes())
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_a_graph_that_is_imported_wrong_is_no_pass_s_fault() -> None:
    graph = wrong_pass(model())
    with pytest.raises(GraphError, match=r"^as imported, the function main is no graph"):
        partition_graphs({"main": graph}, (), Passes(), lambda *_: None)


def test_a_folder_of_other_texts_has_no_trace(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "00-imported.graph.txt").write_text("a thesis\n'main'\n")
    with pytest.raises(
        BoltgenError, match="has no trace: `boltgen compile --trace DIR` writes one"
    ):
        read_trace(tmp_path)


def test_bodies_go_through_the_passes_of_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    never = When("never", lambda run: run.passes.joining is not None)
    seen: list[Graph] = []

    def watched(graph: Graph) -> Graph:
        seen.append(graph)
        return graph

    for when, count in ((ALWAYS, 2), (never, 0)):
        seen.clear()
        each = Pass(Stage.LEGALISE, "see", watched, "See.", "See.", when, in_bodies=True)
        monkeypatch.setattr(partition, "PIPELINE", (*PIPELINE, each))
        monkeypatch.setenv("BOLTGEN_VERIFY_GRAPHS", "0")
        partition_graphs({"main": model()}, (), Passes(), lambda *_: None)
        assert len(seen) == count  # the function, and the body of its region
