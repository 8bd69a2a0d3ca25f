"""Rows of scores without keys, whose weights a model makes zero. For both IRs.

    w = softmax(scores + where(seen, 0, -inf));  where(isnan(w), 0, w) V
    -> (softmax(scores + where(seen, 0, HIDDEN)) V) * any(seen)

PyTorch's exporter to ONNX writes attention with a boolean mask so, and where(seen, scores, -inf).
Behind the product the zeros are a factor of its rows, and the rest is attention. The factor must
find numbers there, so a row without keys has any: -inf becomes `HIDDEN`, whose exponential is zero
beside a key that is seen. Nothing else reads the weights.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from boltgen.graph.facts import axis_of
from boltgen.graph.graph import Graph, GraphBuilder
from boltgen.graph.patterns import Either, Match, Number, Pattern, Var, op
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.key_masks import HIDDEN
from boltgen.passes.precision.purpose import infinities
from boltgen.passes.regions.anchor import MATMUL


def empty_rows_behind_products(graph: Graph) -> Graph:
    """`graph` with the zeros of rows without keys behind the products of their weights."""
    return rewrite(graph, (_RULE,))


def _obstacle(found: Match) -> str | None:
    """Return why zeros stay where they are.

    The scores themselves are taken for numbers: NaN among them would be zero weights, too.
    """
    if found["v"] == found["guarded"]:
        return "the weights are multiplied with themselves"
    rank = len(found.shape("guarded"))
    if axis_of(found.expr("weights")) != rank - 1 or len(found.shape("seen")) != rank:
        return "the softmax is not along the keys of each row"
    if "mask" in found and found.shape("seen") != found.shape("mask"):
        return "the mask broadcasts the test for visible keys"
    other = found.in_source(found["scores"])
    if other is None or other in infinities(found.source):
        return "the scores may hide a key themselves"
    return None


def _masked(*choice: Pattern, name: str) -> Pattern:
    """A choice of `choice` by what is seen, in either order."""
    orders = (choice, choice[::-1])
    return Either(tuple(op("where", Var("seen"), *each, name=name, alone=True) for each in orders))


def _kept(found: Match, builder: GraphBuilder) -> int:
    """Write a product whose rows are multiplied by 1 where anything is seen, and else by 0."""
    hidden = builder.constant(np.array(HIDDEN, found.expr("hidden").dtype))
    names = {found["hidden"]: hidden}  # a row without keys needs numbers
    for index in sorted(found.members - {found["guarded"], found["nan"], found.root}):
        expr = found.values[index]
        args = tuple(names.get(arg, arg) for arg in expr.args)
        names[index] = builder.add(replace(expr, args=args))
    args = (names[found["weights"]], found["v"])
    product, seen = builder.add(replace(found.expr(), args=args)), found["seen"]
    choice = found.expr("mask" if "mask" in found else "choice")
    if choice.args[1] == found["hidden"]:
        seen = builder.elementwise("logical_not", seen)
    numbers = builder.astype(seen, builder.dtype(product))
    shape = builder.shape(seen)
    any_ = builder.reduce("max", numbers, (len(shape) - 1,), keepdims=True)
    any_ = builder.broadcast_to(any_, (*shape[:-2], builder.shape(product)[-2], 1))
    return builder.elementwise("multiply", product, any_)


_HIDDEN = Number("hidden", -inf)
_MASK = _masked(Number("shown", 0.0), _HIDDEN, name="mask")
_SCORES = Either(
    (
        op("add", _MASK, Var("scores"), alone=True),
        _masked(Var("scores"), _HIDDEN, name="choice"),
    )
)
_WEIGHTS = op("nn.softmax", _SCORES, name="weights", alone=True)
_NAN = op("isnan", _WEIGHTS, name="nan", alone=True)
_GUARDED = op("where", _NAN, Number("zero", 0.0), _WEIGHTS, name="guarded", alone=True)
_RULE = Rule(
    name="guard rows behind the product",
    pattern=op(MATMUL, _GUARDED, Var("v")),
    write=_kept,
    unless=_obstacle,
)
