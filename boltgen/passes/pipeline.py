"""The passes of the middle end, in order: graphs to graphs with regions.

Arrow: a module's functions as graphs to the same functions with a call for each region. A pass
runs once at its place, calls no other pass, and has a reason for its place.
"""

from __future__ import annotations

from typing import Any

from boltgen.passes import bound
from boltgen.passes.arithmetic.cse import with_single_reshapes, without_repeated
from boltgen.passes.arithmetic.fold_comparisons import with_known_truths
from boltgen.passes.arithmetic.fold_constant_sums import with_sums_of_constants
from boltgen.passes.arithmetic.hoist_scale import factors_behind_products
from boltgen.passes.joins.copy_inputs import with_copied_inputs
from boltgen.passes.joins.fold_channels import with_folded_channels
from boltgen.passes.joins.fuse_gated_mlp import join_pairs
from boltgen.passes.joins.fuse_head_operators import with_joint_heads
from boltgen.passes.joins.fuse_qkv import join_siblings
from boltgen.passes.legalise.half_columns import without_halves
from boltgen.passes.legalise.norm_of_sums import without_normed
from boltgen.passes.legalise.unroll_recurrent import without_rejected
from boltgen.passes.masks.guarded_rows import empty_rows_behind_products
from boltgen.passes.masks.split_mask import with_masks_apart
from boltgen.passes.masks.where_as_minimum import masks_as_bounds
from boltgen.passes.masks.window_mask import masks_of_all_windows
from boltgen.passes.movement.collapse_views import with_fewer_moves
from boltgen.passes.movement.dynamic_shape_constants import corners_where_read, with_corners
from boltgen.passes.movement.index_by_arange import indexed_by_all_places
from boltgen.passes.movement.sink_broadcasts import with_late_broadcasts
from boltgen.passes.movement.sink_gathers import gathered_last
from boltgen.passes.movement.sink_row_permutations import with_rows_in_place
from boltgen.passes.movement.unflatten_matmul import products_of_open_rows
from boltgen.passes.norms.flatten_axes import norms_of_joint_rows
from boltgen.passes.norms.fuse_into_matmuls import norms_in_products
from boltgen.passes.norms.image_norms import image_norms_in_place, without_image_norms
from boltgen.passes.padding.pairs import with_paired_pixels
from boltgen.passes.precision.early_casts import with_early_casts
from boltgen.passes.run import FUSING, NORMALISING, PACKING, PADDING, Pass, Run, Stage, the_run
from boltgen.passes.weights.packed import with_floats, with_packed_weights


def _joining(run: Run) -> tuple[Any, ...]:
    return run.passes.joining, run.passes.rejects, run.passes.accumulate


