"""The order in which an elementwise result moves the fewest bytes, and its type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boltgen.graph.attributes import NONE
from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.call import Context, OperatorCall, common_order
from boltgen.passes.precision.reach import BEYOND, WITHIN
from boltgen.passes.precision.values import FLAT, NHWC, Order, Store, Value, identity

IMAGE, ROWS = (2, 3, 4, 5), (2, 3, 4)
TURNED: Order = (0, 2, 1)


def _store() -> Store:
    return Store(GraphBuilder(), DType.F16)


def _value(shape: tuple[int, ...], order: Order | None = None) -> Value:
    store = _store()
    index = store.builder.add(Expr(op=INPUT, shape=shape, dtype="float32"))
    return store.of_expr(index, shape, "float32", order)


def _flat() -> Value:
    value = _value(IMAGE, NHWC)
    value.flat = FLAT
    return value


def _constant(shape: tuple[int, ...]) -> Value:
    return _store().of_array(np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("values", "shape", "is_score", "order"),
    [
        ([_value(IMAGE, NHWC), _value(IMAGE)], IMAGE, False, NHWC),
        ([_value(IMAGE, NHWC), _value(IMAGE)], IMAGE, True, identity(4)),
        ([_value(IMAGE, NHWC)], IMAGE, True, NHWC),
        ([_value((2, 3, 1, 1), NHWC), _value(IMAGE)], IMAGE, False, identity(4)),
        ([_value((2, 3, 1, 1), NHWC), _value(IMAGE, (1, 0, 2, 3))], IMAGE, False, (1, 0, 2, 3)),
        ([_value((2, 3, 1, 1), NHWC), _value((3, 1, 1))], IMAGE, False, NHWC),
        ([_value(ROWS, TURNED), _value(ROWS)], ROWS, False, identity(3)),
        ([_value(ROWS, TURNED), _constant(ROWS)], ROWS, False, TURNED),
        ([_value(ROWS, TURNED), _value(ROWS, TURNED)], ROWS, False, TURNED),
        ([_value(ROWS), _value(ROWS)], ROWS, False, identity(3)),
        ([_flat(), _value(IMAGE)], IMAGE, False, identity(4)),
        ([_flat()], IMAGE, False, identity(4)),
        ([_constant(IMAGE), _constant(IMAGE)], IMAGE, False, identity(4)),
        ([], IMAGE, False, identity(4)),
    ],
)
def test_the_order_of_most_operands_is_the_result_s(
    values: list[Value], shape: tuple[int, ...], is_score: bool, order: Order
) -> None:
    assert common_order(values, shape, is_score=is_score) == order


def _call(**options: object) -> OperatorCall:
    call = OperatorCall(
        name="add",
        original=None,
        attrs=NONE,
        args=(),
        shape=ROWS,
        dtype="float32",
        single_use=True,
        context=Context(store=_store()),
    )
    return replace(call, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "float16"),
        ({"is_angle": True}, "float32"),
        ({"is_large": True}, "float32"),
        ({"is_distance": True}, "float32"),
        ({"size": 2.0**-20}, "float32"),
        ({"context": Context(store=_store(), is_mixed=True)}, "float32"),
        ({"context": Context(store=_store(), is_mixed=True), "dtype": "float16"}, "float16"),
    ],
)
def test_which_results_are_wide(options: dict[str, object], dtype: str) -> None:
    assert _call(**options).compute_dtype(WITHIN) == dtype
    assert _call(**options).compute_dtype(BEYOND) == "float32"


@pytest.mark.parametrize("option", ["is_angle", "is_large"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_result_that_is_kept_wide_is_beyond_fp16(option: str, dtype: str) -> None:
    call = _call(dtype=dtype, **{option: True})
    index = call.builder.add(Expr(op=INPUT, shape=ROWS, dtype=dtype))
    assert call.result(index).reach == (BEYOND if dtype == "float32" else WITHIN)


@pytest.mark.parametrize("single_use", [True, False])
@pytest.mark.parametrize("narrow_early", [True, False])
@pytest.mark.parametrize("reach", [WITHIN, BEYOND])
def test_one_narrow_copy_serves_several_readers(
    single_use: bool, narrow_early: bool, reach: object
) -> None:
    call = _call(single_use=single_use)
    index = call.builder.add(Expr(op=INPUT, shape=ROWS, dtype="float32"))
    value = call.result(index, reach=reach, narrow_early=narrow_early)  # type: ignore[arg-type]
    is_narrow = narrow_early and not single_use and reach is WITHIN
    assert value.stored == ("float16" if is_narrow else "float32")
    assert (value.single_use, value.reach) == (single_use, reach)


def test_a_sentence_for_people_is_kept_once() -> None:
    context = Context(store=_store())
    for sentence in ("one", "other", "one"):
        context.note(sentence)
    assert context.notes == ["one", "other"]
