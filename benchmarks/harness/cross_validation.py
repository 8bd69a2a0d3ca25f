"""Cross-validation of trees that correct the analytical model, learn times alone, or rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boltgen.cost.learned import (
    ETA,
    FOLDS,
    ROUNDS,
    TREES,
    Array,
    Example,
    Learning,
    held_out,
    learning_of,
    xgboost_module,
)

# The ranking loss: the gap of log(time) at which the faster configuration is predicted as such with
# odds e, and the number of first-ranked configurations per problem that are compared with the
# others. Choices.
_RANKED_APART, _RANKED_FIRST = 0.1, 8
_RANKING = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": _RANKED_FIRST,
    "base_score": 0.0,
}


def cross_validated(
    examples: Sequence[Example], *, corrects: bool = True, ranks: bool = False, split: int = 0
) -> Array:
    """Return log(predicted time) of each example, by a model trained on other folds of problems.

    Each `split` divides problems into other folds. With `corrects` the trees correct the analytical
    model; without, they learn times alone. With `ranks` they correct it by learning which of two
    configurations is faster.
    """
    learning = learning_of(examples, split)
    analytical = learning.analytical
    if ranks:
        return _ranked(examples, learning)
    return held_out(learning, analytical if corrects else np.zeros_like(analytical))


def _ranked(examples: Sequence[Example], learning: Learning) -> Array:
    """Return the analytical model's log(time) plus the correction of trees that rank.

    The odds that one configuration of a problem is faster than another are exp(difference of
    log(time) / `_RANKED_APART`). Source: Burges, From RankNet to LambdaRank to LambdaMART, 2010.
    """
    base = learning.analytical
    numbers = {workload: at for at, workload in enumerate({e.workload: 0 for e in examples})}
    problems = np.array([numbers[each.workload] for each in examples])
    predicted = np.empty_like(base)
    for index in range(FOLDS):
        held = learning.folds == index
        if held.any():
            rest = np.flatnonzero(~held)
            rest = rest[np.argsort(problems[rest], kind="stable")]
            faster = [
                learning.measured[problems == problem].max() for problem in problems[rest]
            ] - learning.measured[rest]
            margin = -base / _RANKED_APART
            matrix = xgboost_module().DMatrix(
                learning.table[rest],
                faster,
                qid=problems[rest],
                base_margin=margin[rest],
            )
            settings = {**TREES, "eta": ETA, **_RANKING}
            trees = xgboost_module().train(settings, matrix, ROUNDS)
            asked = xgboost_module().DMatrix(learning.table[held], base_margin=margin[held])
            predicted[held] = -_RANKED_APART * trees.predict(asked)
    return predicted
