"""From a model as imported to one that kernels can take: FP16 and NHWC inside, batch norms folded.

Inputs and outputs keep their dtypes and layouts. TVM has passes for each part (FoldConstant,
ConvertLayout, ToMixedPrecision). One rewrite of our own takes their place, because it knows all
layouts and dtypes at once: weights end up as constants in their final form, permutations meet
and vanish, reductions stay in FP32, and a model takes a second instead of minutes.
"""

from boltgen.frontend.relax.normalise.rewrite import normalise

__all__ = ["normalise"]
