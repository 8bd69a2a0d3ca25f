"""Random operands that are more than numbers of a range."""

from __future__ import annotations

import numpy as np

from boltgen.ir.key_masks import HIDDEN
from boltgen.problems.operands import hide_some


def test_a_mask_shows_some_keys_in_a_row_of_each_sequence() -> None:
    rng = np.random.default_rng(0)
    mask = rng.uniform(-1.5, 1.5, (50, 9)).astype(np.float16)
    before = mask.copy()
    hide_some(mask, rng)
    seen = mask >= 0
    assert (mask[~seen] == HIDDEN).all()
    assert np.array_equal(mask[seen], np.abs(before)[seen])
    assert seen.any(axis=1).all()
    # From the first to the last without a hole, and not the same in all.
    assert (np.diff(seen.astype(int), axis=1) == 1).sum(axis=1).max() == 1
    assert len({tuple(row) for row in seen}) > 20
    single = np.full(1, -1.0, np.float16)
    hide_some(single, rng)
    assert single == 1.0