PIPELINE: tuple[Pass, ...] = (
    Pass(
        Stage.IMPORT,
        "mark_inputs",
        bound.mark_inputs,
        "Attach observed ranges and the author's dtypes of narrowed inputs to the values.",
        "Observations name values by their place in the imported graph.",
        given=the_run,
    ),
    Pass(
        Stage.IMPORT,
        "sink_dequantisations",
        bound.sink_dequantisations,
        "Move dequantisations behind views, maxima and joins; cancel equal quantisations.",
        "`multiply_integers` looks for them right before a product.",
        when=NORMALISING,
        given=the_run,
        works_in="quantisation/sink_dequantise",
    ),
    Pass(
        Stage.IMPORT,
        "multiply_integers",
        bound.multiply_integers,
        "Multiply integers of quantised tensors where that is as fast, and dequantise the sums.",
        "`pack_weights` and folding in `set_precision` would make other weights of the integers.",
        when=NORMALISING,
        given=the_run,
        works_in="quantisation/integer_products",
    ),
    Pass(
        Stage.IMPORT,
        "narrow_integers",
        bound.narrow_integers,
        "Multiply bytes where a model widens them for a product of int32 or FP64.",
        "Folding in `set_precision` would make FP16 of some widened constants.",
        when=NORMALISING,
        given=the_run,
        works_in="quantisation/widened_products",
    ),
    Pass(
        Stage.IMPORT,
        "pack_weights",
        with_packed_weights,
        "Replace the dequantised constant weight of a matmul by packed weights.",
        "Folding in `set_precision` would turn the integers of the weight into floats.",
        when=PACKING,
        given=lambda run: (run.passes.rejects, run.passes.accumulate),
    ),
    Pass(
        Stage.RESPELL,
        "unroll_recurrent_layers",
        without_rejected,
        "Write out the steps of a recurrent layer that no kernel computes, or none as fast.",
        "The steps' matmuls go through all passes below, to kernels of their own.",
        given=lambda run: (
            run.passes.rejects,
            run.passes.precision if run.passes.normalise else None,
            run.passes.joining,
        ),
    ),
    Pass(
        Stage.RESPELL,
        "replace_full_gathers",
        indexed_by_all_places,
        "Replace a gather by the full index range (`arange`) with a reshape.",
        "transformers reads a padding mask by such a gather, and `split_masks` looks for the mask.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "fold_constant_sums",
        with_sums_of_constants,
        "Turn (x + c) + d into x + (c + d).",
        "The sum c + d may depend on dynamic dimensions: `precompute_tables` computes it.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "precompute_tables",
        with_corners,
        "Compute what depends only on dynamic dimensions at the maximum size, and slice it.",
        "Later passes recognise a mask or a table by its values.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "collapse_views",
        with_fewer_moves,
        "Replace a chain of reshapes, transposes and slices by the shortest equal chain.",
        "Every pass below matches through at most a few views.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "sink_row_permutations",
        with_rows_in_place,
        "Sink row permutations below operators that treat each row alone, until two cancel.",
        "It matches collapsed views, and casts of `set_precision` would stand between them.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "sink_row_guards",
        empty_rows_behind_products,
        "Zero attention rows without keys after the matmul, not before.",
        "A guard stands between softmax and matmul, where later passes look for attention.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "split_masks",
        with_masks_apart,
        "Separate the causal mask or bias of attention scores from the padding mask.",
        "`set_precision` folds the causal part only if it does not depend on an input.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "hoist_scales",
        factors_behind_products,
        "Move scale factors from the operands of a matmul to its result.",
        "`set_precision` can put casts between the scale and its matmul.",
        when=NORMALISING,
    ),
    Pass(
        Stage.RESPELL,
        "flatten_norm_axes",
        norms_of_joint_rows,
        "Rewrite a norm over several axes as a norm of rows or as a group norm of images.",
        "`set_precision` has a rule for both forms, not for the operators that spell them.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "set_precision",
        bound.set_precision,
        "Set precision and layout; fold constants and batch norms; recognise softmax.",
        "All spellings are canonical, and all passes below see the dtypes and layouts of kernels.",
        when=NORMALISING,
        given=the_run,
        works_in="precision/walk",
    ),
    Pass(
        Stage.PRECISION,
        "cast_early",
        with_early_casts,
        "Cast dequantised sums before a reshape, so that the kernel before it casts.",
        "`set_precision` puts a cast where it is read: behind the reshape.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "fold_comparisons",
        with_known_truths,
        "Fold comparisons with -inf that are true for every element.",
        "Constants are folded, so the values of a mask are known.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "sink_broadcasts",
        with_late_broadcasts,
        "Sink `broadcast_to` below elementwise operators, so that masks stay small.",
        "`set_precision` puts casts below broadcasts; a cast of the small tensor is cheaper.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "sink_gathers",
        gathered_last,
        "Sink gathers of rows below casts, to the operand of a matmul or a norm.",
        "`set_precision` puts casts between a gather and the matmul that reads its rows.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "eliminate_common_subexpressions",
        without_repeated,
        "Compute equal views, casts, masks and differences once.",
        "`set_precision` writes a cast for each reader, and sunk broadcasts can be equal.",
        when=NORMALISING,
    ),
    Pass(
        Stage.PRECISION,
        "place_image_norms",
        image_norms_in_place,
        "Keep a group norm in NHWC if a kernel computes it; else write a norm of rows.",
        "The layout of each image is known only after `set_precision`.",
        when=NORMALISING,
        given=lambda run: (run.passes.rejects,),
    ),
    Pass(
        Stage.MASKS,
        "repeat_window_masks",
        masks_of_all_windows,
        "Repeat the mask of an image's windows for all images of the batch.",
        "`replace_where` rewrites the sum of mask and scores that this pass matches.",
    ),
    Pass(
        Stage.MASKS,
        "replace_where",
        masks_as_bounds,
        "Replace `where(mask, scores, lowest)` by a minimum of scores and numbers.",
        "All masks are separate, and each stands beside its scores.",
    ),
    Pass(
        Stage.MASKS,
        "precompute_mask_tables",
        with_corners,
        "Compute casts and bounds of dynamic-shape constants at the maximum size.",
        "`set_precision` and `replace_where` have written operators behind the constants.",
    ),
    Pass(
        Stage.MASKS,
        "unflatten_matmuls",
        products_of_open_rows,
        "Multiply (B, S, K) directly where B or S is dynamic, not as (B S, K).",
        "The passes below read heads out of the columns of such a matmul.",
    ),
    Pass(
        Stage.JOIN,
        "fuse_qkv",
        join_siblings,
        "Fuse matmuls of one tensor with constant weights to one matmul.",
        "Padding and gated MLPs are decided for the fused matmul.",
        when=FUSING,
        given=lambda run: (run.passes.joining, run.passes.accumulate),
    ),
    Pass(
        Stage.JOIN,
        "fuse_head_operators",
        with_joint_heads,
        "Compute the rotary embedding of query and key at once.",
        "Query and key must be columns of one matmul, which `fuse_qkv` makes.",
        when=FUSING,
    ),
    Pass(
        Stage.JOIN,
        "fuse_norms",
        norms_in_products,
        "Compute the sums of a norm in the matmul before it; apply the norm in the one after.",
        "The gain is known after `fuse_qkv`: a fused matmul reads a norm once.",
        when=FUSING,
        given=_joining,
    ),
    Pass(
        Stage.JOIN,
        "fold_channels",
        with_folded_channels,
        "Fold slices and shuffles of channels into the weights of convolutions.",
        "`pad_channels` pads the channels that are left.",
        when=FUSING,
        given=lambda run: (run.passes.joining, run.passes.accumulate),
    ),
    Pass(
        Stage.JOIN,
        "copy_inputs",
        with_copied_inputs,
        "Join the input of a depthwise convolution with its result in the convolution's kernel.",
        "Casts, layouts and folded norms show which input a concatenation has.",
        when=FUSING,
        given=_joining,
    ),
    Pass(
        Stage.JOIN,
        "pad_channels",
        bound.pad_channels,
        "Pad channels to multiples of 8 where kernels are faster with them.",
        "Joined weights have other numbers of channels than their parts.",
        when=PADDING,
        given=the_run,
        works_in="padding/apply",
    ),
    Pass(
        Stage.JOIN,
        "pair_pixels",
        with_paired_pixels,
        "Read pairs of pixels of an image as one of twice the channels, where that is faster.",
        "`pad_channels` gives an image its fourth channel.",
        when=PADDING,
        given=lambda run: (run.passes.padding, run.passes.accumulate),
    ),
    Pass(
        Stage.JOIN,
        "fuse_gated_mlp",
        join_pairs,
        "Fuse the two matmuls of a gated MLP to one kernel.",
        "Interleaved columns need their final number, and can take the sums of `fuse_norms`.",
        when=FUSING,
        given=_joining,
    ),
    Pass(
        Stage.OUTLINE,
        "outline_regions",
        bound.outline_regions,
        "Grow a region from each anchor and replace it by a call.",
        "Every pass above changes which operators fit into a kernel.",
        given=the_run,
        works_in="outline",
    ),
    Pass(
        Stage.LEGALISE,
        "unpack_weights",
        with_floats,
        "Replace packed weights that no region reads by constants of floats.",
        "The regions are known, and TVM cannot read packed weights.",
    ),
    Pass(
        Stage.LEGALISE,
        "legalise_halves",
        without_halves,
        "Write out the columns of a gated MLP that no kernel computes.",
        "The regions are known; TVM does not have this operator.",
        in_bodies=True,
    ),
    Pass(
        Stage.LEGALISE,
        "legalise_norms_of_sums",
        without_normed,
        "Write out norms by given sums that no kernel computes.",
        "The regions are known; TVM does not have this operator.",
        in_bodies=True,
    ),
    Pass(
        Stage.LEGALISE,
        "legalise_image_norms",
        without_image_norms,
        "Write out group norms of images that no kernel computes.",
        "The regions are known; TVM does not have this operator.",
        in_bodies=True,
    ),
    Pass(
        Stage.LEGALISE,
        "copy_tables",
        corners_where_read,
        "Slice a table of the maximum size once for each elementwise reader.",
        "Several readers share a slice until now; TVM fuses a slice with a single reader.",
        in_bodies=True,
    ),
    Pass(
        Stage.LEGALISE,
        "merge_reshapes",
        with_single_reshapes,
        "Merge adjacent reshapes, and drop a reshape to the same shape.",
        "TVM would make a kernel of two reshapes, and the passes above write some.",
    ),
)
