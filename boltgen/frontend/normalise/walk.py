"""One operator at a time: folded where all of it is constant, else given to its rule."""

from __future__ import annotations

from boltgen.frontend.normalise import elementwise, movement, products
from boltgen.frontend.normalise.call import Item, OperatorCall, Rule
from boltgen.frontend.normalise.dialect import IRExpr
from boltgen.frontend.normalise.fold import evaluate
from boltgen.frontend.normalise.values import Store, Value

RULES: dict[str, Rule] = {**elementwise.RULES, **movement.RULES, **products.RULES}


def rewrite(call: OperatorCall) -> Item | None:
    """What becomes of an operator; None where it stays as its author wrote it."""
    folded = evaluate(call)
    if folded is not None:
        return call.store.of_array(folded)
    if call.name in RULES and call.args and isinstance(call.args[0], (Value, tuple)):
        return RULES[call.name](call)
    return None


def as_written(store: Store, item: Item) -> IRExpr:
    """The expression that the author's graph has in this place, in its dtype and layout."""
    if isinstance(item, Value):
        return store.result(item)
    if isinstance(item, tuple):
        return store.dialect.tuple_of([as_written(store, part) for part in item])
    return item
