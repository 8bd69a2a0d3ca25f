"""Names of Relax's operators that are one operator of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax

from boltgen.frontend.relax.emit import emit
from boltgen.frontend.relax.translate import translate

RESHAPES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: relax.op.reshape(x, (3, 4)),
    "squeeze": lambda x: relax.op.squeeze(x, [1]),
    "expand_dims": lambda x: relax.op.expand_dims(x, 0),
    "flatten": relax.op.flatten,
}


@pytest.mark.parametrize("name", RESHAPES)
def test_a_reshape_has_one_name_and_is_written_as_its_author_did(name: str) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 1, 4), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(RESHAPES[name](x)))
    function = builder.get()["main"]
    graph = translate(function)
    assert [expr.op for expr in graph.exprs] == ["input", "reshape"]
    (binding,) = emit(graph, "main", function, {}).body.blocks[0].bindings
    assert str(binding.value.op.name) == f"relax.{name}"
