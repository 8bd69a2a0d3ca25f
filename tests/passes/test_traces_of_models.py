"""Traces of real models: each graph keeps the rules, and its text has the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boltgen.graph.text import Constants, parse_graph, print_graph
from boltgen.passes.trace import IMPORTED, read_trace
from boltgen.pipeline import PipelineOptions
from boltgen.tvm_build.model import import_model, partition
from models.digits import MODEL_PATH
from models.open_transformers import TOKENS, Llama
from models.torch_swin import Swin
from models.torch_transformers import Vit


def _exported(module: torch.nn.Module, x: torch.Tensor, *open_axes: str) -> Any:
    dims = {axis: torch.export.Dim(name, max=16) for axis, name in enumerate(open_axes) if name}
    return torch.export.export(module.eval(), (x,), dynamic_shapes=(dims,))


SOURCES: dict[str, Callable[[], Any]] = {
    "digits": lambda: MODEL_PATH,
    "swin": lambda: _exported(Swin(), torch.zeros(2, 3, 32, 32)),
    "vit": lambda: _exported(Vit(), torch.zeros(2, 3, 32, 32), "batch"),
    "llama": lambda: _exported(
        Llama(), torch.zeros(2, 8, dtype=torch.int64) + TOKENS // 2, "batch", "rows"
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_graph_of_a_trace_is_read_again(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = replace(PipelineOptions(), trace=tmp_path)
    imported = import_model(SOURCES[name](), options)
    partition(imported, "sm_80", options)
    (steps,) = read_trace(tmp_path).values()
    names = [step.name for step in steps]
    assert names[0] == IMPORTED
    assert {"set_precision", "outline_regions"} <= set(names)
    last = imported.partitioned.graphs["main"]
    assert parse_graph(steps[-1].text) == last
    constants = Constants()
    text = print_graph(last, constants)
    assert text == steps[-1].text
    again = parse_graph(text, constants)
    for one, other in zip(again.exprs, last.exprs, strict=True):
        assert (one.array is None) == (other.array is None)
        if one.array is not None:
            np.testing.assert_array_equal(one.array, other.array)
            assert one.array.dtype == other.array.dtype  # type: ignore[union-attr]
    for step in steps:
        # Without the table of constants a text names no digests.
        assert print_graph(parse_graph(step.text)).count("\n") == step.text.count("\n")
